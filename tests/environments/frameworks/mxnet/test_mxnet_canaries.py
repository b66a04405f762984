"""Surprises of MXNet 1.9.1 that hookline works around: each fails when a release of MXNet changes it."""

import copy
import ctypes
import threading
import time
import warnings
import weakref
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, nd
from mxnet.base import NDArrayHandle
from mxnet.gluon import nn

from tests.environments.frameworks.mxnet.nets import Mul, mlp


class Tap(autograd.Function):
    """MXNet's own identity with a backward."""

    def __init__(self, see):
        super().__init__()
        self.see = see

    def forward(self, *arrays):
        aliases = tuple(array.detach() for array in arrays)
        return aliases if len(aliases) > 1 else aliases[0]

    def backward(self, *grads):
        self.see(*grads)
        return grads


def wrapped(handle):
    return nd.NDArray(ctypes.cast(handle, NDArrayHandle), writable=False)


@pytest.fixture
def hybrid():
    net = nn.HybridSequential()
    net.add(nn.Activation("relu"))
    net.hybridize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield net


# Hooks


def test_what_a_hook_returns_is_dropped():
    block = Mul(3)
    block.register_forward_pre_hook(lambda block, args: (args[0] * 100,))
    block.register_forward_hook(lambda block, args, out: out * 100)
    assert block(nd.ones(1)).asscalar() == 3


def test_a_call_takes_no_keyword_arguments():
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        Mul(3)(x=nd.ones(1))


def test_the_same_function_registered_twice_is_one_hook():
    block, seen = Mul(3), []

    def hook(block, args, out):
        seen.append(1)

    first, second = block.register_forward_hook(hook), block.register_forward_hook(hook)
    block(nd.ones(1))
    assert seen == [1]
    first.detach()
    block(nd.ones(1))
    assert seen == [1]  # and the second is gone with the first
    second.detach()


def test_a_hook_that_removes_itself_ends_the_call():
    block = Mul(3)
    handle = block.register_forward_hook(lambda block, args, out: handle.detach())
    block.register_forward_hook(lambda block, args, out: None)
    with pytest.raises(RuntimeError, match="mutated during iteration"):
        block(nd.ones(1))


