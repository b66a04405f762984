"""Neutral: NNX's names and axes of weights, and torch's for them. A kernel has its output last."""

from __future__ import annotations

from flax import nnx

from hookline.backends.neutral import Form, Forms, by_class, flat, last_first, line, turned

KERNEL: Forms = {"kernel": (Form("weight", last_first),)}
NORM: Forms = {
    "scale": (Form("weight"),),
    "mean": (Form("running_mean"),),
    "var": (Form("running_var"),),
}

KNOWN: dict[type, Forms] = {
    nnx.Linear: KERNEL,
    nnx.Conv: KERNEL,
    nnx.ConvTranspose: {"kernel": (Form("weight", turned),)},
    nnx.Embed: {"embedding": (Form("weight"),)},
    nnx.BatchNorm: NORM,
    nnx.LayerNorm: NORM,
    nnx.RMSNorm: NORM,
    nnx.GroupNorm: NORM,
    nnx.InstanceNorm: NORM,
    nnx.PReLU: {"negative_slope": (Form("weight", line),)},
}


def forms_of(module: nnx.Module) -> Forms:
    """How a module's own weights are kept."""
    if isinstance(module, nnx.LinearGeneral):
        return {
            "kernel": (Form("weight", flat(len(module.in_features)), "Linear"),),
            "bias": (Form("bias", line, "Linear"),),
        }
    if isinstance(module, nnx.ConvTranspose) and module.transpose_kernel:
        return KERNEL
    return by_class(KNOWN, module)
