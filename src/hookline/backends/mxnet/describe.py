"""Describe: arrays and blocks of MXNet as facts."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import mxnet
import numpy as np
from mxnet import gluon

from hookline.backends.facts import ParameterFact, TensorFact
from hookline.backends.mxnet import compat, parameters, values
from hookline.backends.nouns import Model, Module, Tensor
from hookline.errors import InvalidArgument


def tensor_fact(tensor: Tensor) -> TensorFact:
    """Shape, dtype, context and bytes of an tensor."""
    shape = tuple(map(int, tensor.shape))
    return TensorFact(shape, values.dtype_name(tensor.dtype), str(tensor.context), values.nbytes(tensor))


def held_by(block: Module) -> tuple[ParameterFact, ...]:
    """A fact for each of the block's own Parameters, also of those without numbers yet, but no running statistic.

    Of a shape that is known in part only, the count is 0: it is inferred in the first forward.
    """
    facts = []
    for name, parameter in compat.own_parameters(block).items():
        if compat.is_state(parameter):
            continue
        # An imported Parameter has numbers, and knows of no shape.
        there = compat.is_initialized(parameter)
        shape = parameters.first_array(parameter).shape if there else parameter.shape
        known = shape is not None and all(size > 0 for size in shape)
        count = int(np.prod(shape, dtype=np.int64)) if known else 0
        dtype = np.dtype(parameter.dtype)
        device = str(parameter.list_ctx()[0]) if there else ""
        trainable = parameter.grad_req != "null"
        facts.append(
            ParameterFact(
                id(parameter), name, count, count * dtype.itemsize, values.dtype_name(dtype), device, trainable
            )
        )
    return tuple(facts)


def ready_to_run(model: Model) -> tuple[Any, list[str]]:
    """The model, or where some parameters have no numbers yet a copy in which they will be zeros; and notes.

    A first forward gives parameters their shapes for good: let it be a copy's.
    """
    waiting = [p for p in model.collect_params().values() if not compat.is_initialized(p)]
    if not waiting:
        return model, []
    model = copy.deepcopy(model)
    for parameter in model.collect_params().values():
        if not compat.is_initialized(parameter):
            compat.with_zeros(parameter)
    return model, ["parameters without a shape have the one that this input gives them"]


def home_of(model: Model) -> tuple[Any, Any]:
    """The context and dtype of the first floating parameter; those of MXNet where there is none."""
    for parameter in model.collect_params().values():
        if compat.is_initialized(parameter) and np.dtype(parameter.dtype).kind == "f":
            return parameter.list_ctx()[0], np.dtype(parameter.dtype).name
    return mxnet.current_context(), "float32"


def zeros(model: Model, shape: tuple[int, ...], dtype: Any) -> Any:
    """An array of zeros as the model takes them."""
    context, own = home_of(model)
    make = mxnet.np.zeros if mxnet.util.is_np_array() else mxnet.nd.zeros
    try:
        return make(shape, ctx=context, dtype=dtype or own)
    except (mxnet.base.MXNetError, TypeError) as error:
        raise InvalidArgument(f"no array has the shape {shape} and dtype {dtype}: {error}") from None


def random_input(model: Model, shape: tuple[int, ...]) -> Any:
    """Numbers between -1 and 1 in the dtype and on the device of the first parameter."""
    context, dtype = home_of(model)
    numbers = np.random.default_rng(0).uniform(-1, 1, shape).astype(dtype)
    return values.from_host(numbers).as_in_context(context)


def forward_of(block: Module) -> tuple[Callable[..., Any], str]:
    """The function that a user wrote for the block's call, and the class or instance that has it."""
    if "forward" in vars(block):
        return vars(block)["forward"], f"this {type(block).__name__} object"
    kind: Any = type(block)
    hybrid = isinstance(block, gluon.HybridBlock) and kind.forward is gluon.HybridBlock.forward
    name = "hybrid_forward" if hybrid else "forward"
    for base in kind.__mro__:
        if name in vars(base):
            found: Callable[..., Any] = inspect.getattr_static(base, name)
            return found, base.__name__
    raise AssertionError("Block itself has a forward")
