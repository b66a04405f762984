"""hookline export: the rows of a stored run as a Parquet or CSV file."""

from __future__ import annotations

from pathlib import Path

import click

import hookline


@click.command("export")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(path_type=Path))
def command(run: Path, file: Path) -> None:
    """Write the rows of the run in folder RUN to FILE, which ends in .parquet or .csv."""
    with hookline.open_run(run) as stored:
        click.echo(f"wrote {stored.export(file)}")
