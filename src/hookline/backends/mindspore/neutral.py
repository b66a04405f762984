"""Neutral: MindSpore's names of weights, and torch's for them. The axes are torch's."""

from __future__ import annotations

from mindspore import nn

from hookline.backends.neutral import ATTENTION, Array, Form, Forms, by_class


def _one_axis(kernel: Array) -> Array:
    """The kernel (out, in, 1, length) of a convolution along one axis, without the other."""
    return kernel[:, :, 0] if kernel.ndim == 4 else kernel


NORM: Forms = {
    "gamma": (Form("weight"),),
    "beta": (Form("bias"),),
    "moving_mean": (Form("running_mean"),),
    "moving_variance": (Form("running_var"),),
}

KNOWN: dict[type, Forms] = {
    nn.BatchNorm1d: NORM,
    nn.BatchNorm2d: NORM,
    nn.BatchNorm3d: NORM,
    nn.SyncBatchNorm: NORM,
    nn.LayerNorm: NORM,
    nn.GroupNorm: NORM,
    nn.InstanceNorm1d: NORM,
    nn.InstanceNorm2d: NORM,
    nn.InstanceNorm3d: NORM,
    nn.Conv1d: {"weight": (Form("weight", _one_axis),)},
    nn.Conv1dTranspose: {"weight": (Form("weight", _one_axis),)},
    nn.Embedding: {"embedding_table": (Form("weight"),)},
    nn.PReLU: {"w": (Form("weight"),)},
    nn.MultiheadAttention: ATTENTION,
}


def forms_of(module: nn.Cell) -> Forms:
    """How a cell's own weights are kept."""
    return by_class(KNOWN, module)
