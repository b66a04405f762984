"""Backends: how a framework is entered.

A framework is recognised by the object that a user hands over, so it is imported already; hookline
never imports one to find out whether it is there.
"""

from __future__ import annotations

import importlib
from typing import Any

from hookline.backends.protocol import Backend
from hookline.errors import InvalidArgument

BACKENDS = {"torch": "hookline.backends.torch"}
"""Root package of a framework -> the module whose `BACKEND` enters it."""


def resolve(model: Any) -> Backend:
    """The backend of `model`'s framework; InvalidArgument where `model` is not a model of any."""
    for base in type(model).__mro__:
        root = base.__module__.partition(".")[0]
        if root in BACKENDS:
            backend: Backend = importlib.import_module(BACKENDS[root]).BACKEND
            if backend.is_model(model):
                return backend
    raise InvalidArgument(
        f"a model is wanted, a {type(model).__module__}.{type(model).__qualname__} came. "
        f"hookline knows the models of {', '.join(BACKENDS)}; for torch that is a torch.nn.Module."
    )


def of_tensor(tensor: Any) -> Backend:
    """The backend whose tensor this is; InvalidArgument where it is no tensor of any."""
    for base in type(tensor).__mro__:
        root = base.__module__.partition(".")[0]
        if root in BACKENDS and isinstance(tensor, (backend := named(root)).tensor):
            return backend
    raise InvalidArgument(f"a tensor of {', '.join(BACKENDS)} is wanted, a {type(tensor).__name__} came.")


def named(name: str) -> Backend:
    """The backend of that name, its framework imported if need be."""
    if name not in BACKENDS:
        raise InvalidArgument(f"no backend is called {name!r}; there are {', '.join(BACKENDS)}.")
    backend: Backend = importlib.import_module(BACKENDS[name]).BACKEND
    return backend
