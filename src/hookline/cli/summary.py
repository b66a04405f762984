"""hookline summary: what a model is, from the command line."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import click


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

    model = _made(target)
    args, kwargs, dtypes = _read(inputs)
    options: dict[str, Any] = {**kwargs, "depth": depth, "columns": columns, "real": real}
    if any(dtypes):
        options["dtype"] = dtypes
    found = hookline.summary(model, *args, **options)
    click.echo(json.dumps(found.to_dict(), indent=1) if as_json else found)


def _made(target: str) -> Any:
    """What `pkg.mod:factory` names, called if it is a function or a class."""
    path, colon, attributes = target.partition(":")
    if not colon or not path or not attributes:
        raise click.BadParameter(f"{target!r} is not of the form PKG.MOD:FACTORY.", param_hint="PKG.MOD:FACTORY")
    sys.path.insert(0, str(Path.cwd()))
    try:
        thing: Any = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{path}.".startswith(f"{error.name}."):
            raise  # the module is there, and needs something that is not
        raise click.BadParameter(f"no module {error.name!r} is found.", param_hint="PKG.MOD:FACTORY") from error
    for name in attributes.split("."):
        if not hasattr(thing, name):
            there = ", ".join(public for public in dir(thing) if not public.startswith("_"))
            raise click.BadParameter(f"{path} has no {name!r}; it has {there}.", param_hint="PKG.MOD:FACTORY")
        thing = getattr(thing, name)
    # A model can be called as well, but not without an input.
    return thing() if isinstance(thing, type) or not hasattr(type(thing), "forward") else thing


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
        if equals:
            kwargs[name] = shape
        else:
            args.append(shape)
        dtypes[name if equals else len(args)] = dtype or None
    return args, kwargs, [dtypes[key] for key in (*range(1, len(args) + 1), *kwargs)]
