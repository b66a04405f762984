"""Subject: a model that is probed. Each run starts from the same state and the same random numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from hookline.backends.torch.guarding import guard
from hookline.backends.undoing import Undoing, tidied
from hookline.diagnosis.finding import Finding
from hookline.hooks.ops import OpEvent, register_op_hook
from hookline.probing.comparing import difference
from hookline.probing.inputs import Inputs
from hookline.probing.registry import CantProbe
from hookline.probing.tracing import Place, Tensors, Trace, listen
from hookline.trees import leaves

UNSTEADY = 1e-3
"""Where the same input with the same random numbers gives outputs this far apart, nothing can be compared."""

AFTER = 3
"""How many operators that follow are told as well."""

Use = Callable[[Any], Any]


class Operator(NamedTuple):
    """An operator that ran: its name, its line of code, and what ran next."""

    name: str = ""
    line: str = ""
    after: tuple[str, ...] = ()


@dataclass
class Options:
    """What a user said of the model."""

    loss: Callable[[Any], Any] | None = None
    causal: bool | None = None
    batch_dim: int | None = None
    fresh: Callable[[], nn.Module] | None = None


@dataclass
class Subject:
    """A model and the inputs that it is probed with; probes only use what is here, so nothing is left behind."""

    model: nn.Module
    inputs: Inputs
    options: Options = field(default_factory=Options)

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> Subject:
        """The same model with other inputs."""
        return Subject(self.model, self.inputs.exchanged(tensors), self.options)

    def of_copy(self, model: nn.Module) -> Subject:
        """Another model with the same inputs."""
        return Subject(model, self.inputs, self.options)

    # Runs

    def run(self, tensors: Sequence[torch.Tensor] | None = None, **how: Any) -> Tensors:
        """The tensors that the model puts out for these, in eval mode."""
        made: Tensors = self.used(outputs_of, tensors, **how)
        return made

    def traced(self, tensors: Sequence[torch.Tensor] | None = None, **how: Any) -> Trace:
        """What goes in and out of every module."""
        trace = Trace()
        self.used(lambda output: None, tensors, trace=trace, **how)
        return trace

    def attempt(self, tensors: Sequence[torch.Tensor]) -> Tensors | None:
        """As `run`; None where the model raises: it may not be made for such inputs."""
        try:
            return self.run(tensors)
        except Exception:
            return None

    def used(
        self,
        use: Use,
        tensors: Sequence[torch.Tensor] | None = None,
        *,
        seed: int = 0,
        trace: Trace | None = None,
        live: bool = False,
        mode: str = "eval",
        times: int = 1,
    ) -> Any:
        """What `use` makes of the output of a forward; meanwhile the graph is there, if `live`.

        `mode` is "eval", "train", or "" for the modes as they are. With `times` the forward is run as often, one
        after the other, and it is the last that counts.
        """
        given = self.inputs.tensors if tensors is None else tensors
        return _used(self, use, given, seed, trace, live, mode, times)

    def really_run(self, mode: str) -> None:
        """A forward that leaves its traces: for copies of a model only."""
        self.model.train(mode == "train")
        args, kwargs = self.inputs.arguments(self.inputs.tensors)
        with torch.no_grad():
            self.model(*args, **kwargs)

    # What was found out about it

    @cached_property
    def base(self) -> Tensors:
        """What the model puts out for its inputs."""
        return self.run()

    @cached_property
    def noise(self) -> float:
        """How far outputs for the same input are apart, relative to their size; CantProbe where that is much."""
        again = self.run()
        if len(again) != len(self.base):
            raise CantProbe("the same input gives another number of tensors at each run")
        apart = max((difference(a, b) for a, b in zip(self.base, again, strict=True)), default=0.0)
        if apart > UNSTEADY:
            raise CantProbe("the same input and the same random numbers give other outputs at each run")
        return apart

    def line_of(
        self,
        tensors: Sequence[torch.Tensor],
        others: Sequence[torch.Tensor],
        broken: Callable[[torch.Tensor, torch.Tensor], bool],
        place: Place,
        seeds: tuple[int, int] = (0, 0),
    ) -> Operator:
        """The operator at which a property fails first in a module; one without a name where it can't be told."""
        try:
            first = self.operators(tensors, seeds[0], place.site)
            second = self.operators(others, seeds[1], place.site)
        except Exception:  # what can't be watched at this level can still be named by its module
            return Operator()
        there = {event.name: event for event in second}
        for at, event in enumerate(first):
            twin = there.get(event.name)
            if twin is None or twin.op != event.op or "empty" in event.op:  # of which the numbers mean nothing
                continue
            if broken(event.array, twin.array):
                after = tuple(one.op.removeprefix("aten.") for one in first[at + 1 : at + 1 + AFTER])
                return Operator(event.op.removeprefix("aten."), event.source or "", after)
        return Operator()

    def operators(self, tensors: Sequence[torch.Tensor], seed: int, site: str) -> list[OpEvent]:
        """The outputs of all operators that run in a module and its parts."""
        events: list[OpEvent] = []
        with register_op_hook(self.model, events.append, site or None, events=True):
            self.run(tensors, seed=seed)
        return [event for event in events if event.phase == "forward"]


@tidied
def _used(
    undoing: Undoing,
    subject: Subject,
    use: Use,
    tensors: Sequence[torch.Tensor],
    seed: int,
    trace: Trace | None,
    live: bool,
    mode: str,
    times: int,
) -> Any:
    model = subject.model
    guard(undoing, model, weights=False)
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    if mode == "eval":
        model.eval()
    elif mode == "train":
        model.train()
    if trace is not None:
        listen(undoing, model, trace, live=live)
    undoing.noted(torch.set_grad_enabled, torch.is_grad_enabled())
    torch.set_grad_enabled(live)
    for _ in range(times - 1):
        args, kwargs = subject.inputs.arguments(tensors)
        model(*args, **kwargs)
    args, kwargs = subject.inputs.arguments(tensors)
    return use(model(*args, **kwargs))


def outputs_of(output: Any) -> Tensors:
    """Copies of the tensors in an output, in order."""
    return [tensor.detach().clone() for tensor in leaves(output, torch.Tensor)]


def found(rule: str, severity: str, place: Place, why: str, **more: Any) -> Finding:
    """A finding of a probe: step 0, since nothing is trained."""
    return Finding(rule, severity, place.site, 0, f"{why}.{place.told()}".rstrip("."), **more)
