"""Row record: the outputs of every module, over the whole cycle of attaching, running and detaching.

How many of the kept values are wrong is told beside each timing: a later operation in place changes
what a tool keeps without copying it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from bench import recorders
from bench.harness import Case, Goal, Table
from bench.models import gpt2, resnet50, tiny, twin
from bench.recorders import Values

NOTE = (
    "Leaf modules only, except where it says 'containers too'. 'Wrong' is counted against copies taken by a "
    "hook at the moment of each call; 'not kept' are earlier calls of a module that is called several times."
)


def tables() -> Iterator[Table]:
    model, x = resnet50()
    yield _table(
        "Record every module of ResNet-50 (eval, 1 x 3 x 224 x 224)", model, x, (1.12, 1.15, 1.40), rounds=15
    )
    model, x = tiny()
    yield _table("Record 1000 tiny modules", model, x, (2.45, 2.45, None), inner=3, rounds=25)
    if find_spec("transformers") is not None:
        model, x = gpt2()
        yield _table(
            "Record every module of a GPT-2-sized transformer (64 tokens)", model, x, (None, None, None), rounds=9
        )


def _table(
    title: str, model: nn.Module, x: torch.Tensor, goals: tuple[float | None, ...], *, inner: int = 1, rounds: int
) -> Table:
    # Of leaf modules, of all of them, and of the first recording in a process.
    leaves_only, all_modules, first = (None if goal is None else Goal(goal) for goal in goals)
    with torch.no_grad():
        right = recorders.raw(twin(model), x, recorders.clone)

    def case(name: str, run: Callable[..., Any], read: Callable[[Any], Values] | None = dict, **more: Any) -> Case:
        remark = None if read is None else lambda result: compared(read(result), right)
        return Case(name, partial(_without_grad, run, x), remark=remark, **more)

    sight = recorders.Nnsight(twin(model))
    everything = partial(recorders.raw, twin(model), keep=recorders.clone, containers=True)
    cases = [
        Case("no hooks", partial(_without_grad, model, x)),
        case("torch hooks, keep output.detach()", partial(recorders.raw, twin(model), keep=recorders.reference)),
        case("torch hooks, keep a clone", partial(recorders.raw, twin(model), keep=recorders.clone)),
        case("fastai's body, by hand", partial(recorders.fastai_like, twin(model))),
        case("fastai hook_outputs", partial(recorders.fastai, twin(model)), needs="fastai"),
        case("nnsight tracer.cache()", sight, sight.read, needs="nnsight"),
        case("captum LayerActivation", partial(recorders.captum, twin(model), names=list(right)), needs="captum"),
        case("hookline.record", partial(recorders.ours, twin(model)), recorders.read_ours, goal=leaves_only),
        case(
            "hookline.record, first in the process",
            partial(recorders.ours, twin(model)),
            recorders.read_ours,
            around=recorders.empty_pool,
            goal=first,
        ),
        case("torch hooks, keep a clone, containers too", everything, None),
        case(
            "hookline.record, containers too",
            partial(recorders.ours, twin(model), where="**"),
            recorders.read_ours,
            goal=all_modules,
        ),
    ]
    return Table(title, cases, unit="us/module", scale=1e6, per=len(right), inner=inner, rounds=rounds, note=NOTE)


def _without_grad(run: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Any:
    with torch.no_grad():
        return run(x)


def compared(kept: Values, right: Values) -> str:
    """How many of the kept values differ from the right ones, and how many are not there."""
    wrong = missing = 0
    for name, calls in right.items():
        # What keeps one value per module keeps that of the last call.
        own = kept.get(name, [])[-len(calls) :]
        missing += len(calls) - len(own)
        wrong += sum(not same(a, b) for a, b in zip(own, calls[len(calls) - len(own) :], strict=True))
    total = sum(map(len, right.values()))
    return f"{wrong} of {total} wrong" + (f", {missing} not kept" if missing else "")


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit; a tool may hand a value over as a tuple of one."""
    if isinstance(a, tuple) and len(a) == 1:
        (a,) = a
    return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and torch.equal(a, b)
