"""hookline export: the rows of a stored run as a Parquet or CSV file."""

from __future__ import annotations

import json
from pathlib import Path

import click

import hookline
from hookline.cli import _bar


@click.command("export")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print path and size as JSON.")
def command(run: Path, file: Path, as_json: bool) -> None:
    """Write the rows of the run in folder RUN to FILE, which ends in .parquet or .csv."""
    with hookline.open_run(run) as stored, _bar.shown("export") as tell:
        stored.export(file, progress=tell)
    size = file.stat().st_size
    click.echo(json.dumps({"path": str(file), "bytes": size}) if as_json else f"wrote {file}, {size / 1e6:.1f} MB")
