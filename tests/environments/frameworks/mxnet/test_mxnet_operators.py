"""Op hooks on hybridized blocks: names and values, both phases, several listeners, errors, and nothing left."""

import json
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import hookline
from tests.environments.frameworks.mxnet.nets import Mul, data, mlp, same_bits, step


class Twice(gluon.HybridBlock):
    """Calls one part twice, and computes something itself."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.fc = nn.Dense(3, in_units=3)
            self.bn = nn.BatchNorm(in_channels=3)

    def hybrid_forward(self, F, x):
        return F.relu(self.fc(self.bn(self.fc(x))) * 2)


@pytest.fixture
def net():
    made = Twice()
    made.initialize(mx.init.Xavier())
    made.hybridize()
    return made


def test_every_value_has_its_name_operator_and_numbers(net):
    x = data(2, 3)
    expected = net(x).asnumpy()
    seen = []
    with hookline.register_op_hook(net, lambda name, op, array: seen.append((name, op, array))):
        net(x)
    names = [name.removeprefix(net.prefix) for name, _, _ in seen]
    parts = ["dense0_fwd_output", "batchnorm0_fwd_output", "dense0_fwd_output"]
    assert names == [*parts, "_mulscalar0_0", "relu0_0"]
    assert [op for _, op, _ in seen] == ["FullyConnected", "BatchNorm", "FullyConnected", "_mul_scalar", "relu"]
    assert all(type(array) is nd.NDArray for _, _, array in seen)
    first = seen[0][2].asnumpy()
    wanted = x.asnumpy() @ net.fc.weight.data().asnumpy().T + net.fc.bias.data().asnumpy()
    np.testing.assert_allclose(first, wanted, rtol=1e-5, atol=1e-6)
    assert seen[-1][2].asnumpy().tobytes() == expected.tobytes()


def test_events_tell_the_block_the_call_and_the_phase(net):
    seen = []
    x = data(2, 3)
    with hookline.register_op_hook(net, seen.append, events=True, monitor_all=True):
        x.attach_grad()
        with autograd.record():
            y = net(x)
        y.backward()
    told = [(e.module, e.site, e.call, e.phase, e.role) for e in seen if e.op.endswith("FullyConnected")]
    assert ("fc", "fc/FullyConnected", 0, "forward", "input") in told
    assert ("fc", "fc/FullyConnected", 1, "forward", "output") in told
    backward = [event for event in told if event[3] == "backward"]
    assert [event[2] for event in backward] == [1, 1, 1, 0, 0, 0]  # the later call first
    assert {e.module for e in seen} == {"", "fc", "bn"}
    (grad,) = [
        e.array for e in seen if e.module == "fc" and e.phase == "backward" and e.call == 0 and e.index == 0
    ]
    assert grad.asnumpy().tobytes() == x.grad.asnumpy().tobytes()


def test_an_op_hook_changes_no_bit():
    x = data(2, 4)
    mx.random.seed(1)
    plain = mlp(hybridize=True)
    mx.random.seed(1)
    net = mlp(hybridize=True)
    expected = step(plain, x)
    with hookline.register_op_hook(net, lambda *args: None, monitor_all=True):
        assert same_bits(step(net, x), expected)
    assert same_bits(step(net, x), step(plain, x))


def test_where_and_ops_choose(net):
    seen = []
    with hookline.register_op_hook(net, lambda name, op, array: seen.append(op), where="fc"):
        net(data(2, 3))
    assert seen == ["FullyConnected"] * 2
    seen.clear()
    with hookline.register_op_hook(net, lambda name, op, array: seen.append(op), ops=["relu", "*_scalar"]):
        net(data(2, 3))
    assert seen == ["_mul_scalar", "relu"]
    with pytest.raises(hookline.InvalidArgument, match="Did you mean 'FullyConnected'"):
        hookline.register_op_hook(net, lambda *args: None, ops="FullyConected")


def test_two_listeners_come_and_go(net):
    first, second = [], []
    one = hookline.register_op_hook(net, lambda name, op, array: first.append(name))
    two = hookline.register_op_hook(net, lambda name, op, array: second.append(name), monitor_all=True)
    net(data(2, 3))
    assert len(first) == 5 and len(second) > 5
    two.remove()
    net(data(2, 3))
    assert len(first) == 10
    one.remove()
    one.remove()
    net(data(2, 3))
    assert len(first) == 10 and hookline.installed(net) == []


def test_nothing_is_left_and_the_compiled_graph_is_the_one_from_before(net):
    net(data(2, 3))
    before = net._cached_op, net._cached_graph, net._callback, net._monitor_all, type(net), list(vars(net))
    with hookline.register_op_hook(net, lambda *args: None, monitor_all=True):
        net(data(2, 3))
        (label, *_) = hookline.installed(net)
        assert label[:3] == ("register_op_hook", "op hook", "")
    assert (
        net._cached_op,
        net._cached_graph,
        net._callback,
        net._monitor_all,
        type(net),
        list(vars(net)),
    ) == before


def test_a_backward_that_comes_after_removal_tells_nobody(net):
    seen = []
    with hookline.register_op_hook(net, lambda name, op, array: seen.append(name)):
        with autograd.record():
            y = net(data(2, 3))
        count = len(seen)
    y.backward()
    nd.waitall()
    assert len(seen) == count


def test_arrays_are_freed_with_whoever_holds_them():
    net = nn.HybridSequential()
    net.add(nn.Activation("relu"))
    net.hybridize()
    x = nd.ones((1024, 1024))

    def megabytes():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 // 2**20

    with hookline.register_op_hook(net, lambda *args: None):
        for _ in range(10):
            net(x).wait_to_read()
        before = megabytes()
        for _ in range(50):
            net(x).wait_to_read()
        assert megabytes() - before < 60  # 50 arrays of 4 MB would be 200


def test_a_kept_array_stays_what_it_was(net):
    kept = []
    with hookline.register_op_hook(net, lambda name, op, array: kept.append((array, array.asnumpy()))):
        for _ in range(5):
            net(data(2, 3))
    nd.waitall()
    assert all((array.asnumpy() == copy).all() for array, copy in kept)


def test_an_error_comes_out_of_the_call_and_out_of_backward(net):
    def in_forward(name, op, array):
        raise KeyError("forward")

    handle = hookline.register_op_hook(net, in_forward)
    with pytest.raises(hookline.HookError, match=r"op hook at site '\w+dense0_fwd_output'.*KeyError: 'forward'"):
        net(data(2, 3))
    handle.remove()

    def in_backward(name, op, array):
        if "backward" in op:
            raise KeyError("backward")

    with hookline.register_op_hook(net, in_backward):
        with autograd.record():
            y = net(data(2, 3))
        with pytest.raises(hookline.HookError, match="KeyError: 'backward'"):
            y.backward()
    step(net, data(2, 3))


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda net: net.hybridize(static_alloc=True), r"static_alloc=True.*hybridize\(static_alloc=False\)"),
        (lambda net: net.register_op_hook(print), "an op hook of somebody else"),
    ],
)
def test_where_values_would_be_missing_it_is_refused(net, prepare, message):
    prepare(net)
    with pytest.raises(hookline.Unsupported, match=message):
        hookline.register_op_hook(net, lambda *args: None)
    assert hookline.installed(net) == []


def test_a_hook_inside_of_a_graph_that_is_listened_to_is_refused(net):
    with (
        hookline.register_op_hook(net, lambda *args: None),
        pytest.raises(hookline.Unsupported, match="needs the compiled graph"),
    ):
        hookline.register_forward_hook(net, lambda *args: None, "fc")
    assert hookline.installed(net) == [] and net._active


def test_a_net_that_is_unhybridized_meanwhile_says_so(net):
    with hookline.register_op_hook(net, lambda *args: None):
        net.hybridize(False)
        with pytest.raises(hookline.Unsupported, match="is not any more"):
            net(data(2, 3))
    net(data(2, 3))


def test_a_chain_of_hybridized_blocks_in_a_plain_one():
    net = nn.Sequential()
    net.add(Mul(3), Mul(5))
    for part in net:
        part.hybridize()
    seen = []
    with hookline.register_op_hook(net, lambda name, op, array: seen.append((op, array.asscalar()))):
        net(nd.ones(1))
    assert seen == [("_mul_scalar", 3), ("_mul_scalar", 15)]


def test_operators_are_recorded_and_watched(net):
    x = data(2, 3)
    with hookline.record(net, None, ops=True, inputs=True) as rec:
        expected = net(x).asnumpy()
    assert rec["/relu"].output.asnumpy().tobytes() == expected.tobytes()
    assert len(rec["fc/FullyConnected"].calls) == 2 and rec["fc/FullyConnected"].op == "FullyConnected"
    assert rec["fc/FullyConnected"].calls[0].input[0].asnumpy().tobytes() == x.asnumpy().tobytes()
    with hookline.record(net, ops=True, inputs=True) as parts:  # with hooks inside, it runs as it is written
        net(x)
    assert [name for name in parts.names if "/" in name] == [name for name in rec.names if "/" in name]
    for name in rec.names:
        assert parts[name].output.asnumpy().tobytes() == rec[name].output.asnumpy().tobytes(), name
    with hookline.watch(net, None, ops="relu", grads=False) as w:
        net(x)
    (row,) = w.rows("/relu")
    assert row["max"] == pytest.approx(expected.max())


def test_the_graph_of_a_node_is_read_as_mxnet_writes_it(net):
    """The names that attribution relies on: nodes begin with the prefix of the block that made them."""
    net(data(2, 3))
    nodes = json.loads(net._cached_graph[1].tojson())["nodes"]
    names = [node["name"] for node in nodes if node["op"] != "null"]
    assert names[0].startswith(net.fc.prefix) and names[1].startswith(net.bn.prefix)
    assert names[-1].startswith(net.prefix) and not names[-1].startswith((net.fc.prefix, net.bn.prefix))
