"""A recording of which nothing is to be said is not gone through when it ends; every other one is."""

import pytest
import torch
from torch import nn

import hookline
from hookline.recording import explain as explaining
from hookline.recording.calls import NO_PARAMETERS_YET, NONE_YET


@pytest.fixture
def gone_through(monkeypatch):
    """How often all sites of a recording were gone through."""
    times = []
    whole = explaining._explain_sites

    def noted(*args, **kwargs):
        times.append(1)
        whole(*args, **kwargs)

    monkeypatch.setattr(explaining, "_explain_sites", noted)
    return times


def chain():
    return nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))


def test_where_all_calls_have_gradients_there_is_nothing_to_say(gone_through):
    model, x = chain(), torch.ones(1, 2, requires_grad=True)
    with hookline.record(model, "**", grads=True) as rec:
        for _ in range(2):
            model(x).sum().backward()
    assert not gone_through and len(rec["1"].calls) == 2 and rec["1"].grad_output is not None
    assert all(site.why is None for site in rec.values())


def test_a_call_without_a_gradient_is_told(gone_through):
    model, x = chain(), torch.ones(1, 2, requires_grad=True)
    with hookline.record(model, "**", grads=True) as rec:
        model(x).sum().backward()
        model(x)
    assert gone_through and all("in 1 of 2 calls" in site.why for site in rec.values())


def test_a_call_that_hears_two_backwards_does_not_stand_for_one_that_hears_none(gone_through):
    """As many gradients as calls, but not one for each."""
    model, x = chain(), torch.ones(1, 2, requires_grad=True)
    with hookline.record(model, "**", grads=True) as rec:
        out = model(x)
        model(x)
        out.sum().backward(retain_graph=True)
        out.sum().backward()
    assert gone_through and all("in 1 of 2 calls" in site.why for site in rec.values())


def test_a_site_that_was_not_called_is_told(gone_through):
    model, x = chain(), torch.ones(1, 2, requires_grad=True)
    with hookline.record(model, ["0", "1"], grads=True) as rec:
        model[0](x).sum().backward()
    assert gone_through and rec["1"].why and rec["0"].why is None


def test_what_is_no_tensor_is_looked_at(gone_through):
    class Pair(nn.Module):
        def forward(self, x):
            return x * 2, x * 3

    model, x = Pair(), torch.ones(1, 2, requires_grad=True)
    with hookline.record(model, grads=True):
        sum(model(x)).sum().backward()
    assert gone_through


def test_a_second_backward_that_brings_less_is_told():
    """What the first one brought is gone then, and nothing has come for it."""

    class Twice(nn.Module):
        def forward(self, x):
            return x * 2, x * 3

    model, x = Twice(), torch.ones(1, 2, requires_grad=True)
    with hookline.record(model, grads=True) as rec:
        first, second = model(x)
        (first + second).sum().backward(retain_graph=True)
        second.sum().backward()
    assert rec[""].grad_output[0] is None and rec[""].grad_output[1] is not None


def test_the_empty_gradients_that_all_calls_share_stay_empty():
    model, x = chain(), torch.ones(1, 2, requires_grad=True)
    with hookline.record(model, "**", grads=True) as rec:
        model(x).sum().backward()
        out = model(x)
    out.sum().backward()  # nobody records any more
    assert NONE_YET == {} and NO_PARAMETERS_YET == {}
    assert rec["0"].grad_output is None and rec["0"].param_grads.keys() == {"weight", "bias"}
    assert rec["1"].param_grads == {} and rec["1"].calls[0].grad_input[0] is not None
