"""Every private name of MindSpore that hookline uses is there and means what hookline takes it for."""

from collections import OrderedDict
from contextlib import contextmanager

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops
from mindspore.graph import api

from hookline.backends.mindspore import compat
from hookline.backends.undoing import Undoing


def one():
    return Tensor(np.ones(1, np.float32))


def test_hook_dicts_are_what_register_writes_to():
    cell = nn.ReLU()
    pre = cell.register_forward_pre_hook(lambda cell, args, kwargs: None, with_kwargs=True)
    post = cell.register_forward_hook(lambda cell, args, out: None)
    hooks, with_kwargs = compat.hook_dicts(cell, after=False)
    assert list(hooks) == [pre.handle_id] and with_kwargs == {pre.handle_id: True}
    hooks, with_kwargs = compat.hook_dicts(cell, after=True)
    assert list(hooks) == [post.handle_id] and with_kwargs == {}


def test_a_cell_takes_a_new_dict_of_hooks():
    for after in (False, True):
        cell = nn.ReLU()
        old, _ = compat.hook_dicts(cell, after=after)
        compat.set_hooks(cell, {"key": "hook"}, after=after)
        new, _ = compat.hook_dicts(cell, after=after)
        assert new is not old and new == OrderedDict(key="hook")


def test_hooks_on_state_dicts_are_listed():
    cell = nn.ReLU()
    hooks = [lambda *args: None for _ in range(4)]
    cell.register_state_dict_pre_hook(hooks[0])
    cell.register_state_dict_post_hook(hooks[1])
    cell.register_load_state_dict_pre_hook(hooks[2])
    cell.register_load_state_dict_post_hook(hooks[3])
    assert {id(hook) for hook in compat.state_hooks(cell)} >= {id(hooks[0]), id(hooks[1])}
    assert len(list(compat.state_hooks(cell))) == 4


def test_parts_parameters_and_buffers_go_by_their_attributes():
    model = nn.SequentialCell(nn.Dense(2, 3), nn.BatchNorm2d(3))
    assert list(compat.parts(model)) == ["0", "1"]
    assert list(compat.parameters(model[0])) == ["weight", "bias"]
    assert compat.parameters(model[0])["weight"] is model[0].weight
    assert compat.buffers(model[0]) == {}
    cell = nn.ReLU()
    cell.register_buffer("table", one())
    assert list(compat.buffers(cell)) == ["table"]


def test_a_tensor_tells_whether_it_is_in_a_graph():
    seen = []

    def run(x):
        seen.extend([compat.in_graph(x), compat.in_graph(x * 2), compat.in_graph(one())])
        return x * 2

    run(one())
    ms.grad(run)(one())
    assert seen == [False] * 3 + [True, True, False]


def test_what_comes_after_a_backward_runs_once_and_may_raise():
    seen = []

    def hear(grads):
        compat.after_backward(lambda: seen.append("after"))
        seen.append("backward")

    ms.grad(lambda x: ops.HookBackward(hear)(x * 2) * 3)(one())
    assert seen == ["backward", "after"]

    def fails(grads):
        compat.after_backward(lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        ms.grad(lambda x: ops.HookBackward(fails)(x * 2))(one())


def test_every_backward_goes_through_the_engines_entry():
    seen = []

    @contextmanager
    def around():
        seen.append("begins")
        yield
        seen.append("ends")

    undoing = Undoing()
    compat.around_backward(undoing, around)
    ms.grad(lambda x: x * 2)(one())
    ms.value_and_grad(lambda x: x * 2)(one())
    undoing.close()
    ms.grad(lambda x: x * 2)(one())
    assert seen == ["begins", "ends"] * 2


def test_the_functions_that_repeat_a_forward_are_known():
    assert compat.STRETCH.co_name == "construct" and compat.REPEATED_STRETCH.co_name == "bprop"
    cell = nn.ReLU()
    cell.recompute()
    assert list(cell._cells) == ["_recompute_cell"] and compat.parts(cell) == {}


def test_graph_mode_is_told():
    assert not compat.compiles()
    ms.set_context(mode=ms.GRAPH_MODE)
    assert compat.compiles()


def test_compiled_functions_are_in_the_caches_that_are_emptied():
    @ms.jit
    def run(x):
        return x * 2

    run(one())
    assert api.ms_compile_cache
    phases = set(api.ms_compile_cache)
    with Undoing() as undoing:
        compat.forget_compiled(undoing)
        assert not api.ms_compile_cache
    assert api.ms_compile_cache >= phases


def test_the_parser_asks_for_the_attribute():
    asked = []

    class Hook:
        def __call__(self, cell, args, out):
            return None

    setattr(Hook, compat.PARSED, property(lambda self: asked.append(1) or True))
    cell = nn.ReLU()
    cell.register_forward_hook(Hook())
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        cell(one())
    except Exception:  # what it makes of the answer does not matter here
        assert asked
    assert asked


def test_mindspore_takes_a_forward_that_raised_for_one_under_way():
    def fails(x):
        raise ValueError("of the model")

    cell = nn.Dense(1, 1)
    state = compat.differentiation(cell)
    assert state == (False, False, False)
    with pytest.raises(ValueError, match="of the model"):
        ms.grad(fails)(one())
    assert compat.differentiation(fails)[0]  # MindSpore's own flaw: with it gone, failing.py can go
    compat.set_differentiation(fails, (False, False, False))
    assert not compat.differentiation(fails)[0] and not cell(one())._requires_grad
    assert ms.grad(lambda x: (x * 3).sum())(one()).asnumpy().tolist() == [3.0]


def test_moving_statistics_are_told_by_their_names():
    norm = nn.BatchNorm1d(3)
    told = {name: compat.is_state(name, parameter) for name, parameter in compat.parameters(norm).items()}
    assert told == {"moving_mean": True, "moving_variance": True, "gamma": False, "beta": False}
