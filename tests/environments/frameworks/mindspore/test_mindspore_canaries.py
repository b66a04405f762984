"""What surprises in MindSpore 2.10, shown without hookline: a release that changes one of these is noticed here.

Each says what hookline does about it; the conformance suite checks that.
"""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from hookline.backends.mindspore import compat


class Times(nn.Cell):
    def construct(self, x):
        return x * 3


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.inner = Times()

    def construct(self, x):
        return self.inner(x) * 11


def one():
    return Tensor(np.ones(1, np.float32))


def value(tensor):
    return float(tensor.asnumpy()[0])


def test_asnumpy_looks_at_the_tensors_own_memory():
    """A recorded value is a copy."""
    tensor = one()
    tensor.asnumpy()[0] = 5
    assert value(tensor) == 5


def test_a_hook_that_is_removed_while_it_runs_fails():
    """hookline's taps may come and go at any time: MindSpore's own loop sees one entry only."""
    cell = Times()
    handles = [cell.register_forward_hook(lambda cell, args, out: handles[0].remove())]
    cell.register_forward_hook(lambda cell, args, out: None)
    with pytest.raises(RuntimeError, match="mutated"):
        cell(one())


def test_a_hook_on_a_cell_with_a_bprop_is_ignored():
    """hookline's taps are called."""

    class Custom(Times):
        def bprop(self, x, out, dout):
            return (dout * 100,)

    seen = []
    cell = Custom()
    cell.register_forward_hook(lambda cell, args, out: seen.append(1))
    cell(one())
    assert seen == []


def test_a_hook_added_after_compilation_is_ignored_and_so_is_its_removal():
    """hookline has compiled code compiled again, which then raises Unsupported."""
    ms.set_context(mode=ms.GRAPH_MODE)
    model = Net()
    assert value(model(one())) == 33

    def sevenfold(cell, args, out):
        return out * 7

    handle = model.inner.register_forward_hook(sevenfold)
    assert value(model(one())) == 33
    model.compile_cache.clear()
    assert value(model(one())) == 231
    handle.remove()
    assert value(model(one())) == 231


def test_python_in_a_compiled_hook_is_dropped_without_a_word():
    """hookline raises Unsupported where a hook would be compiled."""
    seen = []

    def hook(cell, args, out):
        seen.append(1)
        return out * 7

    ms.set_context(mode=ms.GRAPH_MODE)
    model = Net()
    model.inner.register_forward_hook(hook)
    assert value(model(one())) == 231
    assert seen == []


def test_hook_backward_is_not_called_in_graph_mode():
    """hookline.HookBackward raises in graph mode: its Python can't be compiled."""
    seen = []

    def hear(grads):
        seen.append(grads)

    hook = ops.HookBackward(hear)

    def run(x):
        return hook(x * 3) * 11

    ms.set_context(mode=ms.GRAPH_MODE)
    assert value(ms.grad(run)(one())) == 33
    assert seen == []


class Forked(nn.Cell):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def construct(self, x):
        return {"a": x * 2, "b": x * 3} if self.kind is dict else [x * 2, x * 3]


class Fork(nn.Cell):
    def __init__(self, kind):
        super().__init__()
        self.fork = Forked(kind)

    def construct(self, x):
        found = self.fork(x)
        return found["a"] * 5 + found["b"] * 7 if self.fork.kind is dict else found[0] * 5 + found[1] * 7


@pytest.mark.parametrize("kind", [dict, list])
def test_backward_hooks_report_the_inputs_gradient_under_the_outputs_name(kind):
    """hookline taps each tensor of a structure by itself: 31 is the input's, 5 and 7 are the outputs'."""
    model = Fork(kind)
    seen = []
    model.fork.register_backward_hook(lambda cell, grad_in, grad_out: seen.append((grad_in, grad_out)))
    model.fork.register_backward_pre_hook(lambda cell, grad_out: seen.append("pre"))
    assert value(ms.grad(model)(one())) == 31
    ((grad_in, grad_out),) = seen
    assert grad_in == (None,) and [value(grad) for grad in grad_out] == [31]


def test_a_tensor_passed_by_keyword_has_no_gradient_in_a_backward_hook():
    """hookline has it in grad_kwargs."""

    class Model(nn.Cell):
        def __init__(self):
            super().__init__()
            self.inner = Times()

        def construct(self, x):
            return self.inner(x=x * 2)

    model = Model()
    seen = []
    model.inner.register_backward_hook(lambda cell, grad_in, grad_out: seen.append(grad_in))
    ms.grad(model)(one())
    assert seen in ([()], [(None,)])


def test_writing_in_place_is_not_always_counted():
    """hookline never takes a tensor that it saw before to be unchanged."""
    tensor = one() * 2
    before = tensor._version
    tensor[0] = 9
    assert value(tensor) == 9 and tensor._version == before


def test_a_gradient_that_nothing_sent_is_zero_at_a_joint_tap():
    """PyTorch has None there."""
    seen = []
    hook = ops.HookBackward(lambda grads: seen.append([value(grad) for grad in grads]))

    def run(x):
        a, _ = hook(x * 2, x * 5)
        return a * 3

    ms.grad(run)(one())
    assert seen == [[3, 0]]


def test_cells_and_names_gives_a_shared_cell_one_name():
    """hookline walks by itself."""
    model = Net()
    model.again = model.inner
    assert [name for name, _ in model.cells_and_names()] == ["", "inner"]
    assert list(compat.parts(model)) == ["inner", "again"]
