"""The law of gradients, over random networks and by every way of asking; the reference is gradients by hand.

HOOKLINE_LAW=10000 tries each law on so many networks, HOOKLINE_LAW_SEED=1 on others.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume
from hypothesis import strategies as st

import hookline
from tests.contract.law.asking import HOOKS, OBSERVERS, REPLACERS, Replaced, Run, Told
from tests.contract.law.comparing import difference, zeros_or_none
from tests.contract.law.generate import EVERYTHING, PLAIN, REENTRANT, networks
from tests.contract.law.judging import JUDGES, REPEATABLE, disagreement
from tests.contract.law.networks import Keep, Program
from tests.contract.law.reference import by_hand
from tests.contract.law.running import judge, law
from tests.support.compare import same_bits

UNCHECKPOINTED = replace(EVERYTHING, checkpoint="")


def from_a_thread(program: Program) -> Run:
    """Inputs and loss are made here, the model is called by another thread, which numbers its nodes from zero."""
    run = Run(program)

    def call(*args: Any, **kwargs: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(copy_context().run, run.model, *args, **kwargs).result()

    run.call = call
    return run


THREADS = pytest.mark.parametrize("made", [Run, from_a_thread], ids=["this thread", "another thread"])


@THREADS
@pytest.mark.parametrize("way", JUDGES)
@law(networks(), examples=30)
def test_every_call_has_the_gradients_of_its_own_places(program, way, made):
    wrong = JUDGES[way](made(program), by_hand(program))
    judge(wrong, program)


@law(networks(REENTRANT), examples=20)
def test_a_recording_has_the_gradients_of_reentrant_checkpoints(program):
    wrong = JUDGES["record"](Run(program), by_hand(program))
    judge(wrong, program)


@THREADS
@pytest.mark.parametrize("way", OBSERVERS)
@law(networks(), examples=60)
def test_looking_changes_no_bit(program, way, made):
    program = replace(program, dtype="float32")
    plain, seen = made(program).both(), made(program)
    with OBSERVERS[way](seen.model):
        seen.both()
    assert alike(seen, plain)


def alike(run: Run, plain: Run) -> bool:
    """Whether outputs, loss and gradients are the same to the last bit, and None at the same places."""
    missing = [[grad is None for grad in one.results[2]] for one in (run, plain)]
    return missing[0] == missing[1] and same_bits(run.results, plain.results)


@pytest.mark.parametrize("way", REPLACERS)
@law(networks(), examples=40, bits=st.integers(0, 2**16 - 1))
def test_what_is_replaced_goes_on_and_is_what_a_recording_sees(program, way, bits):
    run, replaced = Run(program), Replaced(bits)
    wanted = by_hand(program, replaced.factors(run.model))
    # Where gradients come to an input around all outputs there is no backward of the call to hook.
    assume(all(call.reached or zeros_or_none((call.grad_input, call.grad_kwargs)) for call in wanted.calls))
    with REPLACERS[way](run.model, replaced), hookline.record(run.model, inputs=True, grads=True) as rec:
        run.both()
    expected = [*wanted.parameters.values(), *wanted.inputs]
    reason = difference([tensor.grad for tensor in [*run.model.parameters(), *run.leaves]], expected)
    judge(reason and f"parameters and inputs {reason}", program)
    judge(disagreement(rec, wanted), program)


def twice(run: Run) -> None:
    run.forward().backward(retain_graph=True)
    run.loss.backward()


def by_autograd_grad(run: Run) -> None:
    torch.autograd.grad(run.forward(), run.sources, allow_unused=True)


BACKWARDS: dict[str, tuple[Callable[[Run], None], int]] = {
    "two backwards": (twice, 2),
    "autograd.grad": (by_autograd_grad, 1),
}


@pytest.mark.parametrize("how", BACKWARDS)
@pytest.mark.parametrize("way", REPEATABLE)
@law(networks(), examples=15)
def test_every_backward_tells_the_same(program, way, how):
    backward, times = BACKWARDS[how]
    wrong = JUDGES[way](Run(program), by_hand(program), backward, times)
    judge(wrong, program)


def with_penalty(run: Run) -> None:
    """Training with the sum of squared slopes as the loss."""
    grads = torch.autograd.grad(run.forward(), run.sources, create_graph=True, allow_unused=True)
    terms = [grad.square().sum() for grad in grads if grad is not None and grad.requires_grad]
    assume(terms)
    run.penalty = sum(terms[1:], terms[0])
    assume(run.penalty.requires_grad)
    run.penalty.backward()


@pytest.mark.parametrize("way", OBSERVERS)
@law(networks(UNCHECKPOINTED), examples=15)
def test_looking_changes_no_bit_of_a_gradient_penalty(program, way):
    program = replace(program, dtype="float32")
    plain, seen = Run(program), Run(program)
    with_penalty(plain)
    with OBSERVERS[way](seen.model):
        with_penalty(seen)
    assert alike(seen, plain) or is_told(program)


def is_told(program: Program) -> bool:
    """Whether the audit says that gradients of gradients may differ: one tensor is at several places there."""
    run = Run(program)
    with hookline.record(run.model, inputs=True, grads=True) as rec:
        with_penalty(run)
    return "gradients of gradients" in str(rec.audit())


# torch says that no input needs a gradient.
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@law(networks(PLAIN), examples=30)
def test_a_gradient_penalty_calls_hooks_as_torchs_are_called(program):
    ours, theirs = Run(program), Run(program)
    names = {module: name for name, module in theirs.model.named_modules()}
    wanted: list[Told] = []
    for module in names:
        module.register_full_backward_hook(lambda m, given, out: wanted.append((names[m], given, out)))
    with_penalty(theirs)
    with HOOKS["backward hook"](ours.model) as told:
        with_penalty(ours)
    for name in names.values():
        # torch fills up with zeros, and tells nothing where none comes to an input.
        counts = [
            sum(not zeros_or_none(given) and not zeros_or_none(out) for one, given, out in calls if one == name)
            for calls in (told, wanted)
        ]
        assert counts[0] == counts[1], f"{name!r}: called {counts[0]} times, torch's {counts[1]}"


@pytest.mark.parametrize("way", OBSERVERS)
@law(networks(), examples=20)
def test_nothing_stays(program, way):
    program = replace(program, dtype="float32")
    plain, run = Run(program).both(), Run(program)
    before = _hooks(run)
    with OBSERVERS[way](run.model) as told:
        run.both()
    assert _hooks(run) == before
    seen = len(told) if way in HOOKS else 0
    # A network may write to an input that needs no gradient: a second run is another one, for both.
    for one in (plain, run):
        one.forget()
        one.both()
    assert alike(run, plain)
    assert _hooks(run) == before and (way not in HOOKS or len(told) == seen)


@pytest.mark.parametrize("way", OBSERVERS)
@law(networks(), examples=12)
def test_no_graph_stays(program, way):
    # A module that keeps a tensor holds its graph, and a hook in that graph may hold the module: with torch's own
    # hooks, too, both stay for ever.
    assume(not any(isinstance(step, Keep) for module in program.modules for step in module.body))
    # Of a checkpoint whose output nobody uses, torch itself keeps the graph.
    assert what_stays(program, OBSERVERS[way]) == what_stays(program, nullcontext)


def what_stays(program: Program, observed: Callable[[Any], Any]) -> list[bool]:
    """Which of the parameters and inputs are still there when nobody has the model, its outputs or its loss."""
    run = Run(program)
    with observed(run.model):
        run.both()
    held = [weakref.ref(tensor) for tensor in run.sources]
    del run
    gc.collect()
    return [ref() is not None for ref in held]


def _hooks(run: Run) -> list[Any]:
    """Every hook there is on the model's modules, and on its parameters and inputs."""
    on_modules = [
        {key: list(value) for key, value in vars(module).items() if "hooks" in key and isinstance(value, dict)}
        for module in run.model.modules()
    ]
    tensors = [*run.model.parameters(), *run.leaves]
    on_tensors = [
        [list(getattr(tensor, name) or ()) for name in ("_backward_hooks", "_post_accumulate_grad_hooks")]
        for tensor in tensors
    ]
    return [on_modules, on_tensors]
