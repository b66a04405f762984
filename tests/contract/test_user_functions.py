"""Functions of a user's that raise, or do what nobody expects, in the middle of a training."""

import warnings

import pytest
import torch
from torch import nn

import hookline
from hookline.lines.registry import forget, statistic
from hookline.testing import untouched
from tests.support.models import nested

X = torch.ones(3, 2)


def trained(model, steps=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(X).sum().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def raises(*told):
    raise ZeroDivisionError("of the user's")


# What raises is told once, by name, and the training goes on


STATISTICS = {
    "of stats": lambda stats: raises(),
    "text": lambda stats: "text",
    "of a tensor": lambda x, xp: raises(),
    "text of a tensor": lambda x, xp: "text",
    "a vector": lambda x, xp: x.reshape(-1)[:2],
    "nothing": lambda x, xp: None,
    "now and then": lambda x, xp: x.mean() if x.ndim == 2 and x.shape[0] == 3 else raises(),
}


@pytest.mark.parametrize("ops", [False, True])
@pytest.mark.parametrize("kind", STATISTICS)
def test_a_statistic(kind, ops):
    model, right = nested(), trained(nested())
    statistic("of mine")(STATISTICS[kind])
    statistic("of mine too", merge="max")(lambda x, xp: x.max())
    try:
        with (
            pytest.warns(UserWarning, match="the statistic 'of mine' .*raised") as told,
            hookline.watch(model, stats=["of mine", "p99", "of mine too"], inputs=True, ops=ops) as w,
        ):
            assert all(map(torch.equal, trained(model), right))
    finally:
        forget("of mine")
        forget("of mine too")
    assert len(told) == 1
    rows = w.rows()
    assert {row["step"] for row in rows} == {0, 1, 2, 3}
    assert all(row["of mine too"] == row["max"] and row["p99"] <= row["max"] for row in rows)
    if kind != "now and then":
        assert all(row["of mine"] != row["of mine"] for row in rows)
    assert {row["kind"] for row in rows} >= {"input", "output", "grad_input", "grad_output", "param", "update"}
    assert hookline.installed(model) == []


class Late:
    """A schedule that raises when the training is under way."""

    def __init__(self, result):
        self.result = result

    def __call__(self, step):
        return self.result() if step == 2 else True


@pytest.mark.parametrize("result", [raises, lambda: torch.ones(2)])
def test_a_schedule(result):
    model, right = nested(), trained(nested())
    with (
        pytest.warns(UserWarning, match=r"watch\(every=...\) \(Late\) raised") as told,
        hookline.watch(model, every=Late(result)) as w,
    ):
        assert all(map(torch.equal, trained(model), right))
    assert len(told) == 1
    assert {row["step"] for row in w.rows()} == {0, 1}
    assert hookline.installed(model) == []


@pytest.mark.parametrize("options", [{}, {"inputs": True, "grads": True}, {"ops": True}, {"limit": "1MB"}])
def test_reduce(options):
    model, right = nested(), trained(nested())
    with (
        pytest.warns(UserWarning, match=r"record, at '.*': reduce \(raises\) raised ZeroDivisionError") as told,
        hookline.record(model, reduce=raises, **options) as rec,
    ):
        assert all(map(torch.equal, trained(model), right))
    assert len(told) == 1
    assert rec["0"].output is None and len(rec["0"].calls) == 4
    assert all("reduce function raised" in (entry.why or "") for entry in rec.audit() if "/" not in entry.site)


class BadSink:
    """A sink one method of which raises, from its third call on."""

    def __init__(self, method):
        self.method, self.calls, self.rows = method, 0, 0

    def _called(self, name):
        self.calls += name == self.method
        if name == self.method and (self.calls > 2 or name == "close"):
            raises()

    def write(self, rows):
        self._called("write")
        self.rows += len(rows)

    def close(self):
        self._called("close")


@pytest.mark.parametrize("method", ["write", "close"])
def test_a_sink(method):
    model, right, bad, good = nested(), trained(nested()), BadSink(method), BadSink("")
    with (
        pytest.warns(UserWarning, match="BadSink failed .*of the user's") as told,
        hookline.watch(model, to=[bad, good]) as w,
    ):
        assert all(map(torch.equal, trained(model), right))
    assert len(told) == 1 and good.rows == len(w.rows()) + len(w.rows(kind="scalar"))
    assert bad.rows > 0 and hookline.installed(model) == []


def test_the_line_with_the_step(monkeypatch):
    import hookline.watching.progress as progress

    monkeypatch.setattr(progress, "SECONDS", 0)
    monkeypatch.setattr(progress, "draws_lines", lambda: True)
    monkeypatch.setattr(progress.Line, "draw", raises)
    model, right = nested(), trained(nested())
    with (
        pytest.warns(UserWarning, match=r"watch\(progress=...\) \(raises\) raised") as told,
        hookline.watch(model, progress=True),
    ):
        assert all(map(torch.equal, trained(model), right))
    assert len(told) == 1 and hookline.installed(model) == []


def test_a_scaler():
    class Scaler:
        get_scale = raises

    model, right = nested(), trained(nested())
    with warnings.catch_warnings(record=True) as told, hookline.watch(model, "0", scaler=Scaler(), params=False):
        warnings.simplefilter("always")
        assert all(map(torch.equal, trained(model), right))
    assert len(told) == 1 and "watching '0' (grad_output) failed" in str(told[0].message)


def test_parameters_by_a_function():
    model, right = nested(), trained(nested())
    with pytest.warns(UserWarning, match="of the user's") as told, hookline.watch(model, params=raises) as w:
        assert all(map(torch.equal, trained(model), right))
    assert len(told) == 1 and {row["step"] for row in w.rows()} == {0, 1, 2, 3}


# Hooks and edits that raise are errors with the site's name, and the model is clean


RAISING = {
    "forward hook": lambda m: hookline.register_forward_hook(m, raises, "2.0"),
    "pre-hook": lambda m: hookline.register_forward_pre_hook(m, raises, "2.0"),
    "backward hook": lambda m: hookline.register_backward_hook(m, raises, "2.0"),
    "backward pre-hook": lambda m: hookline.register_backward_pre_hook(m, raises, "2.0"),
    "op hook": lambda m: hookline.register_op_hook(m, raises, "2.0"),
    "edit": lambda m: hookline.edit(m, {"2.0": raises}),
    "edit of arguments": lambda m: hookline.edit(m, {"2.0:input": raises}),
    "edit of a gradient": lambda m: hookline.edit(m, {"2.0:grad_output": raises}),
    "edit of a weight": lambda m: hookline.edit(m, {"2.0.weight": raises}),
    "skip": lambda m: hookline.edit(m, {"2.0": hookline.skip(raises)}),
    "accumulation hook": lambda m: hookline.register_post_accumulate_grad_hook(m, raises, "2.0"),
}


@pytest.mark.parametrize("name", RAISING)
def test_a_hook_that_raises_is_an_error_with_the_site(name):
    model = nested()
    with untouched(model, rng=False):
        with (
            pytest.raises(hookline.HookError, match=r"'2\.0.*of the user's"),
            hookline.record(model, inputs=True, grads=True),
            hookline.watch(model),
            RAISING[name](model),
        ):
            trained(model, 1)
        model.zero_grad()
    assert hookline.installed(model) == [] and not torch._C._len_torch_dispatch_stack()
    assert all(map(torch.equal, trained(model), trained(nested())))


# Hooks that do what nobody expects


BLOCKS = {
    "record": lambda m: hookline.record(m, inputs=True, grads=True),
    "record operators": lambda m: hookline.record(m, ops=True),
    "watch": lambda m: hookline.watch(m, inputs=True, ops=True),
    "edit": lambda m: hookline.edit(m, {"**": lambda out: out + 0, "**:grad_output": lambda g: g}),
    "edit of a weight": lambda m: hookline.edit(m, {"2.0.weight": lambda w: w + 0}),
    "skip": lambda m: hookline.edit(m, {"1": hookline.skip(torch.relu)}),
    "op hook": lambda m: hookline.register_op_hook(m, lambda *told: None),
    "backward hook": lambda m: hookline.register_backward_hook(m, lambda *told: None, "**", original=True),
    "forward hook": lambda m: hookline.register_forward_hook(m, lambda *told: None, "**", with_kwargs=True),
    "stored outputs": lambda m: hookline.hook_outputs(list(m.modules())),
}


class Mischief:
    """A hook that does something once, in the middle of a call."""

    def __init__(self, do):
        self.do, self.done = do, 0

    def __call__(self, *told):
        if not self.done:
            self.done += 1
            self.do()


def replaces(model):
    model[2] = nn.Sequential(nn.Linear(2, 2))
    model[1] = nn.Tanh()


@torch.enable_grad()
def trains(model):
    model(X).sum().backward()


MISCHIEF = {
    "leaves the block": lambda model, block, handles: block.__exit__(None, None, None),
    "removes later hooks": lambda model, block, handles: [handle.remove() for handle in handles],
    "calls the model again": lambda model, block, handles: model(X),
    "trains the model within": lambda model, block, handles: trains(model),
    "replaces modules": lambda model, block, handles: replaces(model),
    "adds and deletes a module": lambda model, block, handles: model.append(nn.Identity()) and model.pop(-1),
}
WHERE = {
    "forward": lambda m, fn: hookline.register_forward_hook(m, fn, "0"),
    "before": lambda m, fn: hookline.register_forward_pre_hook(m, fn, "0"),
    "backward": lambda m, fn: hookline.register_backward_hook(m, fn, "2.0"),
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("what", MISCHIEF)
@pytest.mark.parametrize("name", BLOCKS)
def test_a_hook_that_does_what_nobody_expects_fails_nothing_and_leaves_nothing(name, what, where):
    model = nested()
    parts = list(model.modules())
    block = BLOCKS[name](model)
    handles = []
    mischief = Mischief(lambda: MISCHIEF[what](model, block, handles))
    with WHERE[where](model, mischief):
        block.__enter__()
        handles += [
            hookline.register_forward_hook(model, lambda *told: None, "**"),
            hookline.register_backward_hook(model, lambda *told: None, "**"),
            hookline.register_forward_hook(model, lambda *told: None, "0", with_kwargs=True),
        ]
        for _ in range(2):
            model(X).sum().backward()
        block.__exit__(None, None, None)
        for handle in handles:
            handle.remove()
    assert mischief.done == 1
    assert hookline.installed(model) == []
    for part in parts:
        assert hookline.installed(part) == []
        assert "forward" not in vars(part)
    assert not torch._C._len_torch_dispatch_stack()
    model.zero_grad()
    assert len(trained(model)) == 4
