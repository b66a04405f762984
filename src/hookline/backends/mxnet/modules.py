"""Modules: the tree of a Gluon model, who holds a block, and why one may stay silent."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from mxnet import gluon

from hookline.backends.mxnet import compat
from hookline.backends.nouns import Model, Module

_parents: WeakKeyDictionary[Any, WeakSet[Any]] = WeakKeyDictionary()
"""The blocks that hold a block, as far as they were seen."""


def walk(model: Model) -> Iterator[tuple[str, Any]]:
    """(name, block) for every block under every name, parents first.

    Holders of the model itself are looked for too: hybridized, one of them would never call it.
    """
    _find_holders(model)
    yield from _walk(model, "", ())


def _walk(block: Module, name: str, above: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    yield name, block
    if id(block) in above:
        return
    dot = f"{name}." if name else ""
    for own, child in compat.children(block).items():
        _parents.setdefault(child, WeakSet()).add(block)
        if id(child) not in above:
            yield from _walk(child, dot + own, (*above, id(block)))


def ancestors(block: Module) -> list[Any]:
    """Every block that holds this one, directly or not."""
    found: dict[int, Any] = {}
    stack = [block]
    while stack:
        below = stack.pop()
        for parent in list(_parents.get(below, ())):
            # What was seen once may have been taken apart since.
            if id(parent) not in found and any(child is below for child in compat.children(parent).values()):
                found[id(parent)] = parent
                stack.append(parent)
    return [parent for parent in found.values() if parent is not block]


def below(block: Module) -> Iterator[Any]:
    """Every block in this one."""
    return (found for name, found in _walk(block, "", ()) if name)


def _find_holders(block: Module) -> None:
    """Notes the blocks that hold this one. Gluon keeps no way up, so the collector is asked.

    That takes milliseconds, and is left out where `hybridize` was never called: then no holder can be compiled.
    """
    seen = {id(block)}
    stack = [block]
    while stack:
        below = stack.pop()
        if not (compat.is_hybrid(below) and compat.hybridizing(below)):
            continue
        for holder in _holders(below):
            _parents.setdefault(below, WeakSet()).add(holder)
            if id(holder) not in seen:
                seen.add(id(holder))
                stack.append(holder)


def _holders(block: Module) -> list[Any]:
    dicts = [thing for thing in gc.get_referrers(block) if isinstance(thing, dict)]
    if not dicts:
        return []
    keys = {id(found) for found in dicts}
    # A block's children are in a dict of its __dict__; attributes that are blocks are in the __dict__ itself.
    owners = [thing for found in dicts for thing in gc.get_referrers(found)]
    outer = [thing for found in owners if isinstance(found, dict) for thing in gc.get_referrers(found)]
    return [
        thing
        for thing in {id(thing): thing for thing in (*owners, *outer)}.values()
        if isinstance(thing, gluon.Block) and id(compat.children(thing)) in keys
    ]


def has_forward(module: Module) -> bool:
    """Whether the module can be called; one that only holds others can't."""
    kind: Any = type(module)
    if issubclass(kind, gluon.HybridBlock) and kind.forward is gluon.HybridBlock.forward:
        return bool(kind.hybrid_forward is not gluon.HybridBlock.hybrid_forward)
    return bool(kind.forward is not gluon.Block.forward)


def why_silent(modules: dict[str, Any], name: str, silent: Collection[str] = ()) -> str | None:
    """What the block itself tells of why it was never called."""
    block = modules[name]
    if not has_forward(block):
        return f"{type(block).__name__} only holds blocks and has no forward of its own"
    return None
