"""Every private name of MXNet that `backends/mxnet/compat.py` uses is there and does what is relied on."""

import ctypes
import time
from functools import partial

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

from hookline.backends.mxnet import compat
from hookline.backends.patching import Patch
from hookline.backends.undoing import Undoing
from tests.environments.frameworks.mxnet.nets import Mul, data, mlp


def test_children_and_parameters_by_their_own_names():
    net = mlp()
    assert list(compat.children(net)) == ["0", "1"] and compat.children(net)["0"] is net[0]
    assert list(compat.own_parameters(net[1])) == ["weight", "bias"]
    norm = nn.BatchNorm(in_channels=2)
    assert [compat.is_state(p) for p in compat.own_parameters(norm).values()] == [False, False, True, True]


def test_a_convolution_tells_the_order_of_its_axes():
    assert compat.layout(nn.Conv2D(4, 3)) == "NCHW" and compat.layout(nn.Conv1DTranspose(4, 3)) == "NCW"
    assert compat.layout(nn.Conv2D(4, 3, in_channels=2, layout="NHWC")) == "NHWC"


def test_a_parameter_without_numbers_is_filled_with_zeros():
    for prepare in (lambda block: None, lambda block: block.initialize(mx.init.Xavier())):
        block = nn.Dense(2)
        prepare(block)
        assert not compat.is_initialized(block.weight)
        for parameter in compat.own_parameters(block).values():
            compat.with_zeros(parameter)
        assert not block(nd.ones((1, 3))).asnumpy().any()
        assert compat.is_initialized(block.weight)


def test_a_trainer_has_its_parameters():
    net = mlp()
    held = compat.parameters_of(gluon.Trainer(net.collect_params(), "sgd"))
    assert {id(p) for p in held} == {id(p) for p in net.collect_params().values()}


def test_whether_a_block_is_compiled_and_how():
    net = mlp()
    assert not compat.is_active(net) and compat.hybridizing(net) == [] and compat.partitioned_for(net) is None
    net.hybridize(static_alloc=True)
    before = compat.hybridizing(net)
    assert compat.is_active(net) and compat.flags(net)["static_alloc"] is True
    net.hybridize(backend="MKLDNN")
    assert compat.hybridizing(net) is not before and compat.partitioned_for(net) == "MKLDNN"
    compat.set_active(net, False)
    assert not compat.is_active(net)
    assert compat.is_hybrid(net) and not compat.is_hybrid(nn.Sequential())


def test_an_array_of_a_graph_is_told_from_others():
    x = nd.ones(1)
    assert not compat.is_in_graph(x)
    x.attach_grad()
    assert compat.is_in_graph(x)
    with autograd.record():
        assert compat.is_in_graph(x * 2) and not compat.is_in_graph(nd.ones(1) * 2)
        other = nd.ones(1)
        _ = x * other
        # Other took part in an operation, and no gradient will ever come to it.
        assert other._fresh_grad == 0 and not compat.is_in_graph(other)
    fresh = x._fresh_grad
    assert compat.is_in_graph(x) and x._fresh_grad == fresh  # asking changes nothing


def test_the_address_of_an_array_is_where_its_numbers_are():
    x = nd.array([1.5, 2.5, 3.5])
    found = (ctypes.c_float * 3).from_address(compat.data_pointer(x))
    assert list(found) == [1.5, 2.5, 3.5]
    convolved = nn.Conv2D(8, 3, in_channels=3)
    convolved.initialize()
    y = convolved(data(2, 3, 8, 8))  # in a layout of oneDNN's, and changed to the plain one by being asked
    flat = (ctypes.c_float * y.size).from_address(compat.data_pointer(y))
    assert np.array_equal(np.array(flat, "float32").reshape(y.shape), y.asnumpy())


def test_an_operation_of_ones_own_runs_in_the_backward():
    seen = []

    @compat.BackwardEntry
    def backward(outputs, inputs, handles, requests, training, key):
        grad, target = compat.owning(handles[0]), compat.owning(handles[1], writable=True)
        seen.append((outputs, inputs, requests[0], key, grad.asscalar()))
        target[:] = grad * 10
        compat.wait_until_unused(target)
        return True

    @compat.DeleteEntry
    def delete(key):
        seen.append(("deleted", key))
        return True

    x = nd.ones(1)
    x.attach_grad()
    callbacks = compat.callback_list(backward, delete, 77)
    with autograd.record():
        y = x.detach()
        compat.record_operation([x], [y], callbacks)
        z = y * 3
    z.backward()
    assert x.grad.asscalar() == 30
    assert seen[0] == (1, 1, 1, 77, 3)
    del y, z
    # C++ calls `delete` when the graph is gone, some time later; until then the callbacks must be there.
    end = time.monotonic() + 10
    while len(seen) == 1 and time.monotonic() < end:
        nd.waitall()
        time.sleep(0.01)
    assert seen[1:] == [("deleted", 77)]


def test_an_op_hook_is_put_on_a_graph_of_its_own_and_taken_off():
    net, seen = Mul(3), []
    net.hybridize()
    net(nd.ones(1))
    op, symbol = net._cached_op, compat.compiled_symbol(net)

    def callback(name, op, handle):
        seen.append((compat.text(name), compat.owning(handle)))

    undo = compat.set_op_hook(net, callback)
    compat.monitor_all(net, True)
    assert compat.monitors_all(net) and compat.op_hook(net) is not None
    with pytest.warns(UserWarning, match="experimental"):
        net(nd.ones(1))
    assert len(seen) == 2 and seen[1][1].asscalar() == 3
    undo()
    assert net._cached_op is op and compat.compiled_symbol(net) is symbol and compat.op_hook(net) is None
    net(nd.ones(1))
    assert len(seen) == 2


def test_one_function_runs_every_operator():
    seen = []

    def around(invoke, handle, *rest):
        seen.append(compat.operator_name(handle))
        return invoke(handle, *rest)

    patch = Patch([compat.INVOKE], lambda invoke: partial(around, invoke))
    with Undoing() as undoing:
        patch.use(undoing, around)
        x = nd.ones(2)
        (x * 2 + x).relu().sum()
        mx.np.ones(2) + mx.np.ones(2)
    assert seen == ["_ones", "_mul_scalar", "broadcast_add", "relu", "sum", "_npi_ones", "_npi_ones", "_npi_add"]
    nd.ones(2)
    assert len(seen) == 8


def test_names_of_operators():
    assert {"FullyConnected", "_backward_FullyConnected"} <= compat.operator_names()
    assert compat.backward_operator("FullyConnected") == "_backward_FullyConnected"
    assert compat.backward_operator("_mul_scalar") == "_backward_mul_scalar"
    assert compat.backward_operator("broadcast_like") == "broadcast_like_backward"


def test_layouts_of_onednn_are_known_of():
    assert compat.has_layouts_of_its_own() == mx.runtime.Features().is_enabled("MKLDNN")
