"""The NNX backend: flax.nnx.Module, inside and outside of JAX's transforms. Imported when such a model comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from hookline.backends import arrays
from hookline.backends.capabilities import capabilities
from hookline.backends.defaults import Defaults
from hookline.backends.nnx import (
    compat,
    describe,
    events,
    modules,
    neutral,
    ops,
    optimizers,
    parameters,
    statistics,
    taps,
    values,
)
from hookline.backends.nnx.gradients import NNXGradients
from hookline.backends.nnx.leaves import Array, NotSent, array_of
from hookline.backends.nnx.replay import replayed_call
from hookline.backends.nnx.user_hooks import TracedHook, original_of
from hookline.backends.nouns import Tensor, Tree
from hookline.backends.protocol import Address, Backend, Label
from hookline.rows import HEADER


class NNXBackend(NNXGradients, Defaults):
    """Enters nnx models; see `hookline.backends.protocol.Backend`."""

    name = "nnx"
    tensor: type = Array
    framework = capabilities()["nnx"]
    forward_name = "__call__"
    tells_at_once = False
    not_called = (
        "the model was not called in this block; or it was by code that was compiled before, which JAX does not "
        "compile anew: a function that holds the model itself and does not take it as an argument, "
        "nnx.cached_partial, or a graph that was split earlier. jax.clear_caches() helps the first; make the "
        "others anew in the block"
    )

    attach = staticmethod(taps.attach)
    placed = staticmethod(taps.placed_on)
    replace_forward = staticmethod(taps.replace_forward)
    settled = staticmethod(events.settled)
    lasting = staticmethod(original_of)

    children = staticmethod(modules.children)
    tensors_of = staticmethod(parameters.tensors_of)
    own_parameters = staticmethod(modules.own_parameters)
    hear_parameters_of = staticmethod(parameters.hear_parameters)
    why_silent = staticmethod(modules.why_silent)

    snapshot = staticmethod(values.snapshot)
    fitted = staticmethod(values.fitted)
    read_weight = staticmethod(compat.raw_value)
    write_weight = staticmethod(compat.set_raw_value)
    forms_of = staticmethod(neutral.forms_of)
    host = staticmethod(values.host)
    dtype = staticmethod(values.dtype)
    hook_operators = staticmethod(ops.hook_operators)
    hear_steps = staticmethod(optimizers.hear_steps)

    modules_of = staticmethod(describe.modules_of)
    described_input = staticmethod(describe.described_input)
    traced_run = staticmethod(describe.traced_run)
    evaluating = staticmethod(describe.evaluating)
    random_input = staticmethod(describe.random_input)
    integers = staticmethod(describe.integers)
    forward_of = staticmethod(describe.forward_of)

    def is_model(self, thing: Any) -> bool:
        return isinstance(thing, nnx.Module)

    def named_modules(self, model: nnx.Module) -> Iterator[tuple[str, nnx.Module]]:
        return modules.walk(model)

    def hooked(self, hook: Callable[..., Any], label: Label) -> Callable[..., Any]:
        return TracedHook(hook, label, original_of)

    def from_host(self, array: NDArray[Any]) -> jax.Array:
        return jnp.array(array)

    def detached(self, tensor: Tensor) -> Any:
        return array_of(tensor)

    def device(self, device: Any) -> Any:
        return values.device(device)

    def version(self, tensor: Tensor) -> int:
        """An array of JAX is never written to."""
        return super().version(tensor) if isinstance(tensor, (np.ndarray, nnx.Variable)) else 0

    def nbytes(self, tensor: Tensor) -> int:
        return int(array_of(tensor).nbytes)

    def needs_gradient(self, tree: Tree) -> bool:
        call = replayed_call()
        return super().needs_gradient(tree) if call is None else call.differentiated

    def is_training(self, model: nnx.Module) -> bool:
        call = replayed_call()
        return modules.is_training(model) if call is None else call.training

    # Statistics: of real values by numpy and the C kernel, of traced ones in the program itself

    def address(self, tensor: Tensor, strided: bool = False) -> Address | None:
        tensor = array_of(tensor)
        if isinstance(tensor, jax.Array) and _readable(tensor):
            tensor = np.asarray(tensor)
        return arrays.address(tensor, strided)

    def reducible(self, tensor: Tensor) -> Any:
        tensor = array_of(tensor)
        if isinstance(tensor, NotSent):
            return tensor
        if isinstance(tensor, np.ndarray) or _readable(tensor):
            return arrays.reducible(values.host(tensor))
        return statistics.numbers_of(tensor)

    def reduced_on_device(self, tensor: Tensor, histogram: bool, dim: int | None = None) -> Any:
        if isinstance(tensor, NotSent):
            rows = tensor.rows.get((histogram, dim))
            return tensor.rows[True, dim][:HEADER] if rows is None else rows
        if isinstance(tensor, np.ndarray):
            return arrays.words(tensor, histogram, dim)
        return statistics.packed(tensor, histogram, dim)

    def scalars(self, functions: list[Callable[..., Any]], tensor: Tensor) -> Any:
        if isinstance(tensor, NotSent):
            return tensor.numbers[tuple(functions)]
        if isinstance(tensor, np.ndarray):
            return super().scalars(functions, tensor)
        return statistics.scalars(functions, tensor)

    def fetched(self, tensors: list[Any]) -> list[Any]:
        found = jax.device_get(tensors)
        return [(one if one.dtype == np.int64 else statistics.unpacked(one)).reshape(-1) for one in found]

    def bytes_of(self, tensor: Tensor) -> NDArray[Any] | None:
        array = array_of(tensor)  # of traced code only statistics are sent
        return None if isinstance(array, NotSent) else super().bytes_of(values.host(array))

    # A step that compiled code made is told later

    def value_of(self, parameter: Tensor) -> Any:
        step = optimizers.replayed_step()
        return parameter if step is None else step.value(parameter)

    def update_of(self, parameter: Tensor, before: Any) -> Any:
        step = optimizers.replayed_step()
        return super().update_of(parameter, before) if step is None else step.update(parameter)

    def lost(self, parameter: Tensor, before: Any, grad: Tensor) -> Any:
        step = optimizers.replayed_step()
        return super().lost(parameter, before, grad) if step is None else step.lost(parameter)


def _readable(array: Tensor) -> bool:
    """Whether the values lie in this process's memory, in one piece."""
    return not isinstance(array, jax.core.Tracer) and all(d.platform == "cpu" for d in array.devices())


BACKEND: Backend = NNXBackend()
