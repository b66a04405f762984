"""Graph mode and ms.jit: hooks there raise Unsupported, whenever they were attached, and nothing stays stale."""

import copy

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

import hookline


class Times(nn.Cell):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def construct(self, x):
        return x * self.factor


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.inner = Times(3)

    def construct(self, x):
        return self.inner(x) * 11


class Jitted(Net):
    @ms.jit
    def construct(self, x):
        return self.inner(x) * 11


class Outer(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.jitted = Times(2), Jitted()

    def construct(self, x):
        return self.jitted(self.first(x))


X = Tensor(np.ones(2, np.float32))


def values(tensor):
    return tensor.asnumpy().tolist()


WAYS = ["record", "edit", "watch", "hook", "backward hook", "op hook", "skip"]


def attach(model, what):
    return {
        "record": lambda: hookline.record(model),
        "edit": lambda: hookline.edit(model, {"inner": lambda out: out}),
        "watch": lambda: hookline.watch(model),
        "hook": lambda: hookline.register_forward_hook(model, lambda cell, args, out: None, "inner"),
        "backward hook": lambda: hookline.register_backward_hook(
            model, lambda cell, grad_in, grad_out: None, "inner"
        ),
        "op hook": lambda: hookline.register_op_hook(model, lambda name, op, array: None),
        "skip": lambda: hookline.edit(model, {"inner": hookline.skip}),
        "summary": lambda: hookline.summary(model, (2,)),
    }[what]()


@pytest.mark.parametrize("what", [*WAYS, "summary"])
def test_attaching_in_graph_mode_raises(what):
    ms.set_context(mode=ms.GRAPH_MODE)
    with pytest.raises(hookline.Unsupported, match="a hook in graph mode is not supported on mindspore") as caught:
        attach(Net(), what)
    assert "PYNATIVE_MODE" in caught.value.instead


def test_what_is_attached_raises_when_the_mode_changes():
    model = Net()
    with hookline.record(model) as rec:
        model(X)
        ms.set_context(mode=ms.GRAPH_MODE)
        with pytest.raises(hookline.Unsupported, match="which is being compiled"):
            model(X)
        ms.set_context(mode=ms.PYNATIVE_MODE)
        model(X)
    assert len(rec["inner"].calls) == 2


def test_compiled_code_is_not_stale_when_a_hook_comes():
    model = Net()
    ms.set_context(mode=ms.GRAPH_MODE)
    assert values(model(X)) == [33, 33]
    ms.set_context(mode=ms.PYNATIVE_MODE)
    with hookline.register_forward_hook(model, lambda cell, args, out: out * 7, "inner"):
        assert values(model(X)) == [231, 231]
        ms.set_context(mode=ms.GRAPH_MODE)
        with pytest.raises(hookline.Unsupported, match="'inner', which is being compiled"):
            model(X)
        ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.set_context(mode=ms.GRAPH_MODE)
    assert values(model(X)) == [33, 33]


def test_a_jitted_function_is_not_stale_when_a_hook_comes():
    model = Net()

    @ms.jit
    def run(x):
        return model(x)

    assert values(run(X)) == [33, 33]
    with hookline.record(model), pytest.raises(hookline.Unsupported, match="which is being compiled"):
        run(X)
    assert values(run(X)) == [33, 33]


@pytest.mark.parametrize("what", WAYS)
def test_whatever_is_attached_raises_where_it_would_be_compiled(what):
    model = Net()

    @ms.jit
    def run(x):
        return model(x)

    assert values(run(X)) == [33, 33]
    with attach(model, what):
        with pytest.raises(hookline.Unsupported, match="which is being compiled"):
            run(X)
        model(X)
    assert values(run(X)) == [33, 33]
    assert hookline.installed(model) == []


def test_a_jitted_function_with_a_hook_inside_raises_and_the_cell_works_outside():
    model = Net()

    @ms.jit
    def run(x):
        return model(x)

    seen = []
    with hookline.register_forward_hook(model, lambda cell, args, out: seen.append(1), "inner"):
        with pytest.raises(hookline.Unsupported, match="'inner', which is being compiled"):
            run(X)
        assert values(model(X)) == [33, 33] and seen == [1]
    assert values(run(X)) == [33, 33] and seen == [1]


def test_sites_around_jitted_code_are_recorded():
    model = Outer()
    with hookline.record(model, ["first", "jitted"]) as rec:
        assert values(model(X)) == [66, 66]
    assert values(rec["first"].output) == [2, 2] and values(rec["jitted"].output) == [66, 66]
    with (
        hookline.record(model),
        pytest.raises(hookline.Unsupported, match=r"'jitted\.inner', which is being compiled"),
    ):
        model(X)


def test_the_audit_names_jitted_code():
    model = Outer()
    reason = hookline.backends.named("mindspore").why_silent(dict(model.cells_and_names()), "jitted.inner")
    assert reason == "'jitted' is compiled by ms.jit, and compiled code calls no cell in Python"


def test_a_copy_of_a_hooked_cell_can_be_compiled():
    model = Net()
    with hookline.register_forward_hook(model, lambda cell, args, out: out * 7, "inner"):
        twin = copy.deepcopy(model)
    ms.set_context(mode=ms.GRAPH_MODE)
    assert values(twin(X)) == [33, 33]


def test_hook_backward_raises_where_it_would_be_compiled():
    hook = hookline.HookBackward(lambda grads: None)

    def run(x):
        return hook(x * 2) * 3

    assert values(ms.grad(run)(X)) == [6, 6]
    with pytest.raises(hookline.Unsupported, match="HookBackward in compiled code is not supported on mindspore"):
        ms.jit(run)(X)
    ms.set_context(mode=ms.GRAPH_MODE)
    with pytest.raises(hookline.Unsupported, match="HookBackward in compiled code"):
        ms.grad(run)(X)


def test_ms_jit_0_runs_graph_mode_in_python(monkeypatch):
    monkeypatch.setenv("MS_JIT", "0")
    ms.set_context(mode=ms.GRAPH_MODE)
    model = Net()
    with hookline.record(model) as rec:
        model(X)
    assert values(rec["inner"].output) == [3, 3]
