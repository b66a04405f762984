"""Describe: tensors and cells of MindSpore as facts, and inputs to run them on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from hookline.backends.facts import TensorFact
from hookline.backends.mindspore import compat
from hookline.backends.mindspore.modules import every
from hookline.backends.mindspore.values import dtype_of, from_host, is_float


def tensor_fact(tensor: Tensor) -> TensorFact:
    """Shape, dtype, device and bytes."""
    name = str(tensor.dtype).lower()
    return TensorFact(tuple(map(int, tensor.shape)), name, str(tensor.device).lower(), int(tensor.nbytes))


def zeros(model: nn.Cell, shape: tuple[int, ...], dtype: Any) -> Tensor:
    """A tensor of zeros in that dtype, or in that of the model's first floating parameter."""
    if dtype is None:
        own = (p for _, cell in every(model) for p in compat.parameters(cell).values())
        dtype = next((p.dtype for p in own if is_float(p)), ms.float32)
    return ops.zeros(shape, dtype_of(dtype))


def random_input(model: nn.Cell, shape: tuple[int, ...]) -> Tensor:
    """Numbers between -1 and 1; MindSpore's generator is left alone."""
    numbers = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    return from_host(numbers).astype(zeros(model, (1,), None).dtype)


def forward_of(module: nn.Cell) -> tuple[Callable[..., Any], str]:
    """The function that runs when the cell is called, and the class or instance that has it."""
    if "construct" in vars(module):
        return vars(module)["construct"], f"this {type(module).__name__} object"
    for base in type(module).__mro__:
        if "construct" in vars(base):
            found: Callable[..., Any] = vars(base)["construct"]
            return getattr(found, "__wrapped__", found), base.__name__
    raise AssertionError("nn.Cell itself has a construct")


@contextmanager
def evaluating(model: nn.Cell) -> Iterator[None]:
    """The model in evaluation mode; each cell's own mode comes back."""
    modes = [(cell, bool(cell.training)) for _, cell in every(model)]
    try:
        model.set_train(False)
        yield
    finally:
        for cell, training in modes:
            cell.training = training
