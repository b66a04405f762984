"""Each probe on models that lack a property, and on twins that have it."""

from pathlib import Path

import pytest
import torch
from torch import nn

import hookline
from tests.probing.models import (
    Attention,
    Bidirectional,
    CausalConv,
    CausalNet,
    Cut,
    Dead,
    Dropped,
    Heads,
    Listed,
    Masked,
    Overwritten,
    Projected,
    Remembers,
    Scores,
    TimeNorm,
    TinyLM,
    ids,
    normed,
    numbers,
)


def masked(samples=3, length=9):
    return {"input_ids": ids(samples, length), "attention_mask": torch.ones(samples, length, dtype=torch.long)}


X, SEQUENCE, IMAGES = numbers(4, 6), numbers(4, 5, 4), numbers(4, 3, 8, 8)
SQUARE = {"loss": lambda output: output.square().mean()}
LOST = {
    # name: what is broken, its healthy twin, inputs, (rule, severity, site), options
    "off by one": (
        lambda: TinyLM(Attention(), Attention(diagonal=2)),
        lambda: TinyLM(Attention(), Attention()),
        ids(),
        ("future_leak", "error", "blocks.1"),
        {},
    ),
    "inverted mask": (
        lambda: TinyLM(Attention(inverted=True), Attention()),
        lambda: TinyLM(Attention(), Attention()),
        ids(),
        ("future_leak", "error", "blocks.0"),
        {},
    ),
    "convolution padded on both sides": (
        lambda: CausalNet(CausalConv(), CausalConv(both=True)),
        lambda: CausalNet(CausalConv(), CausalConv()),
        ids(),
        ("future_leak", "error", "blocks.1.conv"),
        {},
    ),
    "one convolution of many": (
        lambda: TinyLM(Attention(), CausalConv(both=True)),
        lambda: TinyLM(Attention(), CausalConv()),
        ids(),
        ("future_leak", "error", "blocks.1.conv"),
        {},
    ),
    "norm over time": (
        lambda: CausalNet(CausalConv(), TimeNorm(True)),
        lambda: CausalNet(CausalConv(), TimeNorm(False)),
        ids(),
        ("future_leak", "error", "blocks.1"),
        {},
    ),
    "no mask": (
        lambda: TinyLM(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)),
        lambda: TinyLM(CausalConv()),
        ids(),
        ("future_leak", "error", "blocks.0.self_attn"),
        {"causal": True},
    ),
    "view for permute": (
        lambda: nn.Sequential(nn.Linear(4, 4), Heads(True)),
        lambda: nn.Sequential(nn.Linear(4, 4), Heads(False)),
        SEQUENCE,
        ("batch_mixing", "error", "1"),
        {},
    ),
    "softmax over the batch": (
        lambda: nn.Sequential(nn.Linear(6, 6), Scores(0)),
        lambda: nn.Sequential(nn.Linear(6, 6), Scores(1)),
        X,
        ("batch_mixing", "warning", "1"),
        {},
    ),
    "BatchNorm without running statistics": (
        lambda: normed(False),
        lambda: normed(True),
        IMAGES,
        ("batch_mixing", "error", "1"),
        {},
    ),
    "attention over the batch": (
        lambda: nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8), nn.Flatten(), nn.Linear(20, 2)),
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Flatten(), nn.Linear(20, 2)
        ),
        SEQUENCE,
        ("batch_mixing", "error", "0.self_attn"),
        {},
    ),
    "dropout that is always on": (
        lambda: nn.Sequential(nn.Linear(6, 6), Dropped(True)),
        lambda: nn.Sequential(nn.Linear(6, 6), Dropped(False)),
        X,
        ("random_in_eval", "error", "1"),
        {},
    ),
    "paths dropped always": (
        lambda: Dropped(True, path=True),
        lambda: Dropped(False, path=True),
        X,
        ("random_in_eval", "error", ""),
        {},
    ),
    "dead units": (
        lambda: Dead(-1000.0),
        lambda: Dead(0.0),
        X,
        ("constant_output", "error", "act"),
        {},
    ),
    "a variable that was overwritten": (
        lambda: nn.Sequential(Overwritten(True)),
        lambda: nn.Sequential(Overwritten(False)),
        X,
        ("constant_output", "error", "0"),
        {},
    ),
    "detach in the middle": (lambda: Cut("detach"), Cut, X, ("no_gradient", "error", ""), SQUARE),
    "a tensor made of numbers": (lambda: Cut("tensor"), Cut, X, ("no_gradient", "error", ""), SQUARE),
    "computed in vain": (lambda: Cut("in vain"), Cut, X, ("no_gradient", "warning", ""), {}),
    "rounding": (lambda: Cut("round"), Cut, X, ("no_gradient", "warning", ""), {}),
    "mask that nobody uses": (
        lambda: Masked("ignored"),
        Masked,
        masked(),
        ("mask_ignored", "error", "attend"),
        {},
    ),
    "mean over the padding": (
        lambda: Masked("mean of all"),
        lambda: Masked("pooled"),
        masked(),
        ("padding_leak", "error", ""),
        {},
    ),
    "padding seen by attention": (
        lambda: Masked("only pooled"),
        lambda: Masked("pooled"),
        masked(),
        ("padding_leak", "error", "attend"),
        {},
    ),
    "running mean as a plain tensor": (
        lambda: Remembers("plain"),
        Remembers,
        X,
        ("state_lost", "error", ""),
        {},
    ),
    "running mean that is not saved": (
        lambda: Remembers("not saved"),
        Remembers,
        X,
        ("state_lost", "error", ""),
        {},
    ),
    "running mean as a number": (lambda: Remembers("number"), Remembers, X, ("state_lost", "error", ""), {}),
    "layers in a plain list": (lambda: Listed(True), lambda: Listed(False), X, ("state_lost", "error", ""), {}),
    "random numbers that are not saved": (
        lambda: Projected("plain"),
        lambda: Projected("saved"),
        X,
        ("state_lost", "warning", ""),
        {},
    ),
}


