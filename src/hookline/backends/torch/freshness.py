"""Freshness: whether a weight is as its layer drew it when it was made.

Torch draws in few ways, and training leaves none of them as it was.
"""

from __future__ import annotations

from math import prod, sqrt

import torch
from torch import Tensor

from hookline.backends.torch import compat
from hookline.backends.torch.losses import has_values
from hookline.backends.torch.unseen import unseen

FEWEST, MOST = 64, 65_536
"""Elements: of fewer nobody can tell, and of more not all are looked at."""
SURE = 4.0
"""Standard errors that a deviation may be off."""


def is_fresh(weight: Tensor) -> bool | None:
    """Whether a matrix is drawn as Linear, the convolutions (uniform up to the root of 1 / fan-in) or Embedding
    (standard normal) do; None where that can't be told.

    >>> is_fresh(torch.nn.Linear(20, 30).weight), is_fresh(torch.ones(20, 30))
    (True, False)
    """
    known = type(weight) in (Tensor, torch.nn.Parameter) and weight.layout is torch.strided
    if not known or weight.ndim < 2 or weight.numel() < FEWEST or not weight.is_floating_point():
        return None
    if compat.is_seen(weight) or not has_values(weight):
        return None
    with torch.no_grad(), unseen(), compat.aside():
        some = weight.detach().reshape(-1)
        some = some[:: -(-some.numel() // MOST)].float()
        largest, mean, std = torch.stack([some.abs().max(), some.mean(), some.std()]).tolist()
    bound = 1 / sqrt(prod(weight.shape[1:]))
    off = SURE / sqrt(some.numel())
    uniform = largest <= bound * 1.001 and abs(std * sqrt(3) / bound - 1) < off
    normal = weight.ndim == 2 and abs(mean) < off and abs(std - 1) < off
    return uniform or normal
