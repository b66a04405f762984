"""hookline summary: what a model is, from the command line."""

from __future__ import annotations

import json
from typing import Any

import click

from hookline.cli._target import made

OPTIONS = ("model", "depth", "columns", "dtype", "real")
"""Names of arguments that `hookline.summary` has itself: a model's argument can't be given by such a one."""


@click.command("summary")
@click.argument("target", metavar="PKG.MOD:FACTORY")
@click.option("--input", "-i", "inputs", multiple=True, metavar="[NAME=]SIZES[:DTYPE]", help="Can be repeated.")
@click.option("--depth", "-d", type=click.IntRange(0), help="Levels of the tree; what fits a screen if not given.")
@click.option("--columns", "-c", help="Names of columns, with commas between: name,input,params,...")
@click.option("--json", "as_json", is_flag=True, help="All rows and totals as JSON.")
@click.option("--real", is_flag=True, help="Compute with real tensors.")
def command(
    target: str, inputs: tuple[str, ...], depth: int | None, columns: str | None, as_json: bool, real: bool
) -> None:
    """Show how big a model is, what it costs, and where.

    PKG.MOD:FACTORY is a model, or a function or class that makes one when it is called without
    arguments. Modules in the current folder are found.

    \b
    hookline summary torchvision.models:resnet18 --input 1,3,224,224 --depth 2
    hookline summary mymodels:bert -i input_ids=1,128:int64 -i attention_mask=1,128:int64 --json
    """
    import hookline

    args, kwargs, dtypes = _read(inputs)
    model = made(target)
    options: dict[str, Any] = {**kwargs, "depth": depth, "columns": columns, "real": real}
    if any(dtypes):
        options["dtype"] = dtypes
    found = hookline.summary(model, *args, **options)
    click.echo(json.dumps(found.to_dict(), indent=1) if as_json else found)


def _read(inputs: tuple[str, ...]) -> tuple[list[tuple[int, ...]], dict[str, tuple[int, ...]], list[str | None]]:
    """Positional shapes, named shapes, and their dtypes in that order."""
    args, kwargs = [], {}
    dtypes: dict[str | int, str | None] = {}
    for text in inputs:
        name, equals, rest = text.rpartition("=")
        sizes, _, dtype = rest.partition(":")
        try:
            shape = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            raise click.BadParameter(
                f"{text!r} is no input; write sizes with commas, as in 1,3,224,224 or ids=1,128:int64.",
                param_hint="--input",
            ) from None
        if equals and (not name.isidentifier() or name in OPTIONS or name in kwargs):
            why = (
                "was given before"
                if name in kwargs
                else "can't be the name of an input here; give it by its place"
            )
            raise click.BadParameter(f"{text!r}: {name!r} {why}.", param_hint="--input")
        if equals:
            kwargs[name] = shape
        else:
            args.append(shape)
        dtypes[name if equals else len(args)] = dtype or None
    return args, kwargs, [dtypes[key] for key in (*range(1, len(args) + 1), *kwargs)]
