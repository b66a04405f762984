"""Nested structures: taken apart and put together again with their own types.

Tuples, namedtuples, lists, dicts and other mutable mappings (Hugging Face's ModelOutput is one) and
dataclasses are branches; everything else is a leaf. What counts as a leaf of interest, a tensor of
some framework, is told by its type.

Users' types may check what is put into them, refuse to be copied, or lead back to themselves. None of
that is a failure here: what can't be read is a leaf, and what can't be put together again is shown as
a plain tuple, list or dict, or handed on as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hookline.branches import Branch, as_plain, inside, rebuilt
from hookline.branches import parts as parts

Leaf = type | tuple[type, ...]


def map_leaves(fn: Callable[[Any], Any], tree: Any, leaf: Leaf, *, or_plain: bool = False) -> Any:
    """The same structure with `fn` applied to every leaf of type `leaf`; other leaves stay.

    A branch in which nothing changed is returned as the very object it was, and so is one whose type
    can't be put together again: a model may go on with it. With `or_plain`, that becomes a plain tuple,
    list or dict, to look at.

    >>> map_leaves(lambda n: n + 1, {"a": [1, "x"], "b": (2, None)}, int)
    {'a': [2, 'x'], 'b': (3, None)}
    >>> class Fixed(list):
    ...     def __setitem__(self, at, value): raise TypeError("fixed")
    >>> [map_leaves(lambda n: n + 1, (1, Fixed([1])), int, or_plain=plain) for plain in (False, True)]
    [(2, [1]), (2, [2])]
    """
    if isinstance(tree, leaf):
        return fn(tree)
    return _mapped(fn, tree, leaf, or_plain, (), set())


def _mapped(
    fn: Callable[[Any], Any], tree: Any, leaf: Leaf, or_plain: bool, above: tuple[int, ...], endless: set[int]
) -> Any:
    if isinstance(tree, leaf):
        return fn(tree)
    if (branch := inside(tree, above)) is None:
        if id(tree) in above:
            endless.add(id(tree))
        return tree
    keys, children, _ = branch
    below = (*above, id(tree))
    new = [_mapped(fn, child, leaf, or_plain, below, endless) for child in children]
    if all(a is b for a, b in zip(new, children, strict=True)):
        return tree
    if id(tree) in endless:  # what leads back to it would lead to the old one
        return tree
    done, fresh = rebuilt(tree, branch, new)
    if done:
        return fresh
    return as_plain(tree, keys, new) if or_plain else tree


def leaves(tree: Any, leaf: Leaf) -> Iterator[Any]:
    """The leaves of type `leaf`, in order.

    >>> list(leaves({"a": [1, "x"], "b": (2, None)}, int))
    [1, 2]
    """
    return _leaves(tree, leaf, ())


def _leaves(tree: Any, leaf: Leaf, above: tuple[int, ...]) -> Iterator[Any]:
    if isinstance(tree, leaf):
        yield tree
    elif (branch := inside(tree, above)) is not None:
        above = (*above, id(tree))
        for child in branch[1]:
            yield from _leaves(child, leaf, above)


class Slot:
    """The place of a leaf in a structure whose values arrive later, one by one."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


ONE = Slot(0)
"""The only slot of a structure that is a single leaf."""


def slotted(tree: Any, leaf: Leaf) -> tuple[Any, int]:
    """A template of `tree` and the number of its leaves: a numbered Slot at each, None at everything else.

    Plain tuples, lists and dicts stand for themselves, other branches are described by a `Branch`: users'
    types are not asked to hold slots. Nothing of `tree` is held by it.
    """
    count = 0

    def place(node: Any, above: tuple[int, ...]) -> Any:
        nonlocal count
        if isinstance(node, leaf):
            count += 1
            return Slot(count - 1)
        if (branch := inside(node, above)) is None:
            return None
        before = count
        above = (*above, id(node))
        children = [place(child, above) for child in branch[1]]
        if type(node) in (tuple, list, dict):
            return branch[2](children)
        return Branch(node, branch[0], children) if count > before else None

    return place(tree, ()), count


def filled(template: Any, values: dict[int, Any]) -> Any:
    """A slotted template with its values put in, None where there is none.

    >>> template, n = slotted({"a": 1.5, "b": (2.5, "text")}, float)
    >>> filled(template, {0: "x"})
    {'a': 'x', 'b': (None, None)}
    """
    if isinstance(template, Slot):
        return values.get(template.index)
    if isinstance(template, Branch):
        return template.made([filled(child, values) for child in template.children])
    if (branch := parts(template)) is None:
        return template
    return branch[2]([filled(child, values) for child in branch[1]])


def unfilled(template: Any, tree: Any) -> dict[int, Any]:
    """What stands in `tree` at the slots of `template`; ValueError where the structures differ.

    >>> template, n = slotted({"a": 1.5, "b": (2.5, "text")}, float)
    >>> unfilled(template, {"a": "x", "b": ("y", None)})
    {0: 'x', 1: 'y'}
    """
    if isinstance(template, Slot):
        return {template.index: tree}
    if isinstance(template, Branch):
        kind, keys, children = template.kind.__name__, template.keys, template.children
    elif (branch := parts(template)) is not None:
        kind, keys, children = type(template).__name__, branch[0], branch[1]
    else:
        return {}
    other = parts(tree)
    if other is None or other[0] != keys:
        came = f"entries {other[0]}" if other is not None else f"a {type(tree).__name__}"
        raise ValueError(f"expected a {kind} with entries {keys}, got {came}")
    values: dict[int, Any] = {}
    for part, child in zip(children, other[1], strict=True):
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
    'expected list at [1], got int'
    """
    return _mismatch(new, old, leaf, alike, "", ())


def _mismatch(
    new: Any, old: Any, leaf: type, alike: Callable[[Any, Any], str], path: str, above: tuple[int, ...]
) -> str:
    at = f" at {path}" if path else ""
    if isinstance(old, leaf):
        if not isinstance(new, leaf):
            return f"expected {leaf.__name__}{at}, got {type(new).__name__}"
        reason = alike(new, old)
        return f"{reason}{at}" if reason else ""
    if new is old:
        return ""
    if (branch := inside(old, above)) is None:
        # Plain values (numbers, text, None) may change freely; a tensor can't take their place.
        return f"expected no {leaf.__name__}{at}" if isinstance(new, leaf) else ""
    other = parts(new)
    if other is None or type(new) is not type(old):
        return f"expected {type(old).__name__}{at}, got {type(new).__name__}"
    if other[0] != branch[0]:
        return f"expected the entries {branch[0]}{at}, got {other[0]}"
    above = (*above, id(old))
    for key, a, b in zip(branch[0], other[1], branch[1], strict=True):
        if reason := _mismatch(a, b, leaf, alike, f"{path}[{key!r}]", above):
            return reason
    return ""
