"""Healthy models: no error and no warning, and each is left exactly as it was."""

import warnings

import pytest
import torch

import hookline
from hookline.probing.registry import ORDER
from tests.probing.healthy import HEALTHY


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:nn.TransformerEncoder")
@pytest.mark.parametrize(
    ("name", "mode"), [(name, "eval" if number % 4 == 0 else "train") for number, name in enumerate(HEALTHY)]
)
def test_nothing_is_wrong_with_a_healthy_model(name, mode):
    torch.manual_seed(0)
    model, inputs = HEALTHY[name]()
    model.train(mode == "train")
    grads = {}
    for number, one in enumerate(model.parameters()):
        if one.requires_grad and number % 2:
            one.grad = torch.ones_like(one)
        grads[one] = one.grad
    with hookline.testing.untouched(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = hookline.probe(model, inputs)
    assert [one for one in found if one.severity != "note"] == [], str(found)
    assert {*found.made, *found.skipped} == {*ORDER}
    assert all(one.grad is grad for one, grad in grads.items())
    assert all(bool((grad == 1).all()) for grad in grads.values() if grad is not None)
