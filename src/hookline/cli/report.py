"""hookline report: a stored run as one HTML file."""

from __future__ import annotations

import json
from pathlib import Path

import click

import hookline
from hookline.cli import _bar


@click.command("report")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path), help="A file that ends in .html.")
@click.option("--json", "as_json", is_flag=True, help="Print path and size as JSON.")
def command(run: Path, output: Path, as_json: bool) -> None:
    """Write the run in folder RUN to one HTML file, which opens without a server or network."""
    with _bar.shown("report") as tell:
        path = hookline.report(run, output, progress=tell)
    size = path.stat().st_size
    click.echo(json.dumps({"path": str(path), "bytes": size}) if as_json else f"wrote {path}, {size / 1e6:.1f} MB")
