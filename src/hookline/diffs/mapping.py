"""Mapping: a user's map from A's names to B's, with layouts: of a dict, a function or a file that people edit."""

from __future__ import annotations

import json
import os
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from hookline.diffs.naming import parent
from hookline.diffs.rules import Rule, arranged, as_layout
from hookline.errors import InvalidArgument, RunError, near, printable

HEAD = """\
# A map of names: on the left a place of A, on the right the same place of B. Edit it, and give it to a diff.
# "*" stands for one part of a name and "**" for several; the first "*" of one side is the first of the other:
#     "encoder.*.attn" = "blocks.*.attention"
# Where B's arrays have their axes in another order, say how: "transposed", "channels_last" or axes:
#     "conv1" = {to = "conv1", layout = "channels_last"}
# A place that B does not have:
#     "dropout" = false
"""


class Map:
    """Which place of B is which place of A, as a user says; a rule for one name comes before one for many."""

    def __init__(
        self,
        rules: Sequence[Rule] = (),
        function: Callable[[str], str | None] | None = None,
        remarks: Sequence[str] = (),
    ) -> None:
        self.rules, self.function = tuple(rules), function
        self.remarks = tuple(remarks)
        """What a reader of the file should know besides."""
        self._exact = {rule.a: rule for rule in self.rules if not rule.is_glob}
        self._globs = [rule for rule in self.rules if rule.is_glob]
        said = Counter(rule.b for rule in self._exact.values() if rule.b is not None)
        if twice := [name for name, count in said.items() if count > 1]:
            both = [rule.a for rule in self._exact.values() if rule.b == twice[0]]
            raise InvalidArgument(f"expected each place of B once in a map, got {twice[0]!r} for {both}.")

    @property
    def has_layouts(self) -> bool:
        """Whether it says of any place that B's axes are in another order."""
        return any(rule.layout is not None for rule in self.rules)

    def other(self, name: str) -> str | None:
        """B's name for a name of A, None where the map says nothing of it.

        What is said of a place holds for what lies below it, too, unless there is a rule for that.
        """
        above, rest = name, ""
        while True:
            rule = self._about(above)
            found = rule.other(above) if rule is not None else self._asked(above)
            if rule is not None or found is not None:
                return None if found is None else (found + rest).removeprefix(".")
            if not above:
                return None
            above = parent(above) or ""
            rest = f".{name[len(above) :].removeprefix('.')}"

    def names(self, a: Sequence[str], b: Sequence[str]) -> dict[str, str]:
        """B's name for each name of A that the map tells, where both exist; InvalidArgument where none do.

        >>> Map([Rule("encoder.*", "blocks.*")]).names(["encoder.0.fc", "head"], ["blocks.0.fc", "out"])
        {'encoder.0.fc': 'blocks.0.fc'}
        """
        free, found = set(b), dict[str, str]()
        for name in sorted(a, key=lambda name: name not in self._exact):
            other = self.other(name)
            if other is not None and other in free:
                free.discard(other)
                found[name] = other
        if not found and not self.alone(a):
            raise InvalidArgument(self._names_nothing(a, b))
        return {name: found[name] for name in a if name in found}

    def alone(self, a: Sequence[str]) -> set[str]:
        """The names of A that B does not have, as the map says, and what lies below them."""
        return {name for name in a if (rule := self._nearest(name)) is not None and rule.b is None}

    def unused(self, a: Sequence[str], b: Sequence[str]) -> list[str]:
        """The left sides of rules that mean no name of A, or whose names B does not have."""
        known, used = set(b), set[Rule]()
        for name in a:
            rule = self._nearest(name)
            if rule is not None and (rule.b is None or self.other(name) in known):
                used.add(rule)
        return [rule.a for rule in self.rules if rule not in used]

    def layout(self, name: str) -> str | tuple[int, ...] | None:
        """How B's array of a place becomes A's, as the map says of A's name."""
        rule = self._about(name)
        return None if rule is None else rule.layout

    def to_a(self, site: str, kind: str, array: NDArray[Any]) -> NDArray[Any]:
        """B's array of a place, in A's layout; `site` is A's name, of a weight and its gradient the weight's."""
        return arranged(array, self.layout(site))

    def _about(self, name: str) -> Rule | None:
        """The rule for this very name of A."""
        return self._exact.get(name) or next((rule for rule in self._globs if rule.means(name)), None)

    def _nearest(self, name: str) -> Rule | None:
        """The rule for a name of A, or for the nearest place above it that has one."""
        above: str | None = name
        while above is not None:
            if (rule := self._about(above)) is not None:
                return rule
            above = parent(above)
        return None

    def _asked(self, name: str) -> str | None:
        return None if self.function is None else self.function(name)

    def _names_nothing(self, a: Sequence[str], b: Sequence[str]) -> str:
        begin = "the map names nothing that both sides have"
        if not self.rules:
            said = "the function gives no name that B has" if self.function else "it is empty"
            return f"{begin}: {said}. A has {_some(a)}, B has {_some(b)}."
        rule = self.rules[0]
        side, asked, known = ("B", rule.b, b) if any(rule.means(name) for name in a) else ("A", rule.a, a)
        return (
            f"{begin}. Its first rule of {len(self.rules)} is {rule.a!r} = {rule.b!r}, and {side} has no "
            f"{asked!r}.{near(asked, known)} {side} has {_some(known)}. On the left of a map are A's names, on "
            "the right B's."
        )


