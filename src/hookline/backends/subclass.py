"""Subclass: a class that one object, or a few, have for a while, and that nobody can tell from their own.

Python looks for `__call__` on the class, and compilers look whether a class has changed: so where hooks are not
enough, a module with taps gets a class that derives from its own and differs in what it has to. A copy or a pickle
is of the own class, and loads where hookline is not installed.
"""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from typing import Any

_BASE = "__hookline_base__"


def subclass(base: type, members: Mapping[str, Any], kind: Any = type, **options: Any) -> Any:
    """A class derived from `base`, with its name and these members; `kind` is its metaclass.

    >>> class Net: pass
    >>> loud = subclass(Net, {"__call__": lambda self: "loud"})
    >>> net = loud(); net(), loud.__name__, base_of(loud) is Net
    ('loud', 'Net', True)
    >>> import copy; type(copy.copy(net)) is Net
    True
    """
    own = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__reduce_ex__": _reduce_as_base,
        _BASE: base,
    }
    return kind(base.__name__, (base,), {**own, **members}, **options)


def base_of(kind: type) -> type:
    """The class that `subclass` made this one of; any other class itself."""
    base: type = vars(kind).get(_BASE, kind)
    return base


def is_made(kind: type) -> bool:
    """Whether `subclass` made this class."""
    return _BASE in vars(kind)


def _reduce_as_base(self: Any, protocol: Any) -> Any:
    kind = type(self)
    base: Any = base_of(kind)
    made = base.__reduce_ex__(self, protocol)
    if not isinstance(made, tuple) or not any(part is kind for part in made[1]):
        return made
    maker, given, *rest = made
    if maker is copyreg.__newobj__:  # type: ignore[attr-defined]
        if base.__new__ is object.__new__:
            return copyreg._reconstructor, (base, object, None), *rest  # type: ignore[attr-defined]
        maker = base.__new__  # pickle itself makes sure that __newobj__ gets the object's own class
    return maker, tuple(base if part is kind else part for part in given), *rest
