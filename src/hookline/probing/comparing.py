"""Comparing: whether two tensors differ by more than rounding, and in which places."""

from __future__ import annotations

import torch

from hookline.backends.torch.guarding import same_bits

ROUNDING = 64
"""How many of the dtype's smallest steps, relative to the largest number, are rounding: an FFT mixes that much."""
FEW = 0.005
"""In half precision a step is large, and rounding shows in few of the numbers only: this share of them."""
HALF = (torch.float16, torch.bfloat16)
NOISE = 10.0
"""What is as small as so many times the measured noise is noise."""


def difference(one: torch.Tensor, other: torch.Tensor, scale: float | None = None, noise: float = 0.0) -> float:
    """How far two tensors are apart, relative to `scale` or to their largest number; 0.0 where it is rounding.

    >>> a = torch.ones(4)
    >>> difference(a, a + 1e-7), difference(a, a * 1.5), difference(a, a.long())
    (0.0, 0.5, inf)
    """
    if one.shape != other.shape or one.dtype != other.dtype:
        return float("inf")
    if same_bits(one, other):
        return 0.0
    if not one.is_floating_point() and not one.is_complex():
        return 1.0
    wide = torch.complex128 if one.is_complex() else torch.float64
    a, b = one.detach().to(wide), other.detach().to(wide)
    apart = (a - b).abs()
    apart = torch.where((a == b) | (a.isnan() & b.isnan()), torch.zeros_like(apart), apart)
    if not bool(apart.isfinite().all()):
        return float("inf")
    largest = float(apart.max())
    if largest == 0.0:  # 0.0 and -0.0
        return 0.0
    if one.dtype in HALF:
        if float((apart > 0).double().mean()) < FEW:
            return 0.0
        smallest = 0.0
    else:
        smallest = ROUNDING * torch.finfo(one.dtype).eps
    relative = largest / ((scale or scale_of(one)) or 1.0)
    return relative if relative > max(smallest, NOISE * noise) else 0.0


def scale_of(tensor: torch.Tensor) -> float:
    """The largest finite number of a tensor, without its sign; 0.0 where there is none."""
    if tensor.numel() == 0:
        return 0.0
    sizes = tensor.detach().abs().double()
    return float(torch.where(sizes.isfinite(), sizes, torch.zeros_like(sizes)).max())


def is_float(tensor: torch.Tensor) -> bool:
    """Whether a tensor's numbers can move a little."""
    return tensor.is_floating_point() or tensor.is_complex()


def positions_apart(one: torch.Tensor, other: torch.Tensor, dim: int, noise: float = 0.0) -> list[int]:
    """Which places along a dimension differ."""
    scale = scale_of(one)
    pairs = zip(one.unbind(dim), other.unbind(dim), strict=True)
    return [at for at, (a, b) in enumerate(pairs) if difference(a, b, scale, noise)]
