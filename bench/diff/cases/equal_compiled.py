"""Equal within rounding: eager and compiled by inductor."""

from __future__ import annotations

import torch
from torch import nn

from bench.diff.case import Case, equal
from bench.diff.networks import cnn, vit
from bench.diff.networks.weights import copied, lived_in


@equal("MLP")
def compiled_mlp() -> Case:
    """The same model, compiled; its norm and GELU are fused."""
    body = [nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4)]
    a = lived_in(nn.Sequential(*body))
    return Case(a, torch.compile(a), torch.randn(6, 8))


@equal("CNN")
def compiled_block() -> Case:
    """A copy of a residual block, compiled."""
    a = lived_in(cnn.Block(8))
    return Case(a, torch.compile(copied(a)), torch.randn(2, 8, 10, 10))


@equal("ViT")
def compiled_attention() -> Case:
    """Attention, compiled, with its gradients."""
    a = lived_in(vit.Attention(16))
    b = torch.compile(copied(a))
    return Case(a, b, torch.randn(2, 7, 16), loss=lambda out: out.square().mean())
