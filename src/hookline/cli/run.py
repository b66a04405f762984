"""hookline run: a script that nobody edits, watched, and what is wrong with its training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

import hookline


@click.command("run", context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is the name of a module, as for python -m.")
@click.option("--to", type=click.Path(path_type=Path), help="Folder of the run; by default runs/SCRIPT-TIME.")
@click.option("--every", default=1, show_default=True, type=click.IntRange(1), help="Watch every n-th step.")
@click.option("--where", multiple=True, help="Watch these layers only: a name or glob; may be given again.")
@click.option("--budget", help="The most that watching may cost: 2% of the time of a step.")
@click.option("--fingerprint", is_flag=True, help="Keep a fingerprint of all bits, for `hookline diff`.")
@click.option("--json", "json_to", type=click.Path(path_type=Path, dir_okay=False), help="File for the findings.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning"]),
    help="Exit with 3 if there is such a finding, or a worse one.",
)
@click.option("--verdict/--no-verdict", default=True, help="Tell what is wrong after the script's end, or not.")
@click.option("--page", is_flag=True, help="Show the live page meanwhile.")
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(
    is_module: bool,
    to: Path | None,
    every: int,
    where: tuple[str, ...],
    budget: str | None,
    fingerprint: bool,
    json_to: Path | None,
    fail_on: str | None,
    verdict: bool,
    page: bool,
    script: str,
    args: tuple[str, ...],
) -> Callable[[], None]:
    """Run SCRIPT with its ARGS as `python SCRIPT ARGS` would, and tell what is wrong with the training in it.

    The models are found by themselves. Everything after SCRIPT is the script's own. What hookline says goes to
    standard error, after the script's end.
    """
    try:
        ready = hookline.Script(
            script,
            args,
            is_module=is_module,
            to=to,
            every=every,
            where=list(where) or "**",
            budget=budget,
            fingerprint=fingerprint,
            json_to=json_to,
            fail_on=fail_on,
            verdict=verdict,
            page=page,
        )
    except hookline.InvalidArgument as error:
        raise click.UsageError(str(error)) from error
    return ready.run
