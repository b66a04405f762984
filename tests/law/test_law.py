"""The law of gradients, over random networks and by every way of asking; the reference is gradients by hand.

HOOKLINE_LAW=10000 tries each law on so many networks, HOOKLINE_LAW_SEED=1 on others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume
from hypothesis import strategies as st

import hookline
from conftest import same_bits
from law.asking import HOOKS, OBSERVERS, REPLACERS, Replaced, Run, Told
from law.comparing import difference, shown, unmatched
from law.generate import EVERYTHING, PLAIN, REENTRANT, networks
from law.networks import Program
from law.reference import CallOf, Reference, by_hand
from law.running import law, zeros_or_none
from law.trees import places

UNCHECKPOINTED = replace(EVERYTHING, checkpoint="")


def disagreement(rec: hookline.Recording, wanted: Reference, *, strict: bool = False) -> str:
    """The first gradient of a recording that is not the reference's."""
    for name in {call.name: None for call in wanted.calls}:
        calls = sorted(rec[name].calls, key=lambda call: call.order)
        expected = wanted.of(name)
        if len(calls) != len(expected):
            return f"{name!r} has {len(calls)} calls, wanted {len(expected)}"
        for number, (call, right) in enumerate(zip(calls, expected, strict=True)):
            for kind in ("grad_output", "grad_input", "grad_kwargs"):
                if reason := difference(getattr(call, kind), getattr(right, kind), strict=strict):
                    return f"{name!r}, call {number}, {kind} {reason}"
    return ""


def wrongly_called(told: list[Told], wanted: Reference, *, times: int = 1) -> str:
    """What hooks were called with that they should not have been, or should have been and were not."""
    for name in {call.name: None for call in wanted.calls}:
        calls = [(given, out) for told_name, given, out in told if told_name == name]
        if any(all(grad is None for _, grad in places(out)) for _, out in calls):
            return f"{name!r}: called with no gradient at all"
        expected = [_shown_to_hooks(call, told) for call in wanted.of(name) if call.reached] * times
        over, left = unmatched(calls, expected, difference)
        if over or left:
            return (
                f"{name!r}: called {len(calls)} times, wanted {len(expected)}; "
                f"wrong {[shown(one) for one in over]}, wanted {[shown(one) for one in left]}"
            )
    return ""


def _shown_to_hooks(call: CallOf, told: list[Told]) -> tuple[Any, Any]:
    out = call.grad_output if isinstance(call.grad_output, tuple) else (call.grad_output,)
    before = bool(told) and told[0][1] is None
    return (None if before else call.grad_input), out


@pytest.mark.parametrize("strict", [False, True], ids=["values", "where there are any"])
@law(networks(), examples=40)
def test_a_recording_has_the_gradient_of_every_place_of_every_call(program, strict):
    run, wanted = Run(program), by_hand(program)
    with hookline.record(run.model, inputs=True, grads=True) as rec:
        run.both()
    reason = disagreement(rec, wanted, strict=strict)
    assert not reason, reason


@law(networks(REENTRANT), examples=30)
def test_a_recording_has_the_gradients_of_reentrant_checkpoints(program):
    run, wanted = Run(program), by_hand(program)
    with hookline.record(run.model, inputs=True, grads=True) as rec:
        run.both()
    reason = disagreement(rec, wanted)
    assert not reason, reason


@pytest.mark.parametrize("way", HOOKS)
@law(networks(), examples=40)
def test_a_hook_is_called_once_for_every_call_that_a_gradient_reaches(program, way):
    run, wanted = Run(program), by_hand(program)
    with HOOKS[way](run.model) as told:
        run.both()
    reason = wrongly_called(told, wanted)
    assert not reason, reason
