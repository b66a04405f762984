"""Operators: inside the module at which two models part, the first operator that differs, and its line of code."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from hookline.backends.undoing import Undoing, tidied
from hookline.diffs.births import Birth
from hookline.diffs.live import Live
from hookline.diffs.measures import apart, over, scale_of, step_of
from hookline.diffs.pairs import Pair
from hookline.diffs.ways import Isolated
from hookline.hooks.ops import OpEvent, register_op_hook

MOST = 20_000
"""So many operators of a module are looked at."""


@dataclass(frozen=True)
class FirstOperator:
    """The first operator that differs: its name and line on both sides, and what differs in words."""

    a: str = ""
    b: str = ""
    line: str = ""
    """Of B's code, or of A's where B has nothing there."""
    told: str = ""
    dtypes: tuple[str, str] = ("", "")


def first_operator(a: Live, b: Live, pair: Pair, birth: Birth, states: dict[Any, Any]) -> FirstOperator:
    """The first operator that differs where an error is born; one without a name where it can't be told."""
    paired = pair.alignment.pairs
    try:
        ours = _operators(
            a, birth.site, birth.call, Isolated(a.backend, pair.a, {name: name for name, _ in paired}, states)
        )
        names = {other: site for site, other in paired}
        theirs = _operators(b, pair.others[birth.site], birth.call, Isolated(b.backend, pair.a, names, states))
    except Exception:  # what can't be watched at this level can still be named by its module
        return FirstOperator()
    return _first(a, b, ours, theirs, birth)


@tidied
def _operators(undoing: Undoing, live: Live, site: str, call: int, way: Isolated) -> list[OpEvent]:
    """The outputs of the operators of one call of a module, in a run with A's values."""
    events: list[OpEvent] = []

    def note(event: OpEvent) -> None:
        if len(events) < MOST and event.phase == "forward":
            events.append(event)

    undoing.enter_context(register_op_hook(live.model, note, site or None, events=True))
    live.run(way, list(way.names))
    return [event for event in events if event.module != site or event.call == call]


def _first(a: Live, b: Live, ours: list[OpEvent], theirs: list[OpEvent], birth: Birth) -> FirstOperator:
    matcher = SequenceMatcher(None, [one.op for one in ours], [one.op for one in theirs], autojunk=False)
    for tag, i, i2, j, j2 in matcher.get_opcodes():
        if tag != "equal":
            return _structural(a, b, ours[i:i2] or ours[i2 : i2 + 1], theirs[j:j2], i2 > i)
        for one, two in zip(ours[i:i2], theirs[j:j2], strict=True):
            if (differing := _differing(a, b, one, two, birth)) is not None:
                return differing
    return FirstOperator()


def _differing(a: Live, b: Live, one: OpEvent, two: OpEvent, birth: Birth) -> FirstOperator | None:
    if "empty" in one.op:  # memory that nobody has written yet
        return None
    name, line = _bare(two), two.source or ""
    where = f"{name} at {line}" if line else name
    dtypes = a.backend.dtype_of(one.array), b.backend.dtype_of(two.array)
    if tuple(one.array.shape) != tuple(two.array.shape):
        told = f"{where} gives {tuple(two.array.shape)}, A's gives {tuple(one.array.shape)}"
        return FirstOperator(_bare(one), name, line, told, dtypes)
    if dtypes[0] != dtypes[1]:
        return FirstOperator(
            _bare(one), name, line, f"{where} computes in {dtypes[1]}, A's in {dtypes[0]}", dtypes
        )
    array = a.backend.host(one.array)
    gap = apart(array, b.backend.host(two.array))
    error = over(gap.largest, scale_of(array).largest)
    if gap.odd or error > max(birth.tolerance, 1e-3 * min(birth.error, 1.0)):
        return FirstOperator(_bare(one), name, line, f"first at the operator {where}", dtypes)
    return None


def _structural(a: Live, b: Live, ours: list[OpEvent], theirs: list[OpEvent], instead: bool) -> FirstOperator:
    """Of operators that one side has in place of the other's; `ours` follow them where A has none there."""
    name = _bare(ours[0]) if ours and instead else ""
    if not theirs:
        line = ours[0].source or ""
        return FirstOperator(name, "", line, f"B does not run {name}{f', which A runs at {line}' if line else ''}")
    line = theirs[0].source or ""
    told = f"B runs {_bare(theirs[0])}{f' at {line}' if line else ''} where A runs {name or 'nothing'}"
    dtypes = ("", "")
    if ours:
        dtypes = a.backend.dtype_of(ours[0].array), b.backend.dtype_of(theirs[0].array)
        dtypes = dtypes if all(map(step_of, dtypes)) else ("", "")
    return FirstOperator(name, _bare(theirs[0]), line, told, dtypes)


def _bare(event: OpEvent) -> str:
    return event.op.removeprefix("aten.")