def test_hooks_on_parts_of_a_hybridized_net_are_ignored():
    net, seen = mlp(), []
    net(nd.ones((1, 4)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.hybridize()
    net[0].register_forward_hook(lambda block, args, out: seen.append(type(out).__name__))
    for _ in range(3):
        net(nd.ones((1, 4)))
    assert seen == ["Symbol"]  # while it is traced, once; then never again


def test_an_edit_that_was_traced_into_a_graph_stays_in_it():
    class Edited(Mul):
        def __call__(self, *args):
            return super().__call__(*args) * 7

    net = nn.HybridSequential()
    net.add(Mul(3))
    net.hybridize()
    net[0].__class__ = Edited
    assert net(nd.ones(1)).asscalar() == 21
    net[0].__class__ = Mul
    assert net(nd.ones(1)).asscalar() == 21
    net._clear_cached_op()
    assert net(nd.ones(1)).asscalar() == 3


# Op hooks


def test_an_op_hook_gets_bytes_and_a_number(hybrid):
    seen = []
    hybrid.register_op_hook(
        lambda name, op, array: (wrapped(array), seen.append((type(name), type(op), type(array))))
    )
    hybrid(nd.ones(1))
    assert seen == [(bytes, bytes, int)]


def test_an_op_hook_without_hybridize_is_silent():
    net, seen = Mul(3), []
    net.register_op_hook(lambda *args: seen.append(args))
    net(nd.ones(1))
    assert seen == []


def _megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 // 2**20


def test_an_array_of_an_op_hook_that_nobody_wraps_leaks(hybrid):
    x = nd.ones((1024, 1024))
    hybrid.register_op_hook(lambda name, op, array: None)
    for _ in range(5):
        hybrid(x).wait_to_read()
    before = _megabytes()
    for _ in range(50):
        hybrid(x).wait_to_read()
    assert _megabytes() - before > 150  # 50 arrays of 4 MB


def test_register_op_hook_none_removes_nothing(hybrid):
    seen = []
    hybrid.register_op_hook(lambda name, op, array: (wrapped(array), seen.append(1)))
    hybrid(nd.ones(1))
    hybrid.register_op_hook(None)
    hybrid(nd.ones(1))
    assert len(seen) == 2
    hybrid._clear_cached_op()
    hybrid(nd.ones(1))
    assert len(seen) == 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_exception_in_an_op_hook_is_lost(hybrid):
    hybrid.register_op_hook(lambda name, op, array: (wrapped(array), 1 / 0))
    assert hybrid(nd.ones(1)).asscalar() == 1


def test_the_warning_of_static_memory_comes_without_static_memory():
    net = Mul(3)
    net.hybridize()
    net.register_op_hook(lambda name, op, array: wrapped(array))
    with pytest.warns(UserWarning, match="experimental when static_alloc"):
        net(nd.ones(1))


# Gradients


def test_backward_returns_before_it_has_run_and_runs_in_another_thread():
    seen = []

    def slow(grad):
        time.sleep(0.3)
        seen.append(threading.get_ident())

    x = nd.ones(1)
    x.attach_grad()
    with autograd.record():
        y = Tap(slow)(x * 2)
    y.backward()
    assert seen == []
    nd.waitall()
    assert len(seen) == 1 and seen[0] != threading.get_ident()


def test_a_gradient_is_reused_after_the_callback():
    kept, copies = [], []
    x = nd.ones((64, 64))
    x.attach_grad()
    with autograd.record():
        y = x
        for factor in range(1, 6):
            y = Tap(lambda grad: (kept.append(grad), copies.append(grad.asnumpy())))(y * factor)
    y.backward()
    nd.waitall()
    # Other arrays are made in the memory that the gradients had.
    others = [nd.full((64, 64), 77.0) for _ in range(20)]
    nd.waitall()
    assert any((a.asnumpy() != b).any() for a, b in zip(kept, copies, strict=True)), len(others)


def test_a_function_loses_the_gradient_of_an_array_that_accumulates():
    x = nd.ones(1)
    x.attach_grad("add")
    with autograd.record():
        y = Tap(lambda grad: None)(x) * 5
    y.backward()
    assert x.grad.asscalar() == 0  # it should be 5


def test_a_function_loses_the_gradients_behind_an_input_without_one():
    a, b = nd.ones(1), nd.ones(1)
    b.attach_grad()
    with autograd.record():
        c, d = Tap(lambda *grads: None)(a, b)
        y = c + d * 7
    y.backward()
    assert b.grad.asscalar() == 0  # it should be 7


def test_a_function_gets_zeros_for_an_output_that_nobody_used():
    seen = []
    x = nd.ones(1)
    x.attach_grad()
    with autograd.record():
        a, _ = Tap(lambda *grads: seen.append([grad.asscalar() for grad in grads]))(x * 1, x * 2)
        y = a * 3
    y.backward()
    nd.waitall()
    assert seen == [[3, 0]]


@pytest.mark.filterwarnings("ignore")
def test_an_exception_in_a_function_comes_back_where_an_array_is_read(capfd):
    def fails(grad):
        raise KeyError("of the user")

    x = nd.ones(1)
    x.attach_grad()
    with autograd.record():
        y = Tap(fails)(x * 2)
    y.backward()
    with pytest.raises(mx.base.MXNetError, match="Check failed"):
        x.grad.asnumpy()
    assert "of the user" in capfd.readouterr().out  # printed, and not part of what is raised


def test_marking_an_array_inside_of_a_graph_cuts_the_graph():
    x = nd.ones(1)
    x.attach_grad()
    with autograd.record():
        y = x * 2
        y.attach_grad()
        z = y * 3
    z.backward()
    assert (y.grad.asscalar(), x.grad.asscalar()) == (3, 0)


# Arrays and blocks


def test_an_array_can_not_be_referred_to_weakly():
    with pytest.raises(TypeError, match="cannot create weak reference"):
        weakref.ref(nd.ones(1))


def test_asnumpy_is_a_copy():
    x = nd.ones(2)
    x.asnumpy()[:] = 5
    assert x.asnumpy().tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_hybridized_net_that_has_run_can_not_be_copied():
    net = mlp(hybridize=True)
    net(nd.ones((1, 4)))
    with pytest.raises(ValueError, match="ctypes objects containing pointers"):
        copy.deepcopy(net)


def test_names_of_parameters_are_global_and_there_is_no_walker():
    net = nn.HybridSequential()
    net.add(nn.Dense(1, in_units=1))
    assert list(net._collect_params_with_prefix()) == ["0.weight", "0.bias"]
    assert "0.weight" not in net.collect_params()
    assert not hasattr(net, "named_modules")


def test_hybridized_and_eager_dropout_draw_the_same_numbers():
    net = nn.HybridSequential()
    net.add(nn.Dropout(0.5), nn.Dropout(0.5))

    def run():
        mx.random.seed(3)
        with autograd.record():
            return net(nd.ones((4, 8))).asnumpy()

    eager = run()
    net.hybridize()
    assert np.array_equal(run(), eager)
