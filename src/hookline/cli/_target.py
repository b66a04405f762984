"""What a command is about: `pkg.mod:factory`, imported and called; a user's errors are told in one sentence."""

from __future__ import annotations

import difflib
import importlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

MOST_NAMES = 20


def made(target: str) -> Any:
    """What `pkg.mod:factory` names, called if it is a function or a class."""
    path, _, attributes = target.partition(":")
    if not all(part.isidentifier() for name in (path, attributes) for part in name.split(".")):
        raise wrong(f"{target!r} is not of the form PKG.MOD:FACTORY, as in torchvision.models:resnet18.")
    sys.path.insert(0, str(Path.cwd()))
    with told(f"importing {path}", path):
        thing: Any = importlib.import_module(path)
    above = path
    for name in attributes.split("."):
        if not hasattr(thing, name):
            raise wrong(f"{above} has no {name!r}{_there(thing, name)}.")
        thing, above = getattr(thing, name), f"{above}.{name}"
    if not isinstance(thing, type) and hasattr(type(thing), "forward"):
        return thing  # a model can be called as well, but not without an input
    if not callable(thing):
        kind = type(thing).__name__
        raise wrong(f"{target} is a {kind}: expected a model, or what makes one when it is called.")
    with told(f"{target}, called without arguments,"):
        return thing()


def model_and_inputs(target: str) -> tuple[Any, Any]:
    """(model, inputs) of a factory."""
    pair = made(target)
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        kind = type(pair).__name__
        raise wrong(f"{target} gave a {kind}: expected (model, inputs), as in `return model, torch.randn(2, 3)`.")
    return pair[0], pair[1]


def _there(thing: Any, wanted: str) -> str:
    """What a module or class has instead, in words; what is near comes first."""
    public = [name for name in dir(thing) if not name.startswith("_")]
    names = list(dict.fromkeys([*difflib.get_close_matches(wanted, public, n=3), *public]))
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"; it has {', '.join(names[:MOST_NAMES])}{more}" if names else ""


@contextmanager
def told(what: str, path: str | None = None) -> Iterator[None]:
    """Says what a user's code raised, and in which line; a program that ends itself meanwhile is told, too."""
    try:
        yield
    except (click.ClickException, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and path and f"{path}.".startswith(f"{error.name}."):
            what = f"no module {error.name!r} is found; modules in the current folder are, by name and without .py"
            raise wrong(f"{what}.") from error
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        lines = traceback.extract_tb(error.__traceback__)
        own = [
            line
            for line in lines
            if line.filename not in (__file__, importlib.__file__) and line.filename[0] != "<"
        ]
        where = f", in {own[-1].filename}, line {own[-1].lineno}" if own else ""
        raise wrong(f"{what} raised {said}{where}.") from error


def wrong(text: str) -> click.BadParameter:
    return click.BadParameter(text, param_hint="PKG.MOD:FACTORY")
