"""hookline view: the page of the runs in a folder, until Ctrl-C."""

from __future__ import annotations

from pathlib import Path

import click

import hookline


@click.command("view")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="By default one that is the folder's own.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Others can reach the page with another one.")
@click.option(
    "--browser/--no-browser", default=True, help="Open the page in a browser, or print its address only."
)
def command(folder: Path, port: int, host: str, browser: bool) -> None:
    """Show the runs in DIR, which may be a run itself, in a browser. Ctrl-C ends it.

    A folder that is not there yet is waited for. Bookmarks of the page live when it is shown again.
    """
    with hookline.serve(folder, host=host, port=port, lasting=True) as page:
        if not folder.is_dir():
            click.echo(f"There is no folder {folder} yet: the page waits for it.")
        click.echo(f"{folder} is shown at\n{page.url}\nCtrl-C ends it.")
        if page.note:
            click.echo(page.note, err=True)
        if browser and not page.open():
            click.echo("No browser was found here: open that address in one.", err=True)
        page.wait()
