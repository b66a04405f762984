"""The ways of asking for gradients, each with what it tells in one form, to be compared with the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

import hookline
from tests.contract.law.networks import Program
from tests.contract.law.reference import Factors
from tests.contract.law.trees import Path, mapped

EVERY = "**"


class Run:
    """A network of its own, to be run; `call` is the model, or a compiled form of it."""

    def __init__(self, program: Program, *, compiled: bool = False) -> None:
        built = program.built()
        self.model: nn.Module = built.build()
        self.leaves: list[Tensor] = built.inputs()
        self._run = built.run
        self.call: Any = torch.compile(self.model, backend="aot_eager") if compiled else self.model

    def forward(self) -> Tensor:
        """The loss; `out` is what came out."""
        self.out, loss = self._run(self.model, self.call, self.leaves)
        self.loss: Tensor = loss
        return self.loss

    def both(self) -> Run:
        """The run itself, after forward and backward."""
        self.forward().backward()
        return self

    def forget(self) -> None:
        """Drops the gradients of parameters and inputs."""
        for source in self.sources:
            source.grad = None

    @property
    def sources(self) -> list[Tensor]:
        """Parameters, and inputs that need a gradient."""
        return [*self.model.parameters(), *(leaf for leaf in self.leaves if leaf.requires_grad)]

    @property
    def results(self) -> Any:
        """Everything that observing must not change: output, loss, gradients of parameters and inputs."""
        return self.out, self.loss, [source.grad for source in self.sources]


Told = tuple[str, Any, Any]
"""(module's name, grad_input, grad_output) that a hook was called with; grad_input None for a pre-hook."""


@contextmanager
def by_backward_hooks(model: nn.Module) -> Iterator[list[Told]]:
    """What backward hooks on every module are called with."""
    names, told = _names(model), []

    def hook(module: nn.Module, given: Any, out: Any) -> None:
        told.append((names[module], _copied(given), _copied(out)))

    with hookline.register_backward_hook(model, hook, EVERY):
        yield told


@contextmanager
def by_pre_hooks(model: nn.Module) -> Iterator[list[Told]]:
    """What backward pre-hooks on every module are called with."""
    names, told = _names(model), []

    def hook(module: nn.Module, out: Any) -> None:
        told.append((names[module], None, _copied(out)))

    with hookline.register_backward_pre_hook(model, hook, EVERY):
        yield told


HOOKS: dict[str, Callable[[nn.Module], AbstractContextManager[list[Told]]]] = {
    "backward hook": by_backward_hooks,
    "backward pre-hook": by_pre_hooks,
}


def _names(model: nn.Module) -> dict[nn.Module, str]:
    return {module: name for name, module in model.named_modules()}


def _copied(grads: Any) -> Any:
    """The gradients as they are now: autograd may keep the very tensor, and add to it later."""
    return mapped(lambda path, grad: None if grad is None else grad.detach().clone(), grads)


def _same(grads: Any) -> Any:
    return mapped(lambda path, grad: grad, grads)


OBSERVERS: dict[str, Callable[[nn.Module], AbstractContextManager[Any]]] = {
    "record": lambda model: hookline.record(model, inputs=True, grads=True),
    "watch": lambda model: hookline.watch(model, inputs=True, every=1),
    "watch without inputs": lambda model: hookline.watch(model, every=1),
    **HOOKS,
    "edit of grad_output": lambda model: hookline.edit(model, {(EVERY, "grad_output"): _same}),
    "edit of grad_input": lambda model: hookline.edit(model, {(EVERY, "grad_input"): _same}),
}
"""What looks at gradients and changes none."""


@dataclass(frozen=True)
class Replaced:
    """Which gradients are multiplied, drawn as bits: two for each module, in the order of their names."""

    bits: int

    def chosen(self, model: nn.Module, kind: str) -> list[str]:
        """The names of the modules whose gradients of that kind are multiplied."""
        shift = 0 if kind == "grad_output" else 1
        names = [name for name, _ in model.named_modules()]
        return [name for number, name in enumerate(names) if self.bits >> (2 * number + shift) & 1]

    def factors(self, model: nn.Module) -> Factors:
        """What the reference is to multiply by."""
        chosen = {kind: self.chosen(model, kind) for kind in ("grad_output", "grad_input")}
        return lambda name, kind, number: factor(kind, number) if name in chosen[kind] else 1.0


def factor(kind: str, number: int) -> float:
    """Another one for each place, and none that undoes another."""
    return (1.5 if kind == "grad_output" else -0.75) + 0.125 * number


def _multiplied(kind: str, grads: Any) -> Any:
    numbers = count()

    def times(path: Path, grad: Any) -> Any:
        by = factor(kind, next(numbers))
        return None if grad is None else grad * by

    return mapped(times, grads)


@contextmanager
def by_edit(model: nn.Module, replaced: Replaced) -> Iterator[None]:
    """Multiplies by edits."""
    edits = {
        (name, kind): (lambda grads, kind=kind: _multiplied(kind, grads))
        for kind in ("grad_output", "grad_input")
        for name in replaced.chosen(model, kind)
    }
    with hookline.edit(model, edits) if edits else nullcontext():
        yield


@contextmanager
def by_hooks(model: nn.Module, replaced: Replaced) -> Iterator[None]:
    """Multiplies by what backward hooks and pre-hooks return."""
    with ExitStack() as stack:
        for name in replaced.chosen(model, "grad_output"):
            stack.enter_context(
                hookline.register_backward_pre_hook(
                    model, lambda module, out: _multiplied("grad_output", out), name
                )
            )
        for name in replaced.chosen(model, "grad_input"):
            stack.enter_context(
                hookline.register_backward_hook(
                    model, lambda module, given, out: _multiplied("grad_input", given), name
                )
            )
        yield


REPLACERS = {"edit": by_edit, "hooks": by_hooks}
