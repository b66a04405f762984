"""Neutral: MXNet's names of weights, and torch's for them. In its plain layouts the axes are torch's."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from mxnet.gluon import nn, rnn

from hookline.backends.mxnet import compat
from hookline.backends.neutral import Array, Form, Forms, by_class
from hookline.backends.nouns import Module

NORM: Forms = {"gamma": (Form("weight"),), "beta": (Form("bias"),)}

KNOWN: dict[type, Forms] = {
    nn.BatchNorm: NORM,
    nn.LayerNorm: NORM,
    nn.GroupNorm: NORM,
    nn.InstanceNorm: NORM,
    nn.PReLU: {"alpha": (Form("weight"),)},
}

CONVOLUTIONS = tuple(getattr(nn, f"Conv{n}D{how}") for n in (1, 2, 3) for how in ("", "Transpose"))
RECURRENT = (rnn.RNN, rnn.LSTM, rnn.GRU, rnn.RNNCell, rnn.LSTMCell, rnn.GRUCell)
_PART = re.compile(r"(?:([lr])(\d+)_)?([ih])2h_(weight|bias)")


def forms_of(module: Module) -> Forms:
    """How a block's own weights are kept."""
    if isinstance(module, CONVOLUTIONS) and compat.layout(module).endswith("C"):
        return {"weight": (Form("weight", _channels_second),)}
    if isinstance(module, RECURRENT):
        return {name: (Form(_recurrent(name)),) for name in _names(module)}
    return by_class(KNOWN, module)


def _channels_second(kernel: Array) -> Array:
    """A kernel (out, *kernel, in) as (out, in, *kernel)."""
    return np.moveaxis(kernel, -1, 1)


def _names(module: Any) -> list[str]:
    return [name for name in compat.own_parameters(module) if _PART.fullmatch(name)]


def _recurrent(name: str) -> str:
    """torch's name of a weight of a recurrent layer: l0_i2h_weight is weight_ih_l0.

    >>> _recurrent("l0_i2h_weight"), _recurrent("r1_h2h_bias"), _recurrent("i2h_bias")
    ('weight_ih_l0', 'bias_hh_l1_reverse', 'bias_ih')
    """
    way, layer, of, kind = _PART.fullmatch(name).groups()  # type: ignore[union-attr]
    return f"{kind}_{of}h" + (f"_l{layer}" if layer else "") + ("_reverse" if way == "r" else "")
