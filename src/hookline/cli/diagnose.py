"""hookline diagnose: what is wrong with the training of a stored run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

import hookline

BAD_INPUT, FOUND = 2, 3
"""How the command ends: what was asked can't be done; something is as bad as --fail-on says."""


@click.command("diagnose")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the verdict and all findings as JSON.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning"]),
    help=f"End with exit code {FOUND} if anything is that bad.",
)
@click.option("--baseline", type=click.Path(path_type=Path), help="The folder of a good run to compare with.")
@click.option("--rules", help="Names of the rules to ask, with commas; all by default.")
@click.option("--ignore", multiple=True, help='A rule ("still"), or a rule at some sites ("still:head.*").')
def command(
    run: Path,
    as_json: bool,
    fail_on: str | None,
    baseline: Path | None,
    rules: str | None,
    ignore: tuple[str, ...],
) -> None:
    """Say what is wrong with the training whose run is in folder RUN: which layer, since when, why, "
    "what to try."""
    asked = None if rules is None else [name.strip() for name in rules.split(",")]
    try:
        with hookline.open_run(run) as stored, stored.training() as training:
            found = hookline.diagnose(stored, baseline=baseline, rules=asked, ignore=ignore)
            told = hookline.verdict(found, training, rules=None if asked is None else len(asked))
    except hookline.HooklineError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(BAD_INPUT)
    click.echo(json.dumps(told.to_json(), indent=2, default=str) if as_json else str(told))
    severities = ("error",) if fail_on == "error" else ("error", "warning")
    if fail_on is not None and any(one.severity in severities for one in found):
        sys.exit(FOUND)
