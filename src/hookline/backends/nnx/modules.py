"""Modules: the tree of an NNX model, and why a module of it may stay silent.

`nnx.iter_modules` lists parts before their owners and each module under one name only; hookline lists
owners first, in order of definition, under every name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from flax import nnx

from hookline.backends.nnx.compat import attributes


def walk(node: Any, name: str = "", above: tuple[int, ...] = ()) -> Iterator[tuple[str, nnx.Module]]:
    """(name, module) for every module under every name, owners first.

    >>> rngs = nnx.Rngs(0)
    >>> [name for name, _ in walk(nnx.Sequential(nnx.Linear(2, 2, rngs=rngs), nnx.relu))]
    ['', 'layers', 'layers.0']
    """
    if isinstance(node, nnx.Module):
        yield name, node
    if id(node) in above:
        return
    dot = f"{name}." if name else ""
    for key, part in parts_of(node):
        if id(part) not in above:
            yield from walk(part, f"{dot}{key}", (*above, id(node)))


def parts_of(node: Any) -> Iterator[tuple[str, Any]]:
    """What can hold modules directly below `node`: modules, NNX objects, and plain containers of them."""
    for key, value in _entries(node):
        if isinstance(value, (nnx.Pytree, dict, list, tuple)) and not isinstance(value, nnx.Variable):
            yield key, value


def _entries(node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, nnx.Pytree):
        yield from attributes(node)
    elif isinstance(node, dict):
        yield from ((str(key), value) for key, value in node.items())
    elif isinstance(node, (list, tuple)):
        yield from ((str(number), value) for number, value in enumerate(node))


def children(model: nnx.Module) -> list[nnx.Module]:
    """The modules directly below the model; those in a list or dict count as its own."""
    return [module for name, module in walk(model) if name and "." not in name]


def variables_of(module: nnx.Module, kind: Any = nnx.Variable) -> dict[str, Any]:
    """The module's own Variables of that kind, without those of its parts."""
    found: dict[str, Any] = {}
    _find_variables(module, "", kind, found)
    return found


def _find_variables(node: Any, name: str, kind: Any, found: dict[str, Any]) -> None:
    dot = f"{name}." if name else ""
    for key, value in _entries(node):
        if isinstance(value, kind):
            found[f"{dot}{key}"] = value
        elif not isinstance(value, (nnx.Module, nnx.Variable)):
            _find_variables(value, f"{dot}{key}", kind, found)


def own_parameters(module: nnx.Module) -> dict[str, Any]:
    """The module's own nnx.Param's by name."""
    return variables_of(module, nnx.Param)


def has_no_forward(module: nnx.Module) -> bool:
    """Whether a module can't be called: it only holds others."""
    return not callable(module)


def is_training(model: nnx.Module) -> bool:
    """False where every module that has a mode (dropout, normalisation) is switched to inference."""
    modes = [
        not value
        for _, module in walk(model)
        for flag in ("deterministic", "use_running_average")
        if isinstance(value := getattr(module, flag, None), bool)
    ]
    return any(modes) if modes else True


def why_silent(modules: dict[str, Any], name: str, silent: Collection[str] = ()) -> str | None:
    """What can be told of a module that never fired."""
    module = modules[name]
    if has_no_forward(module):
        return f"{type(module).__name__} only holds modules and has no __call__ of its own"
    return None
