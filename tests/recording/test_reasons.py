"""The reasons that an audit gives are true, or it says that it does not know."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hookline

UNKNOWN = "hooks can't tell which"


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        return self.b(self.a(x))

    def encode(self, x):
        return self.a(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pair, self.layers = Pair(), nn.Sequential(nn.Linear(3, 3), nn.ReLU())


class ByForward(Net):
    def forward(self, x):
        return self.pair.forward(x)


class OtherName(Net):
    def forward(net, x):
        return net.pair.forward(x)


class ByMethod(Net):
    def forward(self, x):
        return self.pair.encode(x)


class OverItsHead(Net):
    def forward(self, x):
        return self.pair.b(self.pair.a(x))


class ByLoop(Net):
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.pair(x)


def encoded(pair, x):
    return pair.encode(x)


class ByFunction(Net):
    def forward(self, x):
        return encoded(self.pair, x)


class ByWeight(Net):
    def forward(self, x):
        return F.linear(x, self.pair.a.weight) + x @ self.pair.b.weight.t()


class AsksForItsType(Net):
    """Reads of a weight what it is, and calls the module, or not."""

    def forward(self, x, call=False):
        x = x.to(self.pair.a.weight.dtype)
        return self.pair.a(x) if call else x


class ReadsAndCalls(Net):
    def forward(self, x, call=False):
        penalty = self.pair.a.weight.sum()
        return (self.pair.a(x) if call else x) + penalty


class NeverRuns(Net):
    """Its only user of a weight is never run."""

    def __init__(self):
        super().__init__()
        self.inner = ByWeight()

    def forward(self, x):
        return self.pair(x)


@pytest.mark.parametrize(
    ("kind", "site", "words"),
    [
        (ByForward, "pair", "calls self.pair.forward directly (test_reasons.py:"),
        (OtherName, "pair", "calls self.pair.forward directly (test_reasons.py:"),
        (ByMethod, "pair", UNKNOWN),
        (ByMethod, "pair.b", "never called in this block"),
        (OverItsHead, "pair", UNKNOWN),
        (ByLoop, "layers", UNKNOWN),
        (ByFunction, "pair", UNKNOWN),
        (ByWeight, "pair.a", "takes self.pair.a.weight and computes with it itself"),
        (ByWeight, "pair.b", "takes self.pair.b.weight and computes with it itself"),
        (AsksForItsType, "pair.a", "never called in this block"),
        (ReadsAndCalls, "pair.a", "never called in this block"),
        (NeverRuns, "inner.pair.a", "never called in this block"),
        (NeverRuns, "inner", "it was never called, though 'the model' ran"),
    ],
)
@pytest.mark.parametrize("verb", ["record", "edit", "watch"])
def test_the_reason_is_true(kind, site, words, verb):
    model, x = kind(), torch.randn(2, 3)
    with {
        "record": lambda: hookline.record(model),
        "edit": lambda: hookline.edit(model, {"**": lambda value: value}),
        "watch": lambda: hookline.watch(model),
    }[verb]() as held:
        model(x)
    entry = held.audit()[site]
    assert entry.fired == 0 and words in entry.why
    assert ("directly" in entry.why) == (kind in (ByForward, OtherName))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_script_module_that_nobody_called_is_not_told_as_part_of_one():
    class Holds(nn.Module):
        def __init__(self):
            super().__init__()
            self.used = torch.jit.trace(nn.Sequential(nn.Linear(3, 3)), torch.ones(2, 3))
            self.unused = torch.jit.trace(nn.Sequential(nn.Linear(3, 3)), torch.ones(2, 3))

        def forward(self, x):
            return self.used(x)

    model = Holds()
    with hookline.record(model) as rec:
        model(torch.ones(2, 3))
    assert "part of a ScriptModule" in rec.audit()["used.0"].why
    assert rec.audit()["unused"].why == "it was never called, though 'the model' ran"


@pytest.mark.parametrize("verb", [hookline.record, hookline.watch])
def test_a_module_that_was_replaced_is_told(verb):
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.ReLU()), torch.ones(2, 3)
    old = list(model)
    with verb(model) as held:
        model[0] = nn.Linear(3, 3)
        model(x)
        model[1] = nn.Linear(3, 3)
        model(x)
    audit = held.audit()
    assert audit["0"].fired == 0 and "another module has taken its place" in audit["0"].why
    assert audit["1"].fired == 1 and "another module has taken its place" in audit["1"].why
    assert audit["2"].fired == 2 and "another module" not in (audit["2"].why or "")
    assert not any(module._forward_hooks for module in old) and hookline.installed(model) == []


class Grows(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 2)

    def forward(self, x):
        if not hasattr(self, "b"):
            self.b = nn.Linear(2, 2)
        return self.b(self.a(x))


@pytest.mark.parametrize("block", [hookline.record, hookline.watch])
def test_parts_that_appear_in_a_forward_are_told(block):
    model = Grows()
    with block(model) as seen:
        model(torch.ones(1, 2)).sum().backward()
    assert "got parts since the block began" in seen.audit()[""].why and "['b']" in seen.audit()[""].why
    with block(model) as seen:
        model(torch.ones(1, 2)).sum().backward()
    assert "got parts" not in (seen.audit()[""].why or "") and seen.audit()["b"].fired == 1
