"""What each way of asking tells, held against the reference; every judge says what is wrong, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import hookline
from tests.contract.law.asking import HOOKS, Run, Told
from tests.contract.law.comparing import difference, shown, unmatched
from tests.contract.law.reference import CallOf, Reference
from tests.contract.law.trees import places

Backward = Callable[[Run], Any]
"""What runs a network forward and backward."""


def disagreement(rec: hookline.Recording, wanted: Reference, *, strict: bool = False) -> str:
    """The first gradient of a recording that is not the reference's."""
    for name in {call.name: None for call in wanted.calls}:
        calls = sorted(rec[name].calls, key=lambda call: call.order)
        expected = wanted.of(name)
        if len(calls) != len(expected):
            return f"{name!r} has {len(calls)} calls, wanted {len(expected)}"
        for number, (call, right) in enumerate(zip(calls, expected, strict=True)):
            # The gradients of a call are those of a backward that comes to one of its outputs.
            kinds = ("grad_output", "grad_input", "grad_kwargs") if right.reached else ("grad_output",)
            for kind in kinds:
                if reason := difference(getattr(call, kind), getattr(right, kind), strict=strict):
                    return f"{name!r}, call {number}, {kind} {reason}"
    return ""


def wrongly_called(told: list[Told], wanted: Reference, *, before: bool, times: int = 1) -> str:
    """What hooks were called with that they should not have been, or should have been and were not."""
    for name in {call.name: None for call in wanted.calls}:
        calls = [(given, out) for told_name, given, out in told if told_name == name]
        if any(all(grad is None for _, grad in places(out)) for _, out in calls):
            return f"{name!r}: called with no gradient at all"
        expected = [_shown_to_hooks(call, before) for call in wanted.of(name) if call.reached] * times
        over, left = unmatched(calls, expected, difference)
        if over or left:
            return (
                f"{name!r}: called {len(calls)} times, wanted {len(expected)}; "
                f"wrong {[shown(one) for one in over]}, wanted {[shown(one) for one in left]}"
            )
    return ""


def _shown_to_hooks(call: CallOf, before: bool) -> tuple[Any, Any]:
    out = call.grad_output if isinstance(call.grad_output, tuple) else (call.grad_output,)
    return (None if before else call.grad_input), out


def unlike_rows(rows: list[dict[str, Any]], wanted: Reference, *, inputs: bool) -> str:
    """The first row of a watch that does not have the statistics of a call's gradients."""
    for name in {call.name: None for call in wanted.calls}:
        for kind in ("grad_output", "grad_input") if inputs else ("grad_output",):
            found = {row["call"]: row for row in rows if (row["site"], row["kind"]) == (name, kind)}
            got = {number: _statistics(row) for number, row in found.items()}
            # The gradients of a call are those of a backward that comes to one of its outputs.
            heard = [call for call in wanted.of(name) if call.reached or kind == "grad_output"]
            values = dict(enumerate(_values(call, kind) for call in heard))
            expected = {number: _numbers(one) for number, one in values.items() if one.numel()}
            # Calls are counted as they end, not as they begin: another order where a module calls itself.
            got, expected = (dict(enumerate(sorted(some.values()))) for some in (got, expected))
            right = got.keys() == expected.keys() and all(
                got[number] == pytest.approx(expected[number], rel=1e-9, abs=1e-12) for number in got
            )
            if not right:
                return f"{name!r}, {kind}: count, mean and l2 by call are {got}, wanted {expected}"
    return ""


def _values(call: CallOf, kind: str) -> torch.Tensor:
    tree = call.grad_output if kind == "grad_output" else (call.grad_input, call.grad_kwargs)
    return torch.cat([torch.zeros(0).double(), *(grad.flatten() for _, grad in places(tree) if grad is not None)])


def _numbers(values: torch.Tensor) -> tuple[float, ...]:
    return values.numel(), values.mean().item(), values.norm().item()


def _statistics(row: dict[str, Any]) -> tuple[float, ...]:
    return row["count"], row["mean"], row["l2"]


def by_record(run: Run, wanted: Reference, backward: Backward = Run.both, times: int = 1) -> str:
    with hookline.record(run.model, inputs=True, grads=True) as rec:
        backward(run)
    return disagreement(rec, wanted)


def by_strict_record(run: Run, wanted: Reference) -> str:
    with hookline.record(run.model, grads=True) as rec:
        run.both()
    return disagreement(rec, wanted, strict=True)


def by_hook(way: str, run: Run, wanted: Reference, backward: Backward = Run.both, times: int = 1) -> str:
    with HOOKS[way](run.model) as told:
        backward(run)
    return wrongly_called(told, wanted, before="pre" in way, times=times)


def by_watch(run: Run, wanted: Reference, *, inputs: bool = True) -> str:
    with hookline.watch(run.model, inputs=inputs, every=1) as watch:
        run.both()
    return unlike_rows(watch.rows(), wanted, inputs=inputs)


JUDGES: dict[str, Callable[..., str]] = {
    "record": by_record,
    **{way: partial(by_hook, way) for way in HOOKS},
    "record, None or not": by_strict_record,
    "watch": by_watch,
    "watch without inputs": partial(by_watch, inputs=False),
}
REPEATABLE = ("record", *HOOKS)
"""Those that tell each backward of several."""
