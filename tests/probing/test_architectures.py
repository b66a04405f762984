"""Real architectures are healthy: no error and no warning; and a fault put into one is found."""

import warnings

import pytest
import torch

import hookline
from hookline.testing import untouched
from tests.probing.architectures import MODELS, lm


def made(name):
    torch.manual_seed(0)
    make, inputs = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(), inputs()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_wrong_with_a_real_architecture(name):
    model, inputs = made(name)
    with untouched(model):
        found = hookline.probe(model, inputs)
    assert [one for one in found if one.severity != "note"] == [], str(found)
    assert {"determinism", "constant", "batch", "gradient", "state"} <= {*found.made}


def test_there_are_many():
    assert len(MODELS) >= 40


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen2", "gemma", "bloom"])
def test_a_mean_over_time_in_a_decoder_is_found_where_it_is(name):
    model, _ = made(name)
    layers = [one for one, _ in model.named_modules() if one.endswith("mlp")]
    model.get_submodule(layers[-1]).register_forward_hook(
        lambda module, args, output: output + output.mean(1, keepdim=True) if output.dim() == 3 else output
    )
    found = hookline.probe(model, lm(), only="causality")
    assert [(one.rule, one.severity, one.site) for one in found] == [("future_leak", "error", layers[-1])]


@pytest.mark.filterwarnings("ignore")
def test_an_attention_without_mask_is_found_where_it_is():
    model, _ = made("llama")
    attention = model.model.layers[1].self_attn
    whole, attention.forward = (
        attention.forward,
        lambda *args, **kwargs: whole(*args, **{**kwargs, "attention_mask": torch.zeros(1, 1, 10, 10)}),
    )
    found = hookline.probe(model, lm(), only=["causality", "mask"])
    assert {(one.rule, one.site) for one in found} == {
        ("future_leak", "model.layers.1.self_attn"),
        ("padding_leak", "model.layers.1.self_attn"),
    }
