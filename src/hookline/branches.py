"""Branches: one level of a nested structure, read and put together again; trees.py goes through all levels."""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict
from collections.abc import Callable, MutableMapping
from types import FunctionType
from typing import Any

Rebuild = Callable[[list[Any]], Any]
Parts = tuple[list[Any], list[Any], Rebuild]

DEEPEST = 200
"""How many levels a structure has; what lies deeper is a leaf. A list of nodes that are linked has no end."""

SIMPLE = (type(None), bool, int, float, complex, str, bytes, type)
"""What of an object's attributes a template may keep: nothing that leads to a tensor."""


def parts(tree: Any) -> Parts | None:
    """(keys, children, rebuild) of a branch; None for anything that is not one, or that can't be read.

    `rebuild` of a user's type may raise, or make something else; see `rebuilt`.

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
    try:
        return _parts_of_own_kind(tree, kind)
    except Exception:  # the code of a user's type, which need not be made for being looked through
        return None


def _parts_of_own_kind(tree: Any, kind: Any) -> Parts | None:
    if isinstance(tree, tuple):
        return list(getattr(tree, "_fields", range(len(tree)))), list(tree), lambda new: _made_tuple(kind, new)
    if isinstance(tree, list):
        return list(range(len(tree))), list(tree), lambda new: _refilled(tree, list(range(len(new))), new)
    if isinstance(tree, MutableMapping):
        keys = list(tree)
        return keys, [tree[key] for key in keys], lambda new: _refilled(tree, keys, new)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in dataclasses.fields(tree) if hasattr(tree, field.name)]
        return names, [getattr(tree, name) for name in names], lambda new: _refielded(copy.copy(tree), names, new)
    return None


def inside(tree: Any, above: tuple[int, ...]) -> Parts | None:
    """`parts` of a branch that lies below the objects with these identities: None where it is one of them."""
    if above and (len(above) > DEEPEST or id(tree) in above):
        return None
    return parts(tree)


def rebuilt(tree: Any, branch: Parts, new: list[Any]) -> tuple[bool, Any]:
    """Whether a structure like `tree` can be made with other children, and the structure."""
    if type(tree) in (tuple, list, dict):
        return True, branch[2](new)
    try:
        fresh = branch[2](new)
        if isinstance(tree, tuple) and (attributes := getattr(tree, "__dict__", None)):
            fresh.__dict__.update(attributes)
        return _holds(fresh, type(tree), new), fresh
    except Exception:  # a type that checks what it is given, or can't be copied
        return False, None


def as_plain(tree: Any, keys: list[Any], new: list[Any]) -> Any:
    """These children in the plain type that is nearest to the type of `tree`."""
    if isinstance(tree, (tuple, list)):
        return tuple(new) if isinstance(tree, tuple) else list(new)
    return dict(zip(keys, new, strict=True))


class Branch:
    """A branch of a user's type without the object itself: what kind it is, and what lies below.

    >>> from collections import OrderedDict
    >>> Branch(OrderedDict(a=1.5), ["a"], [None]).made(["other"])
    OrderedDict([('a', 'other')])
    """

    __slots__ = ("_attributes", "_plain", "children", "keys", "kind")

    def __init__(self, tree: Any, keys: list[Any], children: list[Any]) -> None:
        self.kind: Any = type(tree)
        self.keys, self.children = keys, children
        self._plain: Any = () if isinstance(tree, tuple) else [] if isinstance(tree, list) else {}
        try:
            found = vars(tree) if hasattr(tree, "__dict__") else {}
            self._attributes = {name: value for name, value in found.items() if type(value) in SIMPLE}
            if isinstance(tree, UserDict):
                self._attributes["data"] = {}
        except Exception:
            self._attributes = {}

    def made(self, new: list[Any]) -> Any:
        """An object of this kind with these children; a plain tuple, list or dict where there can't be one."""
        try:
            fresh = self._filled(new)
            if _holds(fresh, self.kind, new):
                return fresh
        except Exception:
            pass
        return as_plain(self._plain, self.keys, new)

    def _filled(self, new: list[Any]) -> Any:
        if isinstance(self._plain, tuple):
            return self._with_attributes(_made_tuple(self.kind, new))
        if isinstance(self._plain, list):
            fresh = self._with_attributes(self.kind.__new__(self.kind))
            list.extend(fresh, new)
            return fresh
        if not issubclass(self.kind, MutableMapping):
            return _refielded(self._with_attributes(object.__new__(self.kind)), self.keys, new)
        fresh = self._with_attributes(self.kind.__new__(self.kind))
        for key, value in zip(self.keys, new, strict=True):
            fresh[key] = value
        return fresh

    def _with_attributes(self, fresh: Any) -> Any:
        for name, value in self._attributes.items():
            object.__setattr__(fresh, name, dict(value) if isinstance(value, dict) else value)
        return fresh


def _holds(fresh: Any, kind: type, children: list[Any]) -> bool:
    """Whether `fresh` is of this kind and has these very children."""
    found = parts(fresh)
    if type(fresh) is not kind or found is None or len(found[1]) != len(children):
        return False
    return all(a is b for a, b in zip(found[1], children, strict=True))


def _made_tuple(kind: Any, new: list[Any]) -> Any:
    # A constructor that is written in Python may take other arguments, so it is passed by.
    if hasattr(kind, "_fields"):
        return kind._make(new)
    return tuple.__new__(kind, new) if isinstance(kind.__new__, FunctionType) else kind(new)


def _refilled(tree: Any, keys: list[Any], new: list[Any]) -> Any:
    # A shallow copy keeps the type and whatever else the object carries (a default factory, the
    # attributes of a ModelOutput); constructors differ too much to be called.
    fresh = copy.copy(tree)
    if isinstance(tree, (list, dict)):
        for key, value in zip(keys, new, strict=True):
            fresh[key] = value
        return fresh
    _unshare(fresh)
    for key, value in zip(keys, new, strict=True):
        before = tree[key]
        if tree[key] is not before:
            raise TypeError(f"a {type(tree).__name__} makes its entries anew whenever it is read")
        fresh[key] = value
        if value is not before and tree[key] is not before:
            tree[key] = before
            raise TypeError(f"a copy of a {type(tree).__name__} shares its entries with it")
    return fresh


def _unshare(fresh: Any) -> None:
    """Gives a copied mapping entries of its own: a shallow copy has the very dict of the original."""
    for name, value in list(getattr(fresh, "__dict__", {}).items()):
        if isinstance(value, (dict, list)):
            object.__setattr__(fresh, name, copy.copy(value))


def _refielded(fresh: Any, names: list[str], new: list[Any]) -> Any:
    for name, value in zip(names, new, strict=True):
        object.__setattr__(fresh, name, value)  # frozen dataclasses too
    return fresh
