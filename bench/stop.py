"""Row stop: one value from the first fifth of ResNet-50, without running the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import torch

import hookline
from bench.harness import Case, Goal, Table
from bench.models import resnet50, twin

LAYER = "layer1"  # about a fifth of the arithmetic lies before its end
LIMIT = "truncated by hand"


class Stopped(Exception):
    """Ends a forward from inside a hook."""


def tables() -> Iterator[Table]:
    model, x = resnet50()
    with torch.no_grad():
        right = _by_hand(model, x)

    def case(name: str, run: Callable[..., Any], **more: Any) -> Case:
        return Case(name, partial(_without_grad, run, x), **more)

    def told(value: torch.Tensor) -> str:
        return "" if torch.equal(value, right) else "value wrong"

    sight = NnsightStop(twin(model))
    yield Table(
        f"Early stop: the output of {LAYER} of ResNet-50",
        [
            case(LIMIT, partial(_by_hand, model)),
            case("whole forward", model),
            case("torch hook that raises", partial(_raising, twin(model)), remark=told),
            case("nnsight tracer.stop()", sight, remark=told, needs="nnsight"),
            case("hookline.record(stop=True)", partial(_ours, twin(model)), remark=told, goal=Goal(1.03)),
        ],
        rounds=60,  # the goal is 1.03x, and one round varies by 5 %
        note="Whole cycle: attach, run, detach. The ratio is to the forward truncated by hand.",
    )


def _without_grad(run: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Any:
    with torch.no_grad():
        return run(x)


def _by_hand(model: Any, x: torch.Tensor) -> torch.Tensor:
    return model.layer1(model.stem(x))


def _raising(model: Any, x: torch.Tensor) -> torch.Tensor:
    held = []

    def after(module: Any, args: Any, output: torch.Tensor) -> None:
        held.append(output)
        raise Stopped

    with suppress(Stopped), model.get_submodule(LAYER).register_forward_hook(after):
        model(x)
    return held[0]


class NnsightStop:
    """nnsight's way; wrapping the model is not timed."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.wrapped: Any = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.wrapped is None:
            from nnsight import NNsight

            self.wrapped = NNsight(self.model)
        wrapped = self.wrapped
        with wrapped.trace(x) as tracer:
            value = wrapped.layer1.output.save()
            tracer.stop()
        return value


def _ours(model: Any, x: torch.Tensor) -> torch.Tensor:
    with hookline.record(model, LAYER, stop=True) as recording:
        model(x)
    return recording[LAYER].output
