"""Ports: three models of torch that each framework has under names of its own, for `hookline.diff` and weights.

    vision  conv (3x3, 3 to 4), norm (batch), relu, up (transposed 3x3, 4 to 5, stride 2), mean, fc (5 to 3)
    text    embed (11 to 8), norm (layer), attn (2 heads, added to x), fc1 (8 to 16), gelu, fc2 (16 to 8, added)
    sound   rnn (LSTM, 4 to 6, two layers, both ways), gru (12 to 5), fc (5 to 3)

WEIGHTS has their weights as a neutral file has them: torch's names and axes. A framework loads them into its port
by `load`, which checks that saving gives them back, records a forward, and calls `keep`. It does the same with a
port that has a mistake in it. `test_across_diff.py` compares them with torch's.
"""

import json

import numpy as np
from safetensors.numpy import load_file, save_file

import hookline
from hookline.diffs.weights import FIELD
from tests.environments.frameworks import across

_rng = np.random.default_rng(7)


def _numbers(*shape):
    return (_rng.standard_normal(shape) * 0.5).astype(np.float32)


def _dense(name, inputs, outputs):
    return {f"{name}.weight": _numbers(outputs, inputs), f"{name}.bias": _numbers(outputs)}


def _recurrent(name, gates, inputs, hidden, layers=1, ways=("",)):
    found = {}
    for layer in range(layers):
        for way in ways:
            own = f"l{layer}{way}"
            found[f"{name}.weight_ih_{own}"] = _numbers(
                gates * hidden, inputs if layer == 0 else len(ways) * hidden
            )
            found[f"{name}.weight_hh_{own}"] = _numbers(gates * hidden, hidden)
            found[f"{name}.bias_ih_{own}"], found[f"{name}.bias_hh_{own}"] = (
                _numbers(gates * hidden),
                _numbers(gates * hidden),
            )
    return found


WEIGHTS = {
    "vision": {
        "conv.weight": _numbers(4, 3, 3, 3),
        "conv.bias": _numbers(4),
        "norm.weight": _numbers(4),
        "norm.bias": _numbers(4),
        "norm.running_mean": _numbers(4),
        "norm.running_var": np.abs(_numbers(4)) + 0.5,
        "up.weight": _numbers(4, 5, 3, 3),
        "up.bias": _numbers(5),
        **_dense("fc", 5, 3),
    },
    "text": {
        "embed.weight": _numbers(11, 8),
        "norm.weight": _numbers(8),
        "norm.bias": _numbers(8),
        **_dense("attn.q_proj", 8, 8),
        **_dense("attn.k_proj", 8, 8),
        **_dense("attn.v_proj", 8, 8),
        **_dense("attn.out_proj", 8, 8),
        **_dense("fc1", 8, 16),
        **_dense("fc2", 16, 8),
    },
    "sound": {
        **_recurrent("rnn", 4, 4, 6, 2, ("", "_reverse")),
        **_recurrent("gru", 3, 12, 5),
        **_dense("fc", 5, 3),
    },
}
TYPES = {
    "vision": {"conv": "Conv2d", "norm": "BatchNorm2d", "up": "ConvTranspose2d", "fc": "Linear"},
    "text": {
        "embed": "Embedding",
        "norm": "LayerNorm",
        "attn.out_proj": "NonDynamicallyQuantizableLinear",
    },
    "sound": {"rnn": "LSTM", "gru": "GRU"},
}
"""Those of modules that are not Linear, as torch calls them."""
X = {
    "vision": _numbers(2, 3, 6, 6),  # (batch, channel, height, width)
    "text": _rng.integers(0, 11, (2, 5)).astype(np.int32),
    "sound": _numbers(2, 7, 4),  # (batch, time, feature)
}


def load(model, name, folder, map=None):
    """Puts the weights of `name` into a port, and has them back from it: what went where."""
    path = folder / f"{name}.safetensors"
    told = {own: {"type": TYPES[name].get(own.rpartition(".")[0], "Linear")} for own in WEIGHTS[name]}
    save_file(WEIGHTS[name], path, {FIELD: json.dumps({"weights": told})})  # as torch's save_weights writes it
    loaded = hookline.load_weights(model, path, map=map)
    back = load_file(hookline.save_weights(model, folder / "back.safetensors"))
    assert set(loaded.placed) == set(WEIGHTS[name]) and set(loaded.placed.values()) == set(back)
    for own, theirs in loaded.placed.items():
        np.testing.assert_array_equal(back[theirs], WEIGHTS[name][own], err_msg=f"{own} to {theirs}")
    return loaded


def keep(recording, framework, name):
    """Keeps what a framework recorded of its port for the comparison."""
    return across.keep(recording, framework, f"port-{name}")
