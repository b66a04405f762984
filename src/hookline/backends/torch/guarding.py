"""Guarding: whatever a forward does to a model is taken back, also where it raises or is interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from hookline.backends.torch.fakes.standins import borrow, has_lazy, keep_attributes
from hookline.backends.undoing import Noting, Steps, Undoing
from hookline.errors import InvalidArgument
from hookline.trees import leaves


def guard(undoing: Undoing, model: nn.Module, *, weights: bool) -> None:
    """Until the undoing, the model may be run in any mode; then it is what it was, and so is all randomness.

    That is: attributes, modes, hooks, buffers, tensors that are plain attributes, and with `weights` parameters
    with their gradients and flags.
    """
    borrow(undoing, model, None, lambda tensor: tensor)
    for module in model.modules():  # TorchScript's do not keep it among their attributes
        undoing.noted(setattr, module, "training", module.training)
    _keep_tensors(undoing, model, weights=weights)
    if weights:
        put_grads_aside(undoing, model)  # a forward that calls backward makes new ones, and leaves the old alone
        for parameter in model.parameters():
            undoing.noted(parameter.requires_grad_, parameter.requires_grad)


def keep_as_it_is(steps: Steps, model: nn.Module) -> None:
    """Notes the same for runs as users do them, compiled code included.

    InvalidArgument where a first call would change the model for good.
    """
    if has_lazy(model):
        kind = type(model).__name__
        raise InvalidArgument(
            f"the {kind} has lazy modules, which become others at their first call. Call it once before."
        )
    keep_attributes(steps, model)
    _keep_tensors(steps, model, weights=False)


def put_grads_aside(undoing: Undoing, model: nn.Module) -> None:
    """Until the undoing, parameters have no gradients of their own; then they have those of now."""
    before = [(parameter, parameter.grad) for parameter in model.parameters()]
    undoing.noted(_put_grads, before)
    for parameter, grad in before:
        if grad is not None:
            parameter.grad = None


def _put_grads(before: list[tuple[nn.Parameter, Any]]) -> None:
    for parameter, grad in before:
        if parameter.grad is not grad:
            parameter.grad = grad


def _keep_tensors(undoing: Noting, model: nn.Module, *, weights: bool) -> None:
    for tensor in {id(one): one for one in held(model)}.values():
        if weights or not isinstance(tensor, nn.Parameter):
            _keep(undoing, tensor)


def held(model: nn.Module) -> Iterator[torch.Tensor]:
    """Every tensor that a module of the model holds, as parameter, buffer or plain attribute, also in a list."""
    for module in model.modules():
        for value in list(vars(module).values()):
            yield from leaves(value, torch.Tensor)


def _keep(undoing: Noting, tensor: torch.Tensor) -> None:
    if is_lazy(tensor) or tensor.is_meta or tensor.is_nested or tensor.layout is not torch.strided:
        return
    undoing.noted(_put_back, tensor, tensor.detach().clone())


@torch.no_grad()
def _put_back(tensor: torch.Tensor, before: torch.Tensor) -> None:
    now = tensor.detach()
    if now.shape != before.shape or now.dtype != before.dtype or now.device != before.device:
        tensor.data = before
    elif not same_bits(now, before):  # a tensor that nobody wrote to is not written to
        now.copy_(before)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same bytes: NaN equals itself here."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.numel() == 0 or one.is_meta:
        return True
    return torch.equal(_bytes(one), _bytes(other))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
