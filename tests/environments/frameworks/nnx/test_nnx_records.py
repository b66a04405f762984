"""Writes the recordings that test_across.py compares with torch's: compiled, channels last, kernels transposed."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import hookline
from tests.environments.frameworks import across

from .models import Mlp, Relu


class Cnn(nnx.Module):
    def __init__(self, weights):
        rngs = nnx.Rngs(0)
        self.conv1, self.act1 = nnx.Conv(1, 2, (3, 3), padding="VALID", rngs=rngs), Relu()
        self.conv2, self.act2 = nnx.Conv(2, 3, (3, 3), padding="VALID", rngs=rngs), Relu()
        self.fc = nnx.Linear(3, 2, rngs=rngs)
        for name in ("conv1", "conv2", "fc"):
            layer, weight = getattr(self, name), weights[f"{name}.weight"]
            layer.kernel[...] = jnp.asarray(weight.T if weight.ndim == 2 else weight.transpose(2, 3, 1, 0))
            layer.bias[...] = jnp.asarray(weights[f"{name}.bias"])

    def __call__(self, x):
        return self.fc(self.act2(self.conv2(self.act1(self.conv1(x)))).mean((1, 2)))


MODELS = {"cnn": Cnn, "mlp": lambda weights: Mlp((4, 8, 2), weights)}


@pytest.mark.parametrize("name", MODELS)
def test_a_recording_is_kept_for_the_comparison(name):
    model = MODELS[name](across.WEIGHTS[name])
    x = jnp.asarray(across.X[name].transpose(0, 2, 3, 1) if name == "cnn" else across.X[name])
    weights = jnp.asarray(across.LOSS[name])
    grad = nnx.jit(nnx.grad(lambda model, x: (model(x) * weights).sum(), argnums=(0, 1)))
    with hookline.record(model, inputs=True, grads=True) as rec:
        _, to_x = grad(model, x)
    assert rec.names == across.SITES[name]
    np.testing.assert_array_equal(rec[""].grad_input[0], to_x)
    assert across.keep(rec, "nnx", name).exists()
