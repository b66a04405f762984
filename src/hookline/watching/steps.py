"""Steps: gathers what is reduced during one step and turns it into rows when the step ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hookline.lines import Reduced, Stats, collect
from hookline.watching.table import Row


class Key(NamedTuple):
    """What one row of a step is about."""

    site: str
    kind: str
    call: int
    mode: str


class Gathered:
    """The reductions of the step under way. Parts with one key, of micro-batches or of several
    tensors of one output, are merged to what one pass over all of them would give."""

    def __init__(self) -> None:
        self._reduced: dict[Key, list[Reduced]] = {}
        self._numbers: dict[tuple[Key, str], Any] = {}

    def __bool__(self) -> bool:
        return bool(self._reduced)

    def add(self, key: Key, reduced: Reduced) -> None:
        self._reduced.setdefault(key, []).append(reduced)

    def add_number(self, key: Key, name: str, number: Any) -> None:
        """One more column of a row; a number or a scalar tensor, read when the step ends."""
        self._numbers[key, name] = number

    def rows(self, step: int, rank: int, derived: dict[str, Callable[[Stats], float]]) -> list[Row]:
        """The rows of the step, after one transfer for all of them; nothing is gathered any more."""
        reduced, self._reduced = self._reduced, {}
        numbers, self._numbers = self._numbers, {}
        stats = iter(collect([part for parts in reduced.values() for part in parts]))
        rows: dict[Key, Row] = {}
        for key, parts in reduced.items():
            merged = next(stats)
            for _ in parts[1:]:
                merged = merged.merge(next(stats))
            rows[key] = {
                "site": key.site,
                "kind": key.kind,
                "step": step,
                "call": key.call,
                "rank": rank,
                "mode": key.mode,
                **merged.row(),
                **{name: function(merged) for name, function in derived.items()},
            }
        for (key, name), number in numbers.items():
            rows[key][name] = float(number)
        for key, row in rows.items():
            weight = rows.get(key._replace(kind="param"))
            if key.kind == "update" and weight is not None:
                row["ratio"] = row["l2"] / weight["l2"] if weight["l2"] else float("nan")
        return list(rows.values())
