"""Backends: how a framework is entered.

A framework is recognised by the object that a user hands over, so it is imported already; hookline
never imports one to find out whether it is there.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from typing import Any

from hookline.backends.capabilities import Framework, capabilities
from hookline.backends.protocol import Backend
from hookline.errors import InvalidArgument, UntestedVersion
from hookline.reporting import warn


def resolve(model: Any) -> Backend:
    """The backend of `model`'s framework; InvalidArgument where `model` is not a model of any."""
    for name in _named_by(type(model)):
        backend = entered(name)
        if backend.is_model(model):
            return backend
    known = {name: framework.models for name, framework in capabilities().items() if framework.models}
    raise InvalidArgument(
        f"expected a model, got a {type(model).__module__}.{type(model).__qualname__}. "
        f"hookline knows the models of {', '.join(known)}: {', '.join(known.values())}."
    )


def of_tensor(tensor: Any) -> Backend:
    """The backend whose tensor this is; InvalidArgument where it is no tensor of any.

    numpy's is a TensorBackend alone: whoever wants more of it asks `framework.need` first.
    """
    for name in _named_by(type(tensor)):
        if isinstance(tensor, (backend := entered(name)).tensor):
            return backend
    raise InvalidArgument(f"expected a tensor of {', '.join(capabilities())}, got a {type(tensor).__name__}.")


def named(name: str) -> Backend:
    """The backend of that name, its framework imported if need be; ImportError where that is not installed."""
    if name not in capabilities():
        raise InvalidArgument(f"no backend is called {name!r}; there are {', '.join(capabilities())}.")
    return entered(name)


@cache
def entered(name: str) -> Backend:
    """The backend of a framework that is there; a version of it that was never tested is warned of, once."""
    framework = capabilities()[name]
    backend: Backend = importlib.import_module(framework.home).BACKEND
    _check_version(framework)
    return backend


def enter_loaded() -> None:
    """Enters the frameworks that are imported already, so that they know what hookline's objects are."""
    for framework in capabilities().values():
        if framework.models and all(root in sys.modules for root in framework.roots):
            entered(framework.name)


def _named_by(kind: type) -> list[str]:
    """The frameworks whose packages the classes of `kind` come from, the nearest class first.

    What a backend makes itself to stand in for a tensor tells its framework as `stands_in_for`.
    """
    if (own := getattr(kind, "stands_in_for", None)) in capabilities():
        return [own]
    roots = _roots()
    found = (roots.get(base.__module__.partition(".")[0]) for base in kind.__mro__)
    return list(dict.fromkeys(name for name in found if name is not None))


@cache
def _roots() -> dict[str, str]:
    return {root: framework.name for framework in capabilities().values() for root in framework.roots}


def _check_version(framework: Framework) -> None:
    version = getattr(sys.modules.get(framework.roots[0]), "__version__", None)
    if version is not None and not framework.covers(str(version)):
        low, high = framework.tested
        warn(
            f"{framework.package} {version} is not among the versions that hookline was tested with: from {low}, "
            f"below {high}. It may work all the same; the suite in hookline.testing.conformance tells.",
            UntestedVersion,
            stacklevel=5,
        )
