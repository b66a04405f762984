"""Optional packages: asked for where they are first needed, with the command that installs them."""

from __future__ import annotations

import importlib
from typing import Any

from hookline.errors import MissingExtra


def need(module: str, install: str = "", what: str = "this") -> Any:
    """The module, imported; MissingExtra where its package is not installed.

    `install` is what pip is to install, the package of the same name if empty; `what` needs it.

    >>> need("json").dumps([1])
    '[1]'
    >>> need("no_such_tracker.client", "no-such-tracker", "the sink Tracker")
    Traceback (most recent call last):
    hookline.errors.MissingExtra: the sink Tracker needs no_such_tracker. Run: pip install no-such-tracker
    """
    root = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != root:
            raise  # it is there, and something of its own is missing
        raise MissingExtra(f"{what} needs {root}. Run: pip install {install or root}") from error
