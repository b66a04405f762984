"""Neutral: which of torch's weights are kept otherwise in a neutral file, whose names and axes are torch's."""

from __future__ import annotations

import torch
from torch import nn

from hookline.backends.neutral import ATTENTION, Form, Forms, by_class, last_first

KNOWN: dict[type, Forms] = {nn.MultiheadAttention: ATTENTION}
FOREIGN: dict[str, Forms] = {
    # Dense, with a weight (in, out), though its name says otherwise.
    "transformers.pytorch_utils.Conv1D": {"weight": (Form("weight", last_first, "Linear"),)},
}
"""Classes that are not imported for this."""


def forms_of(module: nn.Module) -> Forms:
    """How a module's own weights are kept; counts and buffers that are no part of a state dict are not."""
    kind = type(module)
    known = FOREIGN.get(f"{kind.__module__}.{kind.__qualname__}") or by_class(KNOWN, module)
    left = {*module._non_persistent_buffers_set, "num_batches_tracked"}
    return {**known, **dict.fromkeys(left, ())}


def write_weight(tensor: torch.Tensor, data: torch.Tensor) -> None:
    """Has a parameter or buffer hold other numbers, outside of any graph."""
    with torch.no_grad():
        tensor.copy_(data)
