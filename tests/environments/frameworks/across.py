"""Across frameworks: one CNN and one MLP with the same numbers, which each framework records.

    cnn: conv1 (3x3, 1 to 2), act1, conv2 (3x3, 2 to 3), act2, mean over space, fc (3 to 2)
    mlp: fc1 (4 to 8), act, fc2 (8 to 2)

Weights are laid out as PyTorch has them: dense (out, in), convolution (out, in, height, width). A framework
builds both in its own layout, records a forward and a backward of sum(output * LOSS), and calls `keep`.
`test_across.py` compares, without any framework, what was kept.
"""

import numpy as np

from tests.support.paths import ROOT

FOLDER = ROOT / "build" / "records"

_rng = np.random.default_rng(20)


def _numbers(*shape):
    return _rng.standard_normal(shape).astype(np.float32)


WEIGHTS = {
    "cnn": {
        "conv1.weight": _numbers(2, 1, 3, 3),
        "conv1.bias": _numbers(2),
        "conv2.weight": _numbers(3, 2, 3, 3),
        "conv2.bias": _numbers(3),
        "fc.weight": _numbers(2, 3),
        "fc.bias": _numbers(2),
    },
    "mlp": {
        "fc1.weight": _numbers(8, 4),
        "fc1.bias": _numbers(8),
        "fc2.weight": _numbers(2, 8),
        "fc2.bias": _numbers(2),
    },
}
X = {"cnn": _numbers(2, 1, 8, 8), "mlp": _numbers(5, 4)}
LOSS = {"cnn": _numbers(2, 2), "mlp": _numbers(5, 2)}
SITES = {"cnn": ["conv1", "act1", "conv2", "act2", "fc", ""], "mlp": ["fc1", "act", "fc2", ""]}


def keep(recording, framework, model):
    """Saves what `framework` recorded of `model`, with inputs and gradients, for the comparison."""
    folder = FOLDER / framework
    folder.mkdir(parents=True, exist_ok=True)
    return recording.save(folder / f"{model}.safetensors")
