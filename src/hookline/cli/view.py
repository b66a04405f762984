"""hookline view: the page of the runs in a folder, until Ctrl-C."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

import hookline


@click.command("view")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="0, the default, takes a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Others can reach the page with another one.")
@click.option(
    "--browser/--no-browser", default=True, help="Open the page in a browser, or print its address only."
)
def command(folder: Path, port: int, host: str, browser: bool) -> None:
    """Show the runs in DIR, which may be a run itself, in a browser. Ctrl-C ends it."""
    with hookline.serve(folder, host=host, port=port) as page:
        click.echo(f"{folder} is shown at\n{page.url}\nCtrl-C ends it.")
        if browser:
            webbrowser.open(page.url)
        page.wait()
