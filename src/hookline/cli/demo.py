"""hookline demo: a small network learns digits, once well and once not, and what hookline does is shown on it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

import hookline

ENDED_BY_CTRL_C = 130
"""What shells say of a program that Ctrl-C ended."""
HEALTHY, BROKEN = "healthy", "broken"
"""The names of the two runs."""
STEPS = 30
"""Of an epoch."""


@click.command("demo")
@click.option("--epochs", default=4, show_default=True, type=click.IntRange(1), help=f"{STEPS} steps each.")
@click.option(
    "--to", "folder", type=click.Path(path_type=Path), help="Where the runs are kept; runs/demo by default."
)
@click.option("--page/--no-page", default=None, help="Serve the page at the end; by default in a terminal only.")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Of the page; 0 takes a free one.")
@click.option(
    "--browser/--no-browser", default=True, help="Open the page in a browser, or print its address only."
)
def command(epochs: int, folder: Path | None, page: bool | None, port: int, browser: bool) -> None:
    """Train a small network on scikit-learn's digits, watch it, and show what was seen.

    It is trained twice: well, and broken on purpose. Both runs are stored, each with a report, and the page is
    served until Ctrl-C; it opens on what is wrong.
    """
    folder = _unused(Path("runs") / "demo") if folder is None else folder
    try:
        _learned(folder / HEALTHY, epochs)
        _broken(folder / BROKEN, epochs)
    except KeyboardInterrupt:
        click.echo(f"\ninterrupted; what was seen until then is in {folder}", err=True)
        sys.exit(ENDED_BY_CTRL_C)
    for name in (HEALTHY, BROKEN):
        hookline.report(folder / name, folder / name / "report.html")
    report = folder / BROKEN / "report.html"
    click.echo(f"\nThe runs are kept in {folder}, each with a report: {report}.")
    if sys.stdout.isatty() if page is None else page:
        _served(folder, port, browser)


def _learned(folder: Path, epochs: int) -> None:
    digits = hookline.examples.Digits()
    model = digits.model
    _heading("What it is", "hookline.summary(model, (1, 1, 8, 8))")
    click.echo(hookline.summary(model, (1, 1, 8, 8)))

    _heading("What flows while it learns", f"with hookline.watch(model, to={str(folder)!r}) as w: train()")
    with hookline.watch(model, to=folder) as w:
        digits.fit(epochs)
        right = digits.accuracy()
        with hookline.record(model, grads=True, to=w) as rec:
            digits.loss(slice(0, 50)).backward()
    with hookline.open_run(folder) as run:
        show_layers(run)
        click.echo(f"{len(run.rows()):,} rows of {len(run.steps):,} steps, {len(run.recordings)} recording")
    click.echo(f"{right:.1%} of {digits.unseen} digits that it has not seen are right")

    _heading("A look inside", "with hookline.record(model, grads=True, to=w) as rec: loss.backward()")
    below = float((rec["norm1"].output < 0).float().mean())
    click.echo(f"{below:.0%} of norm1's output is below zero, as it was before relu1 overwrote it in place")
    click.echo(
        f"the gradient of classify's weight has norm {float(rec['classify'].param_grads['weight'].norm()):.4f}"
    )
    click.echo(f"audit: {rec.audit()}")

    _heading("What if", "with hookline.edit(model, {'relu3': hookline.skip}): accuracy()")
    with hookline.edit(model, {"relu3": hookline.skip}):
        without = digits.accuracy()
    click.echo(f"without relu3 {without:.1%} are right; put back, {digits.accuracy():.1%}")


def _broken(folder: Path, epochs: int) -> None:
    """The same training with a slip in it, and what is found of both."""
    digits = hookline.examples.Digits()
    slip = STEPS * epochs // 3
    _heading("What is wrong", f"hookline.open_run({str(folder)!r}).diagnose()")
    click.echo(f"The same training once more, with a learning rate that slips to 1.0 at step {slip}.")
    with hookline.watch(digits.model, to=folder):
        digits.fit(epochs, slip=slip)
    for path in (folder.parent / HEALTHY, folder):
        with hookline.open_run(path) as run:
            found = run.diagnose()
        click.echo(f"{path.name}: {found[0] if found else 'nothing is wrong'}")


def show_layers(run: hookline.Run) -> None:
    """A table of the layers, first step to last, with what is wrong with them."""
    from rich.console import Console
    from rich.table import Table

    findings = hookline.health(run)
    table = Table("layer", "type", title=None)
    for heading in ("std of output", "std of its gradient", "zeros", "health"):
        table.add_column(heading, justify="left" if heading == "health" else "right")
    rows = run.rows()
    for name, kind in run.meta["sites"]:
        mine = [row for row in rows if row["site"] == name]
        outputs = [row for row in mine if row["kind"] == "output" and row["mode"] == "train"]
        grads = [row for row in mine if row["kind"] == "grad_output"]
        found = findings.get(name, [])
        table.add_row(
            name or "(model)",
            kind,
            _course(outputs),
            _course(grads),
            f"{outputs[-1]['zeros'] / outputs[-1]['count']:.0%}" if outputs else "",
            ", ".join(finding.rule for finding in found) or ("fine" if mine else "not seen"),
            style="red" if found else "",
        )
    Console().print(table)


def _course(rows: list[dict[str, Any]]) -> str:
    return f"{rows[0]['std']:.2g} -> {rows[-1]['std']:.2g}" if rows else ""


def _heading(title: str, code: str) -> None:
    click.echo(f"\n{click.style(title, bold=True)}: {code}\n")


def _served(folder: Path, port: int, browser: bool) -> None:
    try:
        with hookline.serve(folder, port=port, lasting=True) as page:
            click.echo(f"The page, open on what is wrong, is at {page.address(BROKEN)}\nCtrl-C ends it.")
            if browser:
                page.open(BROKEN)
            page.wait()
    except hookline.MissingExtra as error:
        click.echo(f"There is no page: {error}", err=True)


def _unused(folder: Path) -> Path:
    """The folder, or the first of folder-2, folder-3, ... that is not there: no run is written over."""
    found, number = folder, 1
    while found.exists():
        number += 1
        found = folder.with_name(f"{folder.name}-{number}")
    return found
