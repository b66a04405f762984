"""Ports of torch models to other frameworks: `hookline.diff` finds them the same, or the place of the mistake.

It runs after each framework has written its recordings: see `porting.py` and `make test-frameworks`.
"""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import hookline
from hookline.diffs.weights import FIELD
from hookline.recording.seals import header_of
from tests.environments.frameworks import across, porting
from tests.environments.frameworks.test_across import Cnn, Mlp

HERE = Path(__file__).parent
FRAMEWORKS = sorted(path.parent.name for path in HERE.glob("*/requirements.txt"))


class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        self.up, self.fc = nn.ConvTranspose2d(4, 5, 3, stride=2), nn.Linear(5, 3)

    def forward(self, x):
        return self.fc(self.up(self.act(self.norm(self.conv(x)))).mean((2, 3)))


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(11, 8), nn.LayerNorm(8)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.fc1, self.act, self.fc2 = nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)

    def forward(self, ids):
        x = self.embed(ids)
        h = self.norm(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.fc2(self.act(self.fc1(x)))


class Sound(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(12, 5, batch_first=True)
        self.fc = nn.Linear(5, 3)

    def forward(self, x):
        return self.fc(self.gru(self.rnn(x)[0])[0])


MODELS = {"vision": Vision, "text": Text, "sound": Sound}
PORTS = [(framework, name) for framework in FRAMEWORKS for name in MODELS if (framework, name) != ("nnx", "sound")]
"""NNX has cells of an LSTM and no layers, with one bias where torch has two."""
WRONG = {
    ("mindspore", "vision"): "norm",
    ("mindspore", "text"): "act",
    ("mindspore", "sound"): "fc",
    ("mxnet", "vision"): "norm",
    ("mxnet", "text"): "norm",
    ("mxnet", "sound"): "fc",
    ("nnx", "vision"): "norm",
    ("nnx", "text"): "fc2",  # its activation is a function: the first place that is recorded comes after it
}
"""Where a port has its mistake, or the first recorded place after it."""
NAMES = {
    "vision": {"conv": "stem", "norm": "bn", "up": "grow", "fc": "head"},
    "text": {"embed": "tokens", "norm": "ln", "attn": "mixing", "fc1": "wide", "fc2": "narrow"},
    "sound": {"rnn": "lstm", "gru": "gated", "fc": "head"},
}
"""What all ports call the modules."""


def last(name):
    return {"to": name, "layout": "channels_last"}


def by_hand(framework, name):
    """The map that a user writes."""
    found = dict(NAMES[name])
    if (framework, name) == ("nnx", "vision"):
        found |= {one: last(found[one]) for one in ("conv", "norm", "up")} | {"": last("")}
    return found


def reference(name, tmp_path):
    """The recording of torch's model."""
    model = MODELS[name]().eval()
    loaded = porting.load(model, name, tmp_path)
    assert all(one == other for one, other in loaded.placed.items())
    with torch.no_grad(), hookline.record(model, inputs=True) as rec:
        model(torch.tensor(porting.X[name]))
    return rec


def kept(framework, name):
    path = across.FOLDER / framework / f"port-{name}.safetensors"
    assert path.exists(), f"{framework} has written no recording: run make framework-{framework}"
    return path


def test_the_file_that_frameworks_load_is_that_of_torch(tmp_path):
    for name, make in MODELS.items():
        model = make()
        porting.load(model, name, tmp_path)
        told = json.loads(header_of(hookline.save_weights(model, tmp_path / "w"))["__metadata__"][FIELD])
        wrote = json.loads(header_of(tmp_path / f"{name}.safetensors")["__metadata__"][FIELD])
        assert told["weights"] == wrote["weights"]


@pytest.mark.parametrize(("framework", "name"), PORTS)
def test_ports_without_a_mistake_are_the_same_by_hand(framework, name, tmp_path):
    rec = reference(name, tmp_path)
    found = hookline.diff(rec, kept(framework, name), map=by_hand(framework, name))
    assert not found, str(found)
    outputs = {one.site: one.other for one in found.sites if one.kind == "output"}
    assert outputs[""] == "" and len(outputs) >= len(NAMES[name])


@pytest.mark.parametrize(("framework", "name"), PORTS)
def test_a_proposed_map_finds_them_the_same(framework, name, tmp_path):
    rec = reference(name, tmp_path)
    port = hookline.load_recording(kept(framework, name))
    found = hookline.propose_map(rec, port, tmp_path / "map.toml")
    pairs = {rule.a: rule.b for rule in found.rules}
    assert {one: pairs.get(one) for one in NAMES[name]} == NAMES[name], str(pairs)
    assert not hookline.diff(rec, port, map=tmp_path / "map.toml")


@pytest.mark.parametrize(("framework", "name"), PORTS)
def test_the_mistake_of_a_port_is_found(framework, name, tmp_path):
    rec = reference(name, tmp_path)
    found = hookline.diff(rec, kept(framework, f"{name}-wrong"), map=by_hand(framework, name))
    assert found and found.first.site == WRONG[framework, name]
    assert found.first.other == NAMES[name].get(found.first.site, found.first.site)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", ["cnn", "mlp"])
def test_gradients_are_compared_too(framework, name):
    """The recordings of `across`: names are the same, NNX has its channels and the outputs of kernels last."""
    model = {"cnn": Cnn, "mlp": Mlp}[name]()
    model.load_state_dict({key: torch.tensor(value) for key, value in across.WEIGHTS[name].items()})
    x = torch.tensor(across.X[name], requires_grad=True)
    with hookline.record(model, inputs=True, grads=True) as rec:
        (model(x) * torch.tensor(across.LOSS[name])).sum().backward()
    last = {"**": {"to": "**", "layout": "channels_last"}} if (framework, name) == ("nnx", "cnn") else None
    found = hookline.diff(rec, across.FOLDER / framework / f"{name}.safetensors", map=last)
    assert not found, str(found)
    compared = {one.site for one in found.sites if one.kind == "param_grad"}
    if hookline.capabilities()[framework].can("param_grads"):
        assert compared == set(across.WEIGHTS[name])
    assert {one.kind for one in found.sites} >= {"input", "output", "grad_input", "grad_output"}


def test_a_gradient_of_a_weight_that_differs_is_found():
    """In the layout of the other framework, and under its name for the weight."""
    found = hookline.diff(_mlp(1.0), across.FOLDER / "nnx" / "mlp.safetensors")
    assert not found
    found = hookline.diff(_mlp(1.01), across.FOLDER / "nnx" / "mlp.safetensors")
    assert found and found.first.kind == "param_grad" and found.first.site == "fc2.weight", str(found)
    assert found.first.other == "fc2.kernel"


def _mlp(scale):
    """torch's recording of the MLP, with the gradient of one weight scaled."""
    model = Mlp()
    model.load_state_dict({key: torch.tensor(value) for key, value in across.WEIGHTS["mlp"].items()})
    model.fc2.weight.register_hook(lambda grad: grad * scale)
    with hookline.record(model, inputs=True, grads=True) as rec:
        x = torch.tensor(across.X["mlp"], requires_grad=True)
        (model(x) * torch.tensor(across.LOSS["mlp"])).sum().backward()
    return rec
