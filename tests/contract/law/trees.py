"""Nested values of a network: how they lie in arguments and results, and every place in them.

Written apart from hookline's own, since hookline is what is tested.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

Path = tuple[tuple[str, Any], ...]
"""From the root to a leaf: the kind of each container on the way, and the key in it."""


def mapped(fn: Callable[[Path, Any], Any], tree: Any, path: Path = ()) -> Any:
    """The same structure, with `fn(path, leaf)` at every leaf.

    >>> mapped(lambda path, leaf: leaf + 1, ({"a": 1}, [2]))
    ({'a': 2}, [3])
    """
    kind = type(tree).__name__

    def inner(key: Any, child: Any) -> Any:
        return mapped(fn, child, (*path, (kind, key)))

    if isinstance(tree, dict):
        return {key: inner(key, child) for key, child in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(inner(key, child) for key, child in zip(tree._fields, tree, strict=True)))
    if isinstance(tree, (tuple, list)):
        return type(tree)(inner(key, child) for key, child in enumerate(tree))
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = [field.name for field in dataclasses.fields(tree)]
        return type(tree)(**{name: inner(name, getattr(tree, name)) for name in fields})
    return fn(path, tree)


def places(tree: Any) -> Iterator[tuple[Path, Any]]:
    """Every leaf, with the way to it.

    >>> [leaf for _, leaf in places(({"a": 1}, [2, None]))]
    [1, 2, None]
    """
    found: list[tuple[Path, Any]] = []
    mapped(lambda path, leaf: found.append((path, leaf)), tree)
    return iter(found)


def said(path: Path) -> str:
    """A way in words: `[0]['a']`."""
    return "".join(f"[{key!r}]" for _, key in path)