def loud(found):
    return [(one.rule, one.severity, one.site) for one in found if one.severity != "note"]


@pytest.mark.parametrize("name", LOST)
def test_a_lost_property_is_found_where_it_is_lost(name):
    broken, _, inputs, expected, options = LOST[name]
    torch.manual_seed(0)
    model = broken()
    with hookline.testing.untouched(model):
        found = hookline.probe(model, inputs, **options)
    assert expected in loud(found), str(found)
    assert {rule for rule, _, _ in loud(found)} <= {expected[0], "future_leak", "mask_ignored", "padding_leak"}


@pytest.mark.parametrize("name", LOST)
def test_its_healthy_twin_has_nothing(name):
    _, healthy, inputs, _, options = LOST[name]
    torch.manual_seed(0)
    model = healthy()
    with hookline.testing.untouched(model):
        found = hookline.probe(model, inputs, **options)
    assert not loud(found), str(found)
    assert found.made


def test_an_encoder_may_look_both_ways():
    found = hookline.probe(Bidirectional(), ids())
    assert not loud(found) and "causality" in found.made
    assert [one.rule for one in hookline.probe(Bidirectional(), ids(), causal=True)] == ["future_leak"]
    assert "causality" in hookline.probe(Bidirectional(), ids(), causal=False).skipped


def test_a_table_that_is_computed_need_not_be_saved():
    assert not hookline.probe(Projected("sines"), X)


def test_lines_of_code_are_named():
    (leak,) = hookline.probe(TinyLM(Attention(diagonal=2)), ids())
    (dropped,) = hookline.probe(Dropped(True), X)
    (cut,) = hookline.probe(Cut("detach"), X)
    for one in (leak, dropped, cut):
        assert one.line.startswith("models.py:"), one
    code = Path(__file__).with_name("models.py").read_text().splitlines()
    lines = [code[int(one.line.removeprefix("models.py:")) - 1] for one in (leak, dropped, cut)]
    assert "softmax(-1) @ v" in lines[0] and "F.dropout" in lines[1] and ".detach()" in lines[2]
