"""Weights: carried over from a reference to its port, and as different from each other as trained ones are."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def lived_in(model: Model) -> Model:
    """The model in eval mode, with norms, biases and running statistics that are no longer those of a new one."""
    for name, value in model.named_parameters():
        with torch.no_grad():
            if value.dim() == 1 and name.endswith("weight"):
                value.mul_(1 + 0.3 * torch.randn_like(value))
            elif value.dim() == 1:
                value.add_(0.2 * torch.randn_like(value))
    for name, value in model.named_buffers():
        if name.endswith("running_mean"):
            value.add_(0.3 * torch.randn_like(value))
        elif name.endswith("running_var"):
            value.mul_(0.3 + torch.rand_like(value))
    return model.eval()


def ported(reference: nn.Module, port: Model, strict: bool = True) -> Model:
    """The port, with the weights, the mode and the dtype of the reference."""
    port.load_state_dict(reference.state_dict(), strict=strict)
    return port.train(reference.training)


def copied(model: Model) -> Model:
    """A copy, to be broken."""
    return copy.deepcopy(model)


def exchange(one: torch.Tensor, other: torch.Tensor) -> None:
    """Exchanges the values of two tensors."""
    kept = one.detach().clone()
    with torch.no_grad():
        one.copy_(other)
        other.copy_(kept)


def exchange_all(one: nn.Module, other: nn.Module) -> None:
    """Exchanges all weights of two modules of the same form."""
    mine = dict(one.named_parameters())
    for name, theirs in other.named_parameters():
        exchange(mine[name], theirs)
