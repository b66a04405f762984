"""Adapter: what the author of a backend writes, so that the suite can build and run models of a framework.

Models have a given form, so that every number is known beforehand. `Times(k)` is a module that gives `x * k`, and
all models take one tensor x and return one, unless said otherwise. Names are the sites' names.

| model | its parts, and what its forward gives |
|---|---|
| chain | `first` Times(2), `block` with `inner` Times(3), `last` Times(5): last(block(first(x))) |
| branch | `part` Times(3): part(x) + x * 10 |
| shared | one Times(2) under the names `a` and `b`: b(a(x)) |
| same | `same`, which returns its argument as it is: same(x) * 3 |
| fork | `fork`, f(x) = {"double": x * 2, "more": (x * 3, None)}: double * 5 + more[0] * 7 |
| join | `join`, f(pair) = pair["a"] * 2 + pair["b"] * 3: join({"a": x, "b": x * 4}) |
| kwargs | `scaled`, f(x, factor=1.0, add=None) = x * factor + add: scaled(x, factor=3.0, add=x * 2) |
| attend | `attend`, f(query, key, value) = query * 2 + key * 3 + value * 5: attend(x, x, value=x) + x * 7 |
| several | `several`, f(x) = (h, h + 1, h) with h = x * 2: a * 3 + b * 5 + c * 7 |
| handed | `handed`, f(x) = (x * 2, x): a + a * 4 + b * 3 + x * 4 |
| silent | `used` Times(2) and `unused` Times(3): used(x) |
| inplace | `first` Times(2), y = first(x), y is then overwritten with zeros in place: y + 1 |
| point | with `hook`: hook(x * 2) * 3 |
| points | with `hook`: a, b = hook(x * 2, x * 5); a * 3 + b * 7 |
| norm | `norm`, batch normalisation of 3 features with a scale and a shift: norm(x) |
| mlp | `fc1` dense 4 to 3, `act` ReLU, `fc2` dense 3 to 2, with the numbers of `reference.WEIGHTS` |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hookline.backends.nouns import Model, Tensor

Array = NDArray[Any]


class Adapter(ABC):
    """Builds and runs the models of one framework."""

    name: str
    """Of the framework, as `hookline.capabilities()` has it."""

    parameters: ClassVar[dict[str, str]] = {
        name: name for name in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
    }
    """What the parameters of `mlp` are called in this framework."""

    @abstractmethod
    def build(self, model: str, **parts: Any) -> Any:
        """A new model of that form; None where the framework can't have it (no operations in place, say)."""

    @abstractmethod
    def tensor(self, array: Array) -> Any:
        """A tensor of these values."""

    @abstractmethod
    def array(self, tensor: Tensor) -> Array:
        """A copy of a tensor's values; the kernel of a dense layer as (out, in)."""

    @abstractmethod
    def backward(self, model: Model, x: Array, weights: Array) -> Array:
        """The gradient of sum(model(x) * weights) with respect to x; those of parameters are computed as well."""

    @abstractmethod
    def train(self, model: Model, x: Array, weights: Array, steps: int) -> None:
        """Gradient descent with rate 0.1 on sum(model(x) * weights), by the framework's own optimizer."""

    @abstractmethod
    def compiled(self, model: Model) -> AbstractContextManager[tuple[Any, Any]]:
        """A block with (the model to attach to, a function of x that runs it compiled)."""

    def train_with_momentum(self, model: Model, x: Array, weights: Array, steps: int) -> None:
        """The same with a momentum of 0.5, where what the framework's optimizers keep is read."""
        raise NotImplementedError

    def run(self, model: Model, x: Array) -> Array:
        """model(x), without a backward."""
        return self.array(model(self.tensor(x)))

    def kernel(self, array: Array) -> Array:
        """The gradient or value of a dense layer's kernel as (out, in), where the framework has it otherwise."""
        return array

    def state(self, model: Model) -> dict[str, Any]:
        """The model's state dict, where the framework has hooks on that."""
        raise NotImplementedError


def ramp(*shape: int) -> Array:
    """Eighths from 0.5 on, no two alike: inputs and the weights of losses, whose products are exact in float32.

    >>> ramp(3).tolist()
    [0.5, 0.625, 0.75]
    """
    return ((np.arange(np.prod(shape)) + 4) / 8).astype(np.float32).reshape(shape)
