"""Hosts: the libraries that integrations are for, imported when an integration is."""

from __future__ import annotations

import importlib
from typing import Any

from hookline.errors import MissingExtra


def host(module: str, package: str) -> Any:
    """The module of a host; MissingExtra with the command that installs it.

    >>> host("no_such_trainer.callbacks", "no-such-trainer")
    Traceback (most recent call last):
    hookline.errors.MissingExtra: this needs no_such_trainer. Run: pip install no-such-trainer
    """
    root = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != root:
            raise  # it is there, and something of its own is missing
        raise MissingExtra(f"this needs {root}. Run: pip install {package}") from error
