"""Guarding: whatever a forward does to a model is taken back, also where it raises or is interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from hookline.backends.torch.fakes.standins import borrow, has_lazy, keep_attributes
from hookline.backends.undoing import Undoing
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
        for parameter in model.parameters():
            undoing.noted(_put_grad, parameter, parameter.grad)
            undoing.noted(parameter.requires_grad_, parameter.requires_grad)
            parameter.grad = None  # a forward that calls backward makes new ones, and leaves the old alone


def keep_as_it_is(undoing: Undoing, model: nn.Module) -> None:
    """The same for a run as users do it, compiled code included; gradients of parameters begin at None.

    InvalidArgument where a first call would change the model for good.
    """
    if has_lazy(model):
        kind = type(model).__name__
        raise InvalidArgument(
            f"the {kind} has lazy modules, which become others at their first call. Call it once before."
        )
    keep_attributes(undoing, model)
    _keep_tensors(undoing, model, weights=False)
    for parameter in model.parameters():
        undoing.noted(_put_grad, parameter, parameter.grad)
        parameter.grad = None


def _keep_tensors(undoing: Undoing, model: nn.Module, *, weights: bool) -> None:
    for tensor in {id(one): one for one in held(model)}.values():
        if weights or not isinstance(tensor, nn.Parameter):
            _keep(undoing, tensor)


def held(model: nn.Module) -> Iterator[torch.Tensor]:
    """Every tensor that a module of the model holds, as parameter, buffer or plain attribute, also in a list."""
    for module in model.modules():
        for value in list(vars(module).values()):
            yield from leaves(value, torch.Tensor)


def _put_grad(parameter: nn.Parameter, grad: Any) -> None:
    parameter.grad = grad


def _keep(undoing: Undoing, tensor: torch.Tensor) -> None:
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
