"""Reference: the MLP of the suite in numpy, forward and backward."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hookline.testing.conformance.adapter import Array

_rng = np.random.default_rng(7)
WEIGHTS: dict[str, Array] = {
    name: _rng.standard_normal(shape).astype(np.float32)
    for name, shape in (("fc1.weight", (3, 4)), ("fc1.bias", (3,)), ("fc2.weight", (2, 3)), ("fc2.bias", (2,)))
}
X: Array = _rng.standard_normal((5, 4)).astype(np.float32)
LOSS: Array = _rng.standard_normal((5, 2)).astype(np.float32)
"""What the output is weighted with."""


class Mlp(NamedTuple):
    """Everything that happens in one forward and backward of the MLP."""

    outputs: dict[str, Array]
    grad_outputs: dict[str, Array]
    grad_inputs: dict[str, Array]
    param_grads: dict[str, Array]


def mlp(x: Array = X, loss: Array = LOSS, weights: dict[str, Array] | None = None) -> Mlp:
    """The MLP of `weights` on x, in float64."""
    w = {name: value.astype(np.float64) for name, value in (weights or WEIGHTS).items()}
    x, loss = x.astype(np.float64), loss.astype(np.float64)
    hidden = x @ w["fc1.weight"].T + w["fc1.bias"]
    active = np.maximum(hidden, 0)
    out = active @ w["fc2.weight"].T + w["fc2.bias"]
    to_active = loss @ w["fc2.weight"]
    to_hidden = to_active * (hidden > 0)
    to_x = to_hidden @ w["fc1.weight"]
    return Mlp(
        {"fc1": hidden, "act": active, "fc2": out, "": out},
        {"fc1": to_hidden, "act": to_active, "fc2": loss, "": loss},
        {"fc1": to_x, "act": to_hidden, "fc2": to_active, "": to_x},
        {
            "fc1.weight": to_hidden.T @ x,
            "fc1.bias": to_hidden.sum(0),
            "fc2.weight": loss.T @ active,
            "fc2.bias": loss.sum(0),
        },
    )
