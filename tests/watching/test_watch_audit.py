"""A watch accounts for every site and parameter: measured so many times, or never, and why."""

import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import hookline
from hookline import watch
from hookline.testing.zoo import ZOO


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))


def train(model, steps=3, parameters=None):
    optimizer = torch.optim.SGD(parameters or model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()


def test_what_was_measured_is_counted():
    model = net()
    with watch(model) as w:
        train(model)
        open_ = w.audit()
    audit = w.audit()
    assert [(entry.site, entry.fired, entry.why) for entry in audit] == [
        ("", 3, None),
        ("0", 3, None),
        ("1", 3, None),
        ("2", 3, None),
        ("0.weight", 3, None),
        ("0.bias", 3, None),
        ("2.weight", 3, None),
        ("2.bias", 3, None),
    ]
    assert list(open_) == list(audit)
    assert str(audit) == "8 sites asked for, 8 fired, 0 silent"


def test_only_recorded_steps_count():
    model = net()
    with watch(model, every=2) as w:
        train(model, steps=3)
    assert w.audit()["0"].fired == w.audit()["0.weight"].fired == 2
    with watch(model, every=lambda step: False) as w:
        train(model)
    assert w.audit()["0"].why == "no step was recorded: `every` chose none"


def test_nothing_ran():
    with watch(net()) as w:
        pass
    assert "not called in this block" in w.audit()["0"].why
    assert w.audit()["0.weight"].why == "no optimizer has stepped on a recorded step"


def test_parameters_of_no_optimizer_and_without_a_gradient():
    model = net()
    model[0].weight.requires_grad_(False)
    with watch(model) as w:
        train(model, parameters=[model[0].weight, model[2].weight])
    assert w.audit()["0.bias"].why == "no optimizer that stepped holds it"
    assert w.audit()["0.weight"].fired == 3 and w.audit()["0.weight"].why == "it had no gradient"
    assert w.audit()["2.weight"].why is None


def test_gradients_that_never_came():
    model = net()
    with watch(model) as w, torch.no_grad():
        model(torch.ones(2, 3))
    assert w.audit()["0"].why == "no gradients: no backward ran in this block"
    with watch(model, grads=False) as w:
        model(torch.ones(2, 3))
    assert w.audit()["0"].why is None


def fails_at(w, site):
    """Has a watch fail to measure one site."""
    add = w.gathered.add

    def failing(key, tensor):
        if key.site == site:
            raise ValueError("no number")
        add(key, tensor)

    w.gathered.add = w._weights._gather = failing


def watched(site, **options):
    model = net()
    with watch(model, **options) as w:
        fails_at(w, site)
        train(model)
    return w


@pytest.mark.parametrize("inputs", [False, True])
def test_one_that_fails_is_told_and_no_other_ends(inputs):
    with pytest.warns(UserWarning, match="watching '1'") as warned:
        w = watched("1", inputs=inputs)
    assert len(warned) == 1
    assert "failed and stops: ValueError: no number" in w.audit()["1"].why
    for site in ("", "0", "2"):
        assert w.audit()[site].fired == 3
        assert len([row for row in w.rows(kind="output") if row["site"] == site]) == 3


def test_a_parameter_that_fails_is_told():
    with pytest.warns(UserWarning, match=r"watching parameter '0.weight'") as warned:
        w = watched("0.weight")
    assert len(warned) == 1
    assert "failed and stops: ValueError: no number" in w.audit()["0.weight"].why
    assert w.audit()["2.weight"].fired == 3


def test_parameters_that_nobody_can_name_are_told():
    def params():
        raise RuntimeError("not yet")

    model = net()
    with pytest.warns(UserWarning, match="watching parameters failed") as warned, watch(model, params=params) as w:
        train(model)
    assert len(warned) == 1 and w.audit()["0"].fired == 3
    assert "RuntimeError: not yet" in w.audit()["parameters"].why


def test_what_changes_last_digits_is_named():
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
    with watch(layer) as w, torch.no_grad():
        layer(torch.ones(1, 2, 4))
    assert "fused kernel" in w.audit()[""].why
    attention, x = nn.MultiheadAttention(4, 2), torch.ones(2, 1, 4, requires_grad=True)
    with watch(attention, inputs=True) as w:
        attention(x, x, x)[0].sum().backward()
    assert "one tensor came in at several places" in w.audit()[""].why
    assert "self.out_proj.weight" in w.audit()["out_proj"].why


def test_repeated_forwards_calls_of_others_and_calls_that_failed_are_told():
    model = net()
    with watch(model) as w:
        checkpoint(model, torch.ones(2, 3, requires_grad=True), use_reentrant=True).sum().backward()
    assert w.audit()["0"].fired == 1 and "repeated once in a backward" in w.audit()["0"].why

    def elsewhere():
        with hookline.record(model):
            model(torch.ones(2, 3))

    with watch(model) as w:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert w.audit()["0"].why == "its 1 calls came from threads or tasks with blocks of their own"
    with pytest.raises(RuntimeError), watch(model, inputs=True) as w:
        model(torch.ones(2, 5))
    assert w.audit()["0"].fired == 0 and "did not come to an end: RuntimeError" in w.audit()["0"].why
    assert "left before it was called" in w.audit()["2"].why


def test_operators_are_counted():
    model = net()
    with watch(model, ops="*addmm*") as w:
        model(torch.ones(2, 3))
    assert w.audit()["0/addmm"].fired == 1


@pytest.mark.parametrize("specimen", ZOO, ids=str)
def test_a_watch_and_a_recording_account_alike(specimen):
    model, args, kwargs = specimen.seeded()
    if not specimen.steady:
        model(*args, **kwargs)
    with watch(model, params=False) as w, hookline.record(model) as rec:
        model(*args, **kwargs)
    assert {entry.site: entry.fired for entry in w.audit()} == {e.site: e.fired for e in rec.audit()}
    for entry in rec.audit().silent:
        assert w.audit()[entry.site].why == entry.why
