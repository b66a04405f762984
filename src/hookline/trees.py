"""Nested structures: taken apart and put together again with their own types.

Tuples, namedtuples, lists, dicts and other mutable mappings (Hugging Face's ModelOutput is one) and
dataclasses are branches; everything else is a leaf. What counts as a leaf of interest, a tensor of
some framework, is told by its type.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

Rebuild = Callable[[list[Any]], Any]


def parts(tree: Any) -> tuple[list[Any], list[Any], Rebuild] | None:
    """(keys, children, rebuild) of a branch; None for anything that is not one.

    >>> keys, children, rebuild = parts({"a": 1, "b": 2})
    >>> keys, rebuild([child * 10 for child in children])
    (['a', 'b'], {'a': 10, 'b': 20})
    """
    kind = type(tree)
    if kind is tuple:
        return list(range(len(tree))), list(tree), tuple
    if kind is list:
        return list(range(len(tree))), tree, list
    if kind is dict:
        keys = list(tree)
        return keys, list(tree.values()), lambda new: dict(zip(keys, new, strict=True))
    if isinstance(tree, tuple):
        # `_make` passes by a namedtuple's own __new__, which may take other arguments.
        make = kind._make if hasattr(tree, "_fields") else kind
        return list(getattr(tree, "_fields", range(len(tree)))), list(tree), make
    if isinstance(tree, list):
        return list(range(len(tree))), list(tree), lambda new: _refilled(tree, range(len(new)), new)
    if isinstance(tree, MutableMapping):
        keys = list(tree)
        return keys, [tree[key] for key in keys], lambda new: _refilled(tree, keys, new)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in dataclasses.fields(tree) if hasattr(tree, field.name)]
        return names, [getattr(tree, name) for name in names], lambda new: _refielded(tree, names, new)
    return None


def map_leaves(fn: Callable[[Any], Any], tree: Any, leaf: type | tuple[type, ...]) -> Any:
    """The same structure with `fn` applied to every leaf of type `leaf`; other leaves stay.

    A branch in which nothing changed is returned as the very object it was.

    >>> map_leaves(lambda n: n + 1, {"a": [1, "x"], "b": (2, None)}, int)
    {'a': [2, 'x'], 'b': (3, None)}
    """
    if isinstance(tree, leaf):
        return fn(tree)
    if (branch := parts(tree)) is None:
        return tree
    _, children, rebuild = branch
    new = [map_leaves(fn, child, leaf) for child in children]
    if all(a is b for a, b in zip(new, children, strict=True)):
        return tree
    return rebuild(new)


def leaves(tree: Any, leaf: type | tuple[type, ...]) -> Iterator[Any]:
    """The leaves of type `leaf`, in order.

    >>> list(leaves({"a": [1, "x"], "b": (2, None)}, int))
    [1, 2]
    """
    if isinstance(tree, leaf):
        yield tree
    elif (branch := parts(tree)) is not None:
        for child in branch[1]:
            yield from leaves(child, leaf)


class Slot:
    """The place of a leaf in a structure whose values arrive later, one by one."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


ONE = Slot(0)
"""The only slot of a structure that is a single leaf."""


def slotted(tree: Any, leaf: type | tuple[type, ...]) -> tuple[Any, int]:
    """`tree` with a numbered Slot at each leaf and None at every other one, and their number."""
    count = 0

    def place(node: Any) -> Any:
        nonlocal count
        if isinstance(node, leaf):
            count += 1
            return Slot(count - 1)
        if (branch := parts(node)) is None:
            return None
        return branch[2]([place(child) for child in branch[1]])

    return place(tree), count


def filled(template: Any, values: dict[int, Any]) -> Any:
    """A slotted template with its values put in, None where there is none.

    >>> template, n = slotted({"a": 1.5, "b": (2.5, "text")}, float)
    >>> filled(template, {0: "x"})
    {'a': 'x', 'b': (None, None)}
    """
    return map_leaves(lambda slot: values.get(slot.index), template, Slot)


def unfilled(template: Any, tree: Any) -> dict[int, Any]:
    """What stands in `tree` at the slots of `template`; ValueError where the structures differ.

    >>> template, n = slotted({"a": 1.5, "b": (2.5, "text")}, float)
    >>> unfilled(template, {"a": "x", "b": ("y", None)})
    {0: 'x', 1: 'y'}
    """
    if isinstance(template, Slot):
        return {template.index: tree}
    if (branch := parts(template)) is None:
        return {}
    other = parts(tree)
    if other is None or other[0] != branch[0]:
        came = f"entries {other[0]}" if other is not None else f"a {type(tree).__name__}"
        raise ValueError(f"a {type(template).__name__} with entries {branch[0]} is wanted, {came} came")
    values: dict[int, Any] = {}
    for part, child in zip(branch[1], other[1], strict=True):
        values |= unfilled(part, child)
    return values


def zip_leaves(fn: Callable[[Any, Any], Any], new: Any, old: Any, leaf: type) -> Any:
    """`new` with `fn(new, old)` at its leaves; both must have the same structure.

    >>> zip_leaves(lambda a, b: a + b, (1, [2]), (10, [20]), int)
    (11, [22])
    """
    template, _ = slotted(old, leaf)
    values = unfilled(template, old)
    others = unfilled(template, new)
    fresh = {index: fn(others[index], value) for index, value in values.items()}
    numbers = iter(range(len(fresh)))
    return map_leaves(lambda _: fresh[next(numbers)], new, leaf)


def mismatch(new: Any, old: Any, leaf: type, alike: Callable[[Any, Any], str]) -> str:
    """Why `new` can't stand in for `old`; empty if it can. `alike` compares two leaves.

    >>> mismatch((1, [2]), (5, [6]), int, lambda new, old: "")
    ''
    >>> mismatch((1, 2), (5, [6]), int, lambda new, old: "")
    'a list is wanted at [1], a int came'
    """
    return _mismatch(new, old, leaf, alike, "")


def _mismatch(new: Any, old: Any, leaf: type, alike: Callable[[Any, Any], str], path: str) -> str:
    at = f" at {path}" if path else ""
    if isinstance(old, leaf):
        if not isinstance(new, leaf):
            return f"a {leaf.__name__} is wanted{at}, a {type(new).__name__} came"
        reason = alike(new, old)
        return f"{reason}{at}" if reason else ""
    if (branch := parts(old)) is None:
        # Plain values (numbers, text, None) may change freely; a tensor can't take their place.
        return f"no {leaf.__name__} is wanted{at}" if isinstance(new, leaf) else ""
    other = parts(new)
    if other is None or type(new) is not type(old):
        return f"a {type(old).__name__} is wanted{at}, a {type(new).__name__} came"
    if other[0] != branch[0]:
        return f"the entries {branch[0]} are wanted{at}, {other[0]} came"
    for key, a, b in zip(branch[0], other[1], branch[1], strict=True):
        if reason := _mismatch(a, b, leaf, alike, f"{path}[{key!r}]"):
            return reason
    return ""


def _refilled(tree: Any, keys: Any, new: list[Any]) -> Any:
    # A shallow copy keeps the type and whatever else the object carries (a default factory, the
    # attributes of a ModelOutput); constructors differ too much to be called.
    fresh = copy.copy(tree)
    for key, value in zip(keys, new, strict=True):
        fresh[key] = value
    return fresh


def _refielded(tree: Any, names: list[str], new: list[Any]) -> Any:
    fresh = copy.copy(tree)
    for name, value in zip(names, new, strict=True):
        object.__setattr__(fresh, name, value)  # frozen dataclasses too
    return fresh
