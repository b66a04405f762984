"""The PyTorch backend: modules and their tree, taps, gradients, values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hookline.backends.capabilities import capabilities
from hookline.backends.defaults import Immediate
from hookline.backends.protocol import Backend, ExchangeRule, Label
from hookline.backends.torch import (
    compat,
    describe,
    gradients,
    guarding,
    hashing,
    losses,
    modules,
    neutral,
    numbers,
    ops,
    optimizers,
    origin,
    parameters,
    repeating,
    state,
    statistics,
    storage,
    taps,
    values,
    weights,
)
from hookline.backends.torch.compiled.listened import subscriptions
from hookline.backends.torch.eager.mode import operator_names
from hookline.backends.torch.exporting import WithStatistics, listen, place_marks
from hookline.backends.torch.fakes.tracing import traced_run
from hookline.backends.torch.wired import TorchWiring
from hookline.errors import InvalidArgument


class TorchBackend(Immediate):
    """Enters torch.nn models, eager and compiled; see `hookline.backends.protocol.Backend`."""

    name = "torch"
    tensor: type = torch.Tensor
    framework = capabilities()["torch"]
    forward_name = "forward"

    attach = staticmethod(taps.attach)
    snapshot = staticmethod(values.snapshot)
    keep = staticmethod(values.keep)
    copying = values.COPYING
    owned = staticmethod(values.owned)
    unlike = staticmethod(values.unlike)
    fitted = staticmethod(values.fitted)
    is_readable = staticmethod(repeating.is_readable)
    host = staticmethod(repeating.host)
    from_host = staticmethod(repeating.from_host)
    dtype_of = staticmethod(repeating.dtype_of)
    keep_as_it_is = staticmethod(guarding.keep_as_it_is)
    put_grads_aside = staticmethod(guarding.put_grads_aside)
    random_state = staticmethod(repeating.random_state)
    restore_random = staticmethod(repeating.restore_random)
    same_random = staticmethod(repeating.same_random)
    graph_free = staticmethod(repeating.graph_free)
    why_no_numbers = staticmethod(values.why_no_numbers)
    write_safetensors = staticmethod(storage.write_safetensors)
    read_safetensors = staticmethod(storage.read_safetensors)
    why_silent = staticmethod(modules.why_silent)
    remarks = staticmethod(modules.remarks)
    backward_number = staticmethod(compat.graph_task)
    operator_names = staticmethod(operator_names)
    hook_operators = staticmethod(ops.hook_operators)
    in_recompute = staticmethod(compat.in_recompute)
    calls_under_way = staticmethod(compat.calls_under_way)
    version = staticmethod(values.writes)
    detached = staticmethod(values.detached)
    unseen = staticmethod(values.beside_the_model)
    sequence_number = staticmethod(compat.sequence_number)
    recomputed = staticmethod(parameters.recomputed)
    hear_parameters = staticmethod(parameters.hear_parameters)
    hear_accumulated = staticmethod(parameters.hear_accumulated)
    parameters_of = staticmethod(parameters.parameters_of)
    own_parameters = staticmethod(parameters.own_parameters)
    listener = staticmethod(gradients.listener)
    heard = staticmethod(gradients.heard)
    hear_steps = staticmethod(optimizers.hear_steps)
    wiring_source = staticmethod(TorchWiring)
    hear_losses = staticmethod(losses.hear_losses)
    repeatable = staticmethod(origin.RepeatableCall.of)
    find_origin = staticmethod(origin.find_origin)
    hear_numbers = staticmethod(numbers.hear_numbers)
    hear_moments = staticmethod(optimizers.hear_moments)
    fingerprint = staticmethod(numbers.fingerprint)
    scale = staticmethod(numbers.scale)
    as_number = staticmethod(numbers.logged)
    read_numbers = staticmethod(numbers.read_numbers)
    is_compiled = staticmethod(compat.was_compiled)
    joined_inputs = staticmethod(gradients.joined_inputs)
    joined = staticmethod(gradients.joined)
    needs_gradient = staticmethod(gradients.needs_gradient)
    tapped = staticmethod(gradients.tapped)
    place_marks = staticmethod(place_marks)
    hear_marks = staticmethod(listen)
    with_statistics = staticmethod(WithStatistics)
    place_state_hook = staticmethod(state.place_state_hook)
    replace_forward = staticmethod(taps.replace_forward)
    held_weights = staticmethod(weights.held_weights)
    write_weight = staticmethod(neutral.write_weight)
    forms_of = staticmethod(neutral.forms_of)
    tensors_of = staticmethod(parameters.tensors_of)
    gathered = staticmethod(values.gathered)
    shares_memory = staticmethod(values.shares_memory)
    address = staticmethod(statistics.address)
    exchange_of = staticmethod(statistics.exchange_of)
    exchange_rule: ExchangeRule | None = statistics.EXCHANGE_RULE
    room_like = staticmethod(values.room_like)
    side_by_side = staticmethod(statistics.side_by_side)
    reducible = staticmethod(statistics.reducible)
    reduced_on_device = staticmethod(statistics.reduced_on_device)
    scalars = staticmethod(statistics.scalars)
    fetched = staticmethod(statistics.fetched)
    bytes_of = staticmethod(hashing.bytes_of)
    hashed_on_device = staticmethod(hashing.hashed_on_device)
    traced_run = staticmethod(traced_run)
    modules_of = staticmethod(describe.modules_of)
    described_input = staticmethod(describe.described_input)
    evaluating = staticmethod(describe.evaluating)
    random_input = staticmethod(describe.random_input)
    integers = staticmethod(describe.integers)
    forward_of = staticmethod(describe.forward_of)

    def site_memory(self, module: nn.Module) -> None:
        return None

    def is_model(self, thing: Any) -> bool:
        return isinstance(thing, nn.Module)

    def named_modules(self, model: nn.Module) -> list[tuple[str, nn.Module]]:
        return modules.walk(model)

    def placed(self, model: nn.Module) -> list[Label]:
        # A parameter that two modules share has its taps once.
        found = {id(tap): tap for module in model.modules() for tap in taps.taps_on(module)}
        return [tap.label for tap in found.values()] + [
            one.label for module in model.modules() for one in subscriptions(module)
        ]

    def callee(self, module: nn.Module) -> Callable[..., Any]:
        return module.forward

    def is_training(self, model: nn.Module) -> bool:
        return model.training

    def children(self, model: nn.Module) -> list[nn.Module]:
        return list(compat.uncompiled(model).children())

    def gradient(self, parameter: torch.Tensor) -> torch.Tensor | None:
        grad = parameter.grad
        # What a sparse gradient (nn.Embedding, sparse=True) does not store is zero, and counts as such.
        return grad if grad is None or grad.layout is torch.strided else grad.to_dense()

    def value_of(self, parameter: torch.Tensor) -> torch.Tensor:
        return parameter

    def update_of(self, parameter: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        return values.detached(parameter) - before

    def lost(self, parameter: torch.Tensor, before: torch.Tensor, grad: torch.Tensor) -> torch.Tensor | None:
        after = values.detached(parameter)
        if after.dtype not in (torch.bfloat16, torch.float16):
            return None
        moved = grad != 0
        return (moved & (before == after)).sum() / moved.sum().clamp(min=1)

    def has_fractions(self, tensor: torch.Tensor) -> bool:
        return tensor.is_floating_point() or tensor.is_complex()

    def rank(self) -> int:
        distributed = torch.distributed
        return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0

    def nbytes(self, tensor: torch.Tensor) -> int:
        return tensor.numel() * tensor.element_size()

    def device(self, device: Any) -> torch.device | None:
        """A torch device from one, from its name, or None."""
        try:
            return None if device is None else torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise InvalidArgument(f"device={device!r} is no torch device: {error}") from None

    def dtype(self, dtype: Any) -> torch.dtype | None:
        """A torch dtype from one, from its name, or None."""
        found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
        if (found is None and dtype is None) or isinstance(found, torch.dtype):
            return found
        raise InvalidArgument(f"dtype={dtype!r} is no torch dtype; give torch.bfloat16 or 'bfloat16', say.")


BACKEND: Backend = TorchBackend()
