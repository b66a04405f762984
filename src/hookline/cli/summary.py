"""hookline summary: what a model is, from the command line."""

from __future__ import annotations

import difflib
import importlib
import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

MOST_NAMES = 20
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
    model = _made(target)
    options: dict[str, Any] = {**kwargs, "depth": depth, "columns": columns, "real": real}
    if any(dtypes):
        options["dtype"] = dtypes
    found = hookline.summary(model, *args, **options)
    click.echo(json.dumps(found.to_dict(), indent=1) if as_json else found)


def _made(target: str) -> Any:
    """What `pkg.mod:factory` names, called if it is a function or a class."""
    path, _, attributes = target.partition(":")
    if not all(part.isidentifier() for name in (path, attributes) for part in name.split(".")):
        raise _wrong(f"{target!r} is not of the form PKG.MOD:FACTORY, as in torchvision.models:resnet18.")
    sys.path.insert(0, str(Path.cwd()))
    with _told(f"importing {path}", path):
        thing: Any = importlib.import_module(path)
    above = path
    for name in attributes.split("."):
        if not hasattr(thing, name):
            raise _wrong(f"{above} has no {name!r}{_there(thing, name)}.")
        thing, above = getattr(thing, name), f"{above}.{name}"
    if not isinstance(thing, type) and hasattr(type(thing), "forward"):
        return thing  # a model can be called as well, but not without an input
    if not callable(thing):
        kind = type(thing).__name__
        raise _wrong(f"{target} is a {kind}: expected a model, or what makes one when it is called.")
    with _told(f"{target}, called without arguments,"):
        return thing()


def _there(thing: Any, wanted: str) -> str:
    """What a module or class has instead, in words; what is near comes first."""
    public = [name for name in dir(thing) if not name.startswith("_")]
    names = list(dict.fromkeys([*difflib.get_close_matches(wanted, public, n=3), *public]))
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"; it has {', '.join(names[:MOST_NAMES])}{more}" if names else ""


@contextmanager
def _told(what: str, path: str | None = None) -> Iterator[None]:
    """Says what a user's code raised, and in which line; a program that ends itself meanwhile is told, too."""
    try:
        yield
    except (click.ClickException, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and path and f"{path}.".startswith(f"{error.name}."):
            what = f"no module {error.name!r} is found; modules in the current folder are, by name and without .py"
            raise _wrong(f"{what}.") from error
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        lines = traceback.extract_tb(error.__traceback__)
        own = [
            line
            for line in lines
            if line.filename not in (__file__, importlib.__file__) and line.filename[0] != "<"
        ]
        where = f", in {own[-1].filename}, line {own[-1].lineno}" if own else ""
        raise _wrong(f"{what} raised {said}{where}.") from error


def _wrong(text: str) -> click.BadParameter:
    return click.BadParameter(text, param_hint="PKG.MOD:FACTORY")


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
