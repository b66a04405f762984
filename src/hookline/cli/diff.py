"""hookline diff: where two runs, recordings or models part; or whether a script does the same twice."""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

import hookline
from hookline.cli import _twice
from hookline.cli._target import model_and_inputs, told

DIFFERENT, NOT_COMPARED = 1, 2
"""How the command ends where two sides differ, and where they could not be compared; 0 where they are the same."""


class _Diff(click.Command):
    """With --twice, all that comes after the script is the script's own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_interspersed_args = "--twice" not in args
        return super().parse_args(ctx, args)


@click.command("diff", cls=_Diff)
@click.option("--twice", is_flag=True, help="Run a script two times, and compare these: is it deterministic?")
@click.option(
    "--map", "map_", type=click.Path(path_type=Path, dir_okay=False), help="File: which site of A is which of B."
)
@click.option("--rtol", multiple=True, metavar="X", help="Allowed relative difference; GLOB=X for some sites.")
@click.option("--atol", multiple=True, metavar="X", help="Allowed absolute difference; GLOB=X for some sites.")
@click.option("--where", metavar="GLOB", help="Compare these sites only.")
@click.option("--json", "json_to", metavar="FILE", help="File for all of it as JSON; - for standard output.")
@click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="A file that ends in .html.")
@click.option("--to", type=click.Path(path_type=Path), help="With --twice: a folder that keeps both runs.")
@click.option(
    "--every", default=1, show_default=True, type=click.IntRange(1), help="With --twice: every n-th step."
)
@click.option("-m", "is_module", is_flag=True, help="With --twice: the name of a module, as for python -m.")
@click.argument("sides", metavar="A B | SCRIPT [ARGS]...", nargs=-1, type=click.UNPROCESSED)
def command(
    twice: bool,
    map_: Path | None,
    rtol: tuple[str, ...],
    atol: tuple[str, ...],
    where: str | None,
    json_to: str | None,
    output: Path | None,
    to: Path | None,
    every: int,
    is_module: bool,
    sides: tuple[str, ...],
) -> None:
    """Say where A and B part: the first place, whether the error is born there, and why.

    A and B are folders of runs, files of recordings (.safetensors), or PKG.MOD:FACTORY, functions that give
    (model, inputs). The exit code is 0 where they are the same, 1 where they differ, 2 where they could not be
    compared.

    \b
    hookline diff runs/a runs/b
    hookline diff before.safetensors after.safetensors --rtol 1e-3
    hookline diff mymodels:eager mymodels:compiled -o diff.html
    hookline diff --twice train.py --epochs 1
    """
    if output is not None and output.suffix != ".html":
        raise click.UsageError(f"-o {output}: expected a file that ends in .html.")
    options: dict[str, Any] = {"rtol": _tolerance("--rtol", rtol), "atol": _tolerance("--atol", atol), "map": map_}
    if where is not None:
        options["where"] = where
    try:
        with ExitStack() as until:
            if twice:
                _refuse("--twice", {"--map": map_, "--rtol": rtol, "--atol": atol})
                diff, more = _ran_twice(until, sides, is_module, to, every, where)
            else:
                _refuse("A B", {"--to": to, "-m": is_module, "--every": every > 1}, but="--twice")
                diff, more = _compared(sides, options), {}
            _tell(diff, more, json_to, output)
    except hookline.HooklineError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(NOT_COMPARED)
    sys.exit(DIFFERENT if diff else 0)


def _compared(sides: tuple[str, ...], options: dict[str, Any]) -> hookline.Diff:
    if len(sides) != 2:
        many = f"got {len(sides)}: {' '.join(sides)}" if sides else "got nothing"
        raise click.UsageError(f"expected A and B, {many}. With --twice in front, a script and its arguments.")
    a, b = map(_side, sides)
    try:
        diff = hookline.diff(a, b, **options)
    except hookline.HooklineError:
        raise
    except Exception:
        with told("comparing them"):  # in one sentence, as it is a user's code most often
            raise
    diff.a, diff.b = sides
    return diff


def _side(text: str) -> Any:
    """A path that is there, or what a factory gives."""
    path, _, name = text.partition(":")
    if Path(text).exists() or not name or any(sign in path for sign in "/\\"):
        return Path(text)
    return model_and_inputs(text)


def _ran_twice(
    until: ExitStack, sides: tuple[str, ...], is_module: bool, to: Path | None, every: int, where: str | None
) -> tuple[hookline.Diff, dict[str, Any]]:
    """The diff of the model whose bits part first, and what JSON has besides."""
    if not sides:
        raise click.UsageError("expected a script after --twice, as in hookline diff --twice train.py.")
    folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="hookline-"))) if to is None else to
    options = ["--every", str(every), *(["--where", where] if where is not None else [])]
    script = _twice.Script(sides[0], sides[1:], is_module, options)
    found = _twice.run_twice(script, (folder / "first", folder / "second"))
    parted = {name: diff for name, diff in found.items() if diff}
    name, diff = min((parted or found).items(), key=lambda one: one[1].first.step if one[1].first else 0)
    return diff, {"deterministic": not parted, "model": name, "models": len(found)}


def _tell(diff: hookline.Diff, more: dict[str, Any], json_to: str | None, output: Path | None) -> None:
    if json_to is not None:
        text = json.dumps({**more, **diff.to_json()}, indent=1, default=str)
        if json_to == "-":
            click.echo(text)
        else:
            Path(json_to).write_text(text + "\n", encoding="utf-8")
    if json_to != "-":
        if more:
            click.echo(_verdict(diff, more))
        click.echo(str(diff))
    if output is not None:
        written = diff.report(output)
        click.echo(f"wrote {written}", err=json_to == "-")


def _verdict(diff: hookline.Diff, more: dict[str, Any]) -> str:
    """Whether a script is deterministic, in a sentence."""
    if diff.first is None:
        many = "its model" if more["models"] == 1 else f"its {more['models']} models"
        return f"Deterministic: all bits of {many} were the same in both runs."
    of = f" of {more['model']}" if more["model"] else ""
    return f"Not deterministic: the bits{of} part at step {diff.first.step:,}, at {diff.first.label}."


def _tolerance(name: str, given: tuple[str, ...]) -> float | dict[str, float] | None:
    """A number for all sites, or one for each glob; what is for all comes last, so that it is for the others."""
    found: dict[str, float] = {}
    for one in given:
        glob, _, number = one.rpartition("=")
        try:
            found[glob or "**"] = float(number)
        except ValueError:
            raise click.UsageError(f"{name} {one}: expected a number as 1e-3, or GLOB=1e-3.") from None
    every = found.pop("**", None)
    if not found or every is None:
        return found or every
    return {**found, "**": every}


def _refuse(asked: str, given: dict[str, Any], but: str = "A and B") -> None:
    """UsageError where an option is given that means nothing here."""
    if wrong := [name for name, value in given.items() if value]:
        raise click.UsageError(f"{wrong[0]} is for {but}, and means nothing with {asked}.")
