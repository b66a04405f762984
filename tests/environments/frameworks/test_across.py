"""The same models in all frameworks give the same records: forward, backward, and gradients of parameters.

It runs where the other frameworks are not: their recordings are read as numpy's arrays. `make test-frameworks` has
each of them write its recordings first.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import hookline
from tests.environments.frameworks import across

HERE = Path(__file__).parent
FRAMEWORKS = sorted(path.parent.name for path in HERE.glob("*/requirements.txt"))

PARAMETERS = {"nnx": {"weight": "kernel"}}
"""What a framework calls the parameters that others call weight and bias."""

CHANNELS_LAST = {"nnx"}
"""Frameworks with images as (batch, height, width, channel), and kernels as (..., in, out)."""


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.act1 = nn.Conv2d(1, 2, 3), nn.ReLU()
        self.conv2, self.act2 = nn.Conv2d(2, 3, 3), nn.ReLU()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(self.act2(self.conv2(self.act1(self.conv1(x)))).mean((2, 3)))


@pytest.fixture(scope="module", params=["cnn", "mlp"])
def reference(request):
    """(model's name, its recording in torch)"""
    name = request.param
    model = {"cnn": Cnn, "mlp": Mlp}[name]()
    model.load_state_dict({key: torch.tensor(value) for key, value in across.WEIGHTS[name].items()})
    x = torch.tensor(across.X[name], requires_grad=True)
    with hookline.record(model, inputs=True, grads=True) as rec:
        (model(x) * torch.tensor(across.LOSS[name])).sum().backward()
    return name, rec


def image(framework, array):
    """A value in torch's layout."""
    array = np.asarray(array)
    return array.transpose(0, 3, 1, 2) if framework in CHANNELS_LAST and array.ndim == 4 else array


def kernel(framework, array):
    """A parameter's gradient in torch's layout."""
    array = np.asarray(array)
    if framework not in CHANNELS_LAST or array.ndim == 1:
        return array
    return array.T if array.ndim == 2 else array.transpose(3, 2, 0, 1)


def same(found, wanted, what):
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-5, err_msg=what)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_records_are_those_of_torch(framework, reference):
    name, torchs = reference
    path = across.FOLDER / framework / f"{name}.safetensors"
    assert path.exists(), f"{framework} has written no recording: run make framework-{framework}"
    found = hookline.load_recording(path)
    assert found.names == torchs.names == across.SITES[name]
    for site in across.SITES[name]:
        a, b = found[site], torchs[site]
        same(image(framework, a.input[0]), b.input[0], f"{site} input")
        same(image(framework, a.output), b.output, f"{site} output")
        same(image(framework, a.grad_output), b.grad_output, f"{site} grad_output")
        same(image(framework, a.grad_input[0]), b.grad_input[0], f"{site} grad_input")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_gradients_of_parameters_are_those_of_torch(framework, reference):
    name, torchs = reference
    found = hookline.load_recording(across.FOLDER / framework / f"{name}.safetensors")
    if not hookline.capabilities()[framework].can("param_grads"):
        with pytest.raises(hookline.NotRecorded):
            _ = found["fc1" if name == "mlp" else "fc"].param_grads
        return
    for parameter in across.WEIGHTS[name]:
        site, _, own = parameter.rpartition(".")
        theirs = PARAMETERS.get(framework, {}).get(own, own)
        same(kernel(framework, found[site].param_grads[theirs]), torchs[site].param_grads[own], parameter)
