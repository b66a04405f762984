"""Changing: other numbers for an input, of the kind that it has already."""

from __future__ import annotations

import torch

KINDS = 2
"""How many kinds of change there are: other numbers of the same input, and noise on top."""


def changed(tensor: torch.Tensor, kind: int = 0) -> torch.Tensor:
    """The same shape with other numbers everywhere; ids are exchanged by such as occur.

    >>> ids = torch.tensor([[3, 5], [5, 7]])
    >>> other = changed(ids)
    >>> bool((other != ids).all()), set(other.flatten().tolist()) <= {3, 5, 7}
    (True, True)
    """
    generator = torch.Generator().manual_seed(kind + 1)
    if tensor.dtype is torch.bool:
        return ~tensor
    if not tensor.is_floating_point():
        return _other_ids(tensor, kind)
    plain = tensor.detach().double().cpu()
    spread = float(plain.std()) if plain.numel() > 1 else 0.0
    spread = spread if spread > 0 and spread == spread else max(float(plain.abs().max()), 1.0)
    noise = torch.randn(plain.shape, generator=generator, dtype=torch.float64) * spread
    moved = plain + noise if kind % KINDS else noise + float(plain.mean())
    return moved.to(tensor.device, tensor.dtype)


def _other_ids(tensor: torch.Tensor, kind: int) -> torch.Tensor:
    values = torch.unique(tensor)
    if len(values) == 1:
        only = int(values[0])
        return torch.full_like(tensor, only - 1 if only > 0 else only + 1)
    number = torch.searchsorted(values, tensor.contiguous())
    step = 1 + kind % (len(values) - 1)
    other: torch.Tensor = values[(number + step) % len(values)]
    return other


def changed_at(tensor: torch.Tensor, dim: int, places: list[int], kind: int = 0) -> torch.Tensor:
    """The same with other numbers at some places along a dimension."""
    at = torch.tensor(places, device=tensor.device)
    return tensor.detach().index_copy(dim, at, changed(tensor, kind).index_select(dim, at))
