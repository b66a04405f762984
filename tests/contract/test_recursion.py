"""Modules that call themselves, directly, through their parts, or as the model: every call is told apart."""

import contextlib

import pytest
import torch
from torch import nn

import hookline
from hookline.testing import untouched


class Itself(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x, depth=2):
        h = self.fc(x)
        return h + self(h.tanh(), depth - 1) if depth else h


class Part(nn.Module):
    def __init__(self, parent):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        object.__setattr__(self, "parent", parent)

    def forward(self, x, depth):
        return self.parent(self.fc(x), depth=depth - 1).tanh()


class ThroughItsPart(nn.Module):
    def __init__(self):
        super().__init__()
        self.part, self.last = Part(self), nn.Linear(3, 3)

    def forward(self, x, depth=2):
        return self.last(self.part(x, depth) if depth else x)


class Inside(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.first, self.inner = nn.Linear(3, 3), kind()

    def forward(self, x):
        return self.inner(self.first(x)) + self.inner(x, depth=1)


MODELS = {
    "itself": Itself,
    "through its part": ThroughItsPart,
    "a part that calls itself": lambda: Inside(Itself),
    "a part that calls itself through its part": lambda: Inside(ThroughItsPart),
}


@pytest.fixture(params=MODELS)
def model(request):
    torch.manual_seed(0)
    return MODELS[request.param]()


def heard(model, x):
    """(output, gradient of it) of every call by torch's own hooks, in the order in which calls end."""
    found = {}
    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():

            def note(module, args, output, name=name):
                entry = [output.detach().clone(), None]
                found.setdefault(name, []).append(entry)
                output.register_hook(lambda grad: entry.__setitem__(1, grad.clone()))
                return output.view_as(output)  # so that each call's output has a place of its own in the graph

            stack.callback(module.register_forward_hook(note).remove)
        model(x).sum().backward()
    return found


@pytest.mark.parametrize("inputs", [False, True])
@pytest.mark.parametrize("trains", [False, True])
def test_watch_tells_calls_apart(model, inputs, trains):
    x = torch.randn(2, 3)
    wanted = heard(model, x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with untouched(model, parameters=False), hookline.watch(model, inputs=inputs) as w:
        for _ in range(3):
            with torch.set_grad_enabled(trains):
                output = model(x)
            if trains:
                output.sum().backward()
                optimizer.step()
    for name, calls in wanted.items():
        for step in range(3):
            rows = {
                row["call"]: row
                for row in w.rows(name, step=step)
                if (row["site"], row["kind"]) == (name, "output")
            }
            assert sorted(rows) == list(range(len(calls))), (name, step)
            for number, (output, _) in enumerate(calls):
                assert rows[number]["mean"] == pytest.approx(output.mean().item(), abs=1e-6)
    assert {row["step"] for row in w.rows()} == {0, 1, 2}


@pytest.mark.parametrize("inputs", [False, True])
def test_gradients_belong_to_their_call(model, inputs):
    x = torch.randn(2, 3)
    wanted = heard(model, x)
    with hookline.watch(model, inputs=inputs) as w, hookline.record(model, inputs=inputs, grads=True) as rec:
        model(x).sum().backward()
    for name, calls in wanted.items():
        assert len(rec[name].calls) == len(calls)
        rows = {row["call"]: row for row in w.rows(name, kind="grad_output") if row["site"] == name}
        for number, (output, grad) in enumerate(calls):
            assert torch.equal(rec[name].calls[number].output, output)
            assert torch.equal(rec[name].calls[number].grad_output, grad), name
            assert rows[number]["mean"] == pytest.approx(grad.mean().item(), abs=1e-6)


def test_inputs_and_outputs_of_a_call_have_one_number(model):
    x = torch.randn(2, 3)
    with hookline.watch(model, inputs=True) as w, hookline.record(model, inputs=True) as rec:
        model(x)
    for name in rec.names:
        rows = {row["call"]: row for row in w.rows(name, kind="input") if row["site"] == name}
        for number, call in enumerate(rec[name].calls):
            assert rows[number]["mean"] == pytest.approx(call.input[0].mean().item(), abs=1e-6)


def test_edits_and_hooks_run_once_a_call(model):
    x = torch.randn(2, 3)
    wanted = {name: len(calls) for name, calls in heard(model, x).items()}
    counts = {}

    def note(kind):
        def hook(module, *told):
            counts[kind, module] = counts.get((kind, module), 0) + 1

        return hook

    with contextlib.ExitStack() as stack:
        stack.enter_context(hookline.register_forward_hook(model, note("forward"), "**"))
        stack.enter_context(hookline.register_forward_pre_hook(model, note("pre"), "**"))
        stack.enter_context(hookline.register_backward_hook(model, note("backward"), "**"))
        stack.enter_context(hookline.register_backward_pre_hook(model, note("backward pre"), "**"))
        edits = {name: [] for name in wanted}
        stack.enter_context(hookline.edit(model, {name: edits[name].append for name in wanted}))
        model(x.requires_grad_()).sum().backward()
    modules = dict(model.named_modules())
    for name, number in wanted.items():
        assert len(edits[name]) == number
        for kind in ("forward", "pre", "backward", "backward pre"):
            assert counts[kind, modules[name]] == number, (kind, name)


def test_summary_and_trace_have_every_call(model):
    x = torch.randn(2, 3)
    wanted = {name: len(calls) for name, calls in heard(model, x).items()}
    rows = hookline.summary(model, x).rows
    trace = hookline.trace(model, x)
    for name, number in wanted.items():
        assert len([row for row in rows if row["name"] == name and row["type"]]) == number
        assert trace.names.count(name) == number - (name == "")


class FailsOnce(Itself):
    def forward(self, x, depth=2, error=None):
        if depth == 0 and error is not None:
            raise error
        h = self.fc(x)
        return self(h, depth - 1, error) if depth else h


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_calls_are_counted_anew_after_one_that_failed(error):
    model, x = FailsOnce(), torch.randn(2, 3)
    with hookline.watch(model) as w, torch.no_grad():
        with contextlib.suppress(ValueError, KeyboardInterrupt):
            model(x, 2, error)
        model(x)
        model(x)
    steps = {row["step"] for row in w.rows("", kind="output") if row["site"] == ""}
    for step in sorted(steps)[-2:]:
        assert [r["call"] for r in w.rows("", kind="output", step=step) if r["site"] == ""] == [0, 1, 2]
    last = w.rows("fc", kind="output", step=max(steps))
    assert [row["call"] for row in last] == [0, 1, 2] and {row["count"] for row in last} == {6}
