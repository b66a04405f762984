"""Select: from a `where` to the modules of a model that it means.

`where` may be None (the model itself), a dotted name, a glob (`*` stays within one part of a name,
`**` crosses dots), a compiled regex, a module type or tuple of types, a module object, a predicate
`(name, module) -> bool`, a list of any of these, or an expression of `where(...)` with `&`, `|`, `~`.

Upstream: the names and modules that a backend lists. Downstream: register, record, edit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import Any, NamedTuple

from hookline.errors import InvalidArgument, NoSuchSite
from hookline.globs import WILD, matcher


class Target(NamedTuple):
    """A module of the model, with the name it was found by and the other names it goes by."""

    name: str
    module: Any
    aliases: tuple[str, ...] = ()


_quick_target: Callable[[tuple[str, Any, tuple[str, ...]]], Target] = partial(tuple.__new__, Target)
"""Target(*these), without a frame of Python: there is one for every module."""


class ModuleTree:
    """All modules of a model in order of definition, each once, with all its names."""

    def __init__(self, named: Iterable[tuple[str, Any]]) -> None:
        self.modules: dict[str, Any] = dict(named)
        self.has_single_names = len(set(map(id, self.modules.values()))) == len(self.modules)
        """Whether no module has several, as in most models."""

    @cached_property
    def names_of(self) -> dict[int, list[str]]:
        """All names of each module, by its id."""
        found: dict[int, list[str]] = {}
        for name, module in self.modules.items():
            found.setdefault(id(module), []).append(name)
        return found

    def target(self, name: str) -> Target:
        """The target of that name; its other names are the aliases."""
        module = self.modules[name]
        if self.has_single_names:
            return Target(name, module)
        names = self.names_of[id(module)]
        if len(names) == 1:
            return Target(name, module)
        return Target(name, module, tuple(other for other in names if other != name))

    @property
    def known(self) -> list[str]:
        """Every name that a `where` may have."""
        return list(self.modules)

    @property
    def root(self) -> Any:
        """The model itself."""
        return self.modules[""]

    def named(self, name: str) -> set[str]:
        """What the plain name `name` means."""
        if name not in self.modules:
            raise NoSuchSite(name, self.known)
        return {name}

    def matching(self, meant: Callable[[str, Any], bool]) -> set[str]:
        """The names of what `meant(name, module)` is true for."""
        return {name for name, module in self.modules.items() if meant(name, module)}

    def names_of_object(self, thing: Any) -> set[str]:
        """The names of an object of this tree; empty for any other."""
        return set(self.names_of.get(id(thing), ()))


class Where:
    """A condition on modules; made by `where`, combined with `&`, `|` and `~`."""

    def __init__(self, names: Callable[[ModuleTree], set[str]], text: str) -> None:
        self.names = names
        self.text = text

    def __and__(self, other: Any) -> Where:
        right = where(other)
        return Where(lambda tree: self.names(tree) & right.names(tree), f"({self.text} & {right.text})")

    def __or__(self, other: Any) -> Where:
        right = where(other)
        return Where(lambda tree: self.names(tree) | right.names(tree), f"({self.text} | {right.text})")

    def __invert__(self) -> Where:
        return Where(lambda tree: set(tree.modules) - self.names(tree), f"~{self.text}")

    __rand__, __ror__ = __and__, __or__

    def __repr__(self) -> str:
        return self.text


def where(*conditions: Any) -> Where:
    """A condition that can be combined; several conditions mean any of them.

    >>> where("encoder.**") & ~where("**.dropout")
    (where('encoder.**') & ~where('**.dropout'))
    """
    if len(conditions) != 1:
        return where(list(conditions))
    (condition,) = conditions
    if isinstance(condition, Where):
        return condition
    text = getattr(condition, "__qualname__", None) or repr(condition)
    return Where(_condition(condition), f"where({text})")


def select(tree: ModuleTree, condition: Any) -> list[Target]:
    """The targets that `condition` means, in order of definition; never an empty list.

    >>> tree = ModuleTree([("", "model"), ("a", "conv"), ("a.b", "relu"), ("c", "linear")])
    >>> [target.name for target in select(tree, "**")], [target.name for target in select(tree, "?")]
    (['', 'a', 'a.b', 'c'], ['a', 'c'])
    """
    if condition is None:
        return [tree.target("")]
    if isinstance(condition, str) and condition == "**":
        if tree.has_single_names:
            return list(map(_quick_target, [(name, module, ()) for name, module in tree.modules.items()]))
        found = [(first, tree.modules[first], tuple(others)) for first, *others in tree.names_of.values()]
        return list(map(_quick_target, found))
    chosen = where(condition).names(tree)
    if tree.has_single_names and chosen:
        return [Target(name, module) for name, module in tree.modules.items() if name in chosen]
    targets: dict[int, Target] = {}
    for name, module in tree.modules.items():
        if name in chosen and (number := id(module)) not in targets:
            alone = len(tree.names_of[number]) == 1
            targets[number] = _quick_target((name, module, ())) if alone else tree.target(name)
    if not targets:
        raise NoSuchSite(condition, tree.known)
    return list(targets.values())


def _condition(condition: Any) -> Callable[[ModuleTree], set[str]]:
    if isinstance(condition, str):
        return _globbed(condition) if WILD.search(condition) else lambda tree: tree.named(condition)
    if isinstance(condition, re.Pattern):
        return lambda tree: tree.matching(lambda name, _: bool(condition.search(name)))
    if isinstance(condition, type) or (
        isinstance(condition, tuple) and condition and all(isinstance(c, type) for c in condition)
    ):
        return lambda tree: tree.matching(lambda _, module: isinstance(module, condition))
    if isinstance(condition, (list, tuple, set, frozenset)):
        return _any_of([where(part) for part in condition])
    return lambda tree: _object_or_predicate(tree, condition)


def _globbed(pattern: str) -> Callable[[ModuleTree], set[str]]:
    matches = matcher(pattern)
    return lambda tree: tree.matching(lambda name, _: matches(name))


def _any_of(conditions: list[Where]) -> Callable[[ModuleTree], set[str]]:
    def names(tree: ModuleTree) -> set[str]:
        found: set[str] = set()
        for condition in conditions:
            some = condition.names(tree)
            if not some:  # one mistyped entry of a list must not hide behind the others
                raise NoSuchSite(condition, tree.known)
            found |= some
        return found

    return names


def _object_or_predicate(tree: ModuleTree, condition: Any) -> set[str]:
    # Modules are callable as well, so an object of this very tree is looked for first.
    if own := tree.names_of_object(condition):
        return own
    if callable(condition) and not _is_module_like(tree, condition):
        return {name for name, module in tree.modules.items() if condition(name, module)}
    if callable(condition):
        raise NoSuchSite(
            type(condition).__name__, tree.known, "The module object given is not part of this model."
        )
    raise InvalidArgument(
        f"where={condition!r} can't select modules. Give a name, a glob, a compiled regex, a module "
        "type, a module object, a predicate (name, module) -> bool, or a list of these."
    )


def _is_module_like(tree: ModuleTree, thing: Any) -> bool:
    """Whether `thing` shares a framework base class with the modules of the tree."""
    bases = {base for base in type(tree.root).__mro__ if base is not object}
    return any(base in bases for base in type(thing).__mro__)
