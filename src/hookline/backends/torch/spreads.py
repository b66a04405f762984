"""Spreads: how far the outputs of a module for the samples of one batch are apart, by some of them."""

from __future__ import annotations

from itertools import islice
from typing import Any

import torch
from torch import Tensor

from hookline.backends.torch import compat
from hookline.backends.torch.losses import has_values
from hookline.backends.torch.statistics import address
from hookline.backends.torch.unseen import unseen
from hookline.backends.wired import SpreadOnHost
from hookline.trees import leaves

FEWEST, MOST = 4, 64
"""Samples: of fewer nothing is told, and of more not all are looked at."""
NUMBERS = 512
"""About so many numbers of each sample are looked at."""
TENSORS = 4


def samples_of(tree: Any) -> int:
    """How many samples come into a model: the first dimension of the first tensor that has one; 0 without any.

    And 0 while torch.jit.trace notes what is asked: to it a shape is a value of the graph, not a number.
    """
    if compat.tracer() is not None:
        return 0
    return next((int(one.shape[0]) for one in leaves(tree, Tensor) if one.ndim), 0)


def spread_of(tree: Any, samples: int, on_host: SpreadOnHost | None = None) -> tuple[Any, Any] | None:
    """(spread, size) of a module's output for so many samples: RMS over its numbers of their standard deviation
    over the samples, and of the numbers themselves. Of several tensors, those of the one that is spread most.

    None where no tensor of floats has a row for each sample, or somebody would see that it is read.
    """
    fitting = [one for one in islice(leaves(tree, Tensor), TENSORS) if _fits(one, samples)]
    if len(fitting) == 1 and on_host is not None and (numbers := _read(fitting[0], on_host)) is not None:
        return numbers
    found = [_spread(one) for one in fitting]
    if len(found) < 2:
        return found[0] if found else None
    with torch.no_grad(), unseen(), compat.aside():
        spreads = torch.stack([spread for spread, _ in found])
        return spreads.max(), torch.stack([size for _, size in found])[spreads.argmax()]


def _fits(tensor: Tensor, samples: int) -> bool:
    return (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and samples >= FEWEST
        and tensor.ndim >= 2
        and tensor.shape[0] == samples
        and tensor.is_floating_point()
        and tensor.layout is torch.strided
        and tensor.numel() > 0
        and not compat.is_seen(tensor)
        and has_values(tensor)
    )


def _read(tensor: Tensor, on_host: SpreadOnHost) -> tuple[float, float] | None:
    """What `_spread` tells, of a tensor that lies line by line in memory; None of any other."""
    if tensor.dtype is not torch.float32 or not tensor.is_contiguous():
        return None
    where = address(tensor)
    if where is None:
        return None
    pointer, count, _, _ = where
    samples = tensor.shape[0]
    width = count // samples
    return on_host(pointer, min(samples, MOST), width, -(-width // NUMBERS))


def _spread(tensor: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad(), unseen(), compat.aside():
        few = tensor.detach()[:MOST].flatten(1)
        few = few[:, :: -(-few.shape[1] // NUMBERS)].float()
        return few.var(0, correction=0).mean().sqrt(), few.square().mean().sqrt()
