"""Gradients by hand: the same network without hookline, with a point of ours at every place of every call.

A point adds zeros that need a gradient. It stands outside of the module, around its call, so the gradient of
the zeros is that of the value as it enters or leaves at this place, and of nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tests.contract.law.networks import Program
from tests.contract.law.trees import Path, mapped, places

Factors = Callable[[str, str, int], float]
"""(module's name, "grad_output" or "grad_input", number of the place): what its gradient is multiplied by."""


@dataclass
class CallOf:
    """One call of a module; its gradients in the structure of arguments and output, None where there is none."""

    name: str
    zeros_in: Any = ((), {})
    zeros_out: Any = None
    grad_input: Any = None
    grad_kwargs: Any = None
    grad_output: Any = None

    def fill(self, grads: dict[int, Tensor | None]) -> None:
        """Takes the gradients of its zeros, by the id of these."""

        def found(path: Path, zeros: Any) -> Tensor | None:
            return None if zeros is None else grads[id(zeros)]

        self.grad_input, self.grad_kwargs = mapped(found, self.zeros_in)
        self.grad_output = mapped(found, self.zeros_out)

    @property
    def reached(self) -> bool:
        """Whether a gradient comes in at any of its outputs."""
        return any(grad is not None for _, grad in places(self.grad_output))


@dataclass
class Reference:
    """What is right for one run of a network."""

    calls: list[CallOf]
    loss: Tensor
    parameters: dict[str, Tensor | None]
    inputs: list[Tensor | None]
    zeros: list[Tensor] = field(repr=False)

    def of(self, name: str) -> list[CallOf]:
        """The calls of one module, in the order in which they began."""
        return [call for call in self.calls if call.name == name]


class _Times(torch.autograd.Function):
    """Identity; the gradient is multiplied."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.factor, None


def _uncheckpointed(function: Callable[..., Any], *args: Any, use_reentrant: bool, **kwargs: Any) -> Any:
    """A checkpoint changes no gradient, so the reference needs none."""
    return function(*args, **kwargs)


class Probed:
    """A network with its points, that has run forward; `loss` and `zeros` are of that run."""

    def __init__(self, program: Program, factors: Factors | None = None) -> None:
        built = program.built(checkpoint=_uncheckpointed)
        self.model: nn.Module = built.build()
        self.leaves: list[Tensor] = built.inputs()
        self.calls: list[CallOf] = []
        self.zeros: list[Tensor] = []
        self._factors = factors
        names = {module: name for name, module in self.model.named_modules()}
        for module in names:
            # The classes are of this build alone.
            type(module).__call__ = lambda module, *args, **kwargs: self._call(  # type: ignore[method-assign]
                names[module], module, args, kwargs
            )
        self.out, self.loss = built.run(self.model, self.model, self.leaves)

    def _call(self, name: str, module: nn.Module, args: Any, kwargs: Any) -> Any:
        call = CallOf(name)
        self.calls.append(call)

        positional = len(list(places(args)))

        def entering(number: int, value: Any) -> tuple[Any, Tensor | None]:
            # Gradients come the other way: they are multiplied first, then seen.
            value, zeros = self._point(value)
            # Those of keyword arguments can be seen, not replaced.
            return self._times(value, zeros, name, "grad_input", number) if number < positional else value, zeros

        def leaving(number: int, value: Any) -> tuple[Any, Tensor | None]:
            value, zeros = self._point(value)
            return self._times(value, zeros, name, "grad_output", number), zeros

        (args, kwargs), call.zeros_in = _led(entering, (args, kwargs))
        output, call.zeros_out = _led(leaving, nn.Module.__call__(module, *args, **kwargs))
        return output

    def _point(self, value: Any) -> tuple[Any, Tensor | None]:
        if not (isinstance(value, Tensor) and value.requires_grad and torch.is_grad_enabled()):
            return value, None
        zeros = torch.zeros_like(value, requires_grad=True)
        self.zeros.append(zeros)
        return value + zeros, zeros

    def _times(self, value: Any, zeros: Tensor | None, name: str, kind: str, number: int) -> Any:
        if self._factors is None or zeros is None:
            return value
        return _Times.apply(value, self._factors(name, kind, number))

    def gradients_of(self, loss: Tensor, **options: Any) -> Reference:
        """What is right for a backward from `loss`, given as calls, parameters and inputs."""
        parameters = dict(self.model.named_parameters())
        inputs = [leaf for leaf in self.leaves if leaf.requires_grad]
        wanted = [*self.zeros, *parameters.values(), *inputs]
        grads = torch.autograd.grad(loss, wanted, allow_unused=True, **options)
        by_id = {id(tensor): grad for tensor, grad in zip(wanted, grads, strict=True)}
        for call in self.calls:
            call.fill(by_id)
        return Reference(
            list(self.calls),
            loss.detach(),
            {name: by_id[id(parameter)] for name, parameter in parameters.items()},
            [by_id.get(id(leaf)) for leaf in self.leaves],
            self.zeros,
        )


def _led(point: Callable[[int, Any], tuple[Any, Tensor | None]], tree: Any) -> tuple[Any, Any]:
    """A structure led through points: what goes on, and the zeros."""
    zeros: dict[Path, Tensor | None] = {}

    def through(path: Path, leaf: Any) -> Any:
        value, zeros[path] = point(len(zeros), leaf)
        return value

    return mapped(through, tree), mapped(lambda path, leaf: zeros[path], tree)


def by_hand(program: Program, factors: Factors | None = None) -> Reference:
    """The gradients of every call of a network, of its parameters and of its inputs."""
    probed = Probed(program, factors)
    return probed.gradients_of(probed.loss)