def as_map(given: Any) -> Map | None:
    """The map that is meant: a dict, a function from name to name, a path of a TOML or JSON file, or a Map."""
    if given is None or isinstance(given, Map):
        return given
    if isinstance(given, Mapping):
        return Map([_rule(name, value) for name, value in _flat(given)])
    if isinstance(given, str | os.PathLike):
        return read_map(given)
    if callable(given):
        return Map(function=given)
    raise InvalidArgument(
        "expected a map from A's names to B's: a dict, a function, the path of a TOML or JSON file, or a Map, "
        f"got a {type(given).__name__}."
    )


def read_map(path: str | os.PathLike[str]) -> Map:
    """The map of a file: TOML, or JSON where its name ends so."""
    path = Path(path)
    form = "JSON" if path.suffix == ".json" else "TOML"
    try:
        text = path.read_text(encoding="utf-8")
        given = json.loads(text) if form == "JSON" else tomllib.loads(text)
    except OSError as error:
        raise RunError(f"the map {path} can't be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise RunError(f"the map {path} is no {form}: {error}.") from error
    if not isinstance(given, dict):
        raise RunError(f"the map {path} has to be an object with names of A and B, got a {type(given).__name__}.")
    return Map([_rule(name, value) for name, value in _flat(given)])


def write_map(given: Map, path: str | os.PathLike[str]) -> Path:
    """Writes a map to a file that people edit, and returns its path: TOML, or JSON where its name ends so."""
    if given.function is not None:
        raise InvalidArgument("a map that is a function can't be written to a file: give a dict of names instead.")
    path = Path(path)
    if path.suffix == ".json":
        text = json.dumps({rule.a: _value(rule) for rule in given.rules}, indent=2, ensure_ascii=False) + "\n"
    else:
        remarks = [f"# {printable(line)}".rstrip() for remark in given.remarks for line in remark.split("\n")]
        lines = [HEAD, *map(_line, given.rules), *([""] if remarks else []), *remarks]
        text = "\n".join(lines) + "\n"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"the map {path} can't be written: {error.strerror or error}.") from error
    return path


def _flat(given: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Names with what they stand for; a dotted name without quotes is a table in a table in TOML."""
    for key, value in given.items():
        if not isinstance(key, str):
            raise InvalidArgument(f"expected names as the keys of a map, got {key!r}.")
        name = f"{above}.{key}" if above else key
        if isinstance(value, Mapping) and not ("to" in value and set(value) <= {"to", "layout"}):
            yield from _flat(value, name)
        else:
            yield name, value


def _rule(name: str, value: Any) -> Rule:
    layout = None
    if isinstance(value, Mapping):
        value, layout = value["to"], as_layout(value.get("layout"), name)
    if value is None or value is False:
        return Rule(name, None)
    if not isinstance(value, str):
        raise InvalidArgument(
            f"expected a name of B for {name!r}, or {{to = name, layout = ...}}, or false where B has no such "
            f"place, got {value!r}."
        )
    return Rule(name, value, layout)


def _value(rule: Rule) -> Any:
    """A rule's right side as JSON has it."""
    if rule.b is None:
        return False
    layout = list(rule.layout) if isinstance(rule.layout, tuple) else rule.layout
    return rule.b if layout is None else {"to": rule.b, "layout": layout}


def _line(rule: Rule) -> str:
    """A rule as TOML."""
    value = _value(rule)
    if isinstance(value, dict):
        text = f"{{to = {_quoted(value['to'])}, layout = {_quoted(value['layout'])}}}"
    else:
        text = _quoted(value)
    note = printable(" ".join(rule.note.split()))
    return f"{_quoted(rule.a)} = {text}" + (f"  # {note}" if note else "")


def _quoted(value: Any) -> str:
    """A value as TOML writes it: as JSON, which leaves one letter be that TOML does not."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
    return f"{len(names)} names: {shown}" if names else "no names"
