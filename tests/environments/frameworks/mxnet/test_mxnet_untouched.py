"""Observing changes nothing: not a bit of what a net computes, nor anything of the net itself."""

import copy
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import hookline
from tests.environments.frameworks.mxnet.nets import convnet, data, mlp, same_bits, step


def state(net):
    """Everything of a net that a hook could leave a trace in."""
    found = {}
    for name, block in hookline.backends.resolve(net).named_modules(net):
        found[name] = (
            type(block),
            list(vars(block)),
            list(block._forward_hooks.items()),
            list(block._forward_pre_hooks.items()),
            getattr(block, "_active", None),
            getattr(block, "_cached_op", None),
            [(key, id(p), p.grad_req) for key, p in block._reg_params.items()],
        )
    return found


def test_gradients_of_dense_nets_keep_every_bit():
    net, x = mlp(), data(6, 4)
    expected = step(net, x)
    with hookline.record(net, inputs=True, grads=True):
        assert same_bits(step(net, x), expected)
    with hookline.watch(net, inputs=True):
        assert same_bits(step(net, x), expected)


def test_gradients_heard_in_a_convolution_keep_all_but_the_last_digits_and_the_audit_says_so():
    mx.random.seed(7)
    net = convnet()
    mx.random.seed(7)
    other = convnet()
    x = data(2, 3, 8, 8)
    expected = step(other, x)
    with hookline.record(net, grads=True) as rec:
        found = step(net, x)
    assert found["output"].tobytes() == expected["output"].tobytes()
    for key, value in expected.items():
        # The bias before a BatchNorm has a gradient of 0, in which every digit is rounding.
        np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-6, err_msg=key)
    assert "oneDNN's own layout" in rec.audit()["0"].why
    assert rec.audit()["1"].why is None
    with hookline.record(net) as rec:
        step(net, x)
    assert rec.audit()["0"].why is None  # nothing was heard this time


@pytest.mark.parametrize("grads", [False, True])
def test_statistics_of_convolutions_keep_every_bit_of_what_is_computed(grads):
    x = data(2, 3, 8, 8)
    nets = []
    for _ in range(2):
        mx.random.seed(7)
        nets.append(convnet())
    expected = step(nets[0], x)
    with hookline.watch(nets[1], inputs=True, grads=grads):
        found = step(nets[1], x)
    assert found["output"].tobytes() == expected["output"].tobytes()
    assert grads or same_bits(found, expected)


WITHOUT_LAYOUTS = """
import mxnet as mx, hookline
from tests.environments.frameworks.mxnet.nets import convnet, data, same_bits, step
nets = []
for _ in range(2):
    mx.random.seed(7)
    nets.append(convnet())
x = data(2, 3, 8, 8)
expected = step(nets[0], x)
with hookline.record(nets[1], inputs=True, grads=True) as rec:
    assert same_bits(step(nets[1], x), expected)
assert all(entry.why is None for entry in rec.audit())
"""


def test_without_layouts_of_onednn_every_bit_of_every_gradient_is_kept():
    environment = {**os.environ, "MXNET_MKLDNN_ENABLED": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WITHOUT_LAYOUTS],
        cwd=Path(__file__).parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr


def test_nothing_is_left_after_everything():
    net, x = mlp(hybridize=True), data(2, 4)
    step(net, x)
    net.register_forward_hook(lambda *a: None)
    before, numbers = state(net), step(net, x)
    with hookline.record(net, inputs=True, grads=True):
        step(net, x)
    with hookline.edit(net, {"0": lambda out: out * 2, "1.weight": lambda w: w * 0, "0.act": hookline.skip}):
        step(net, x)
    for register in (
        hookline.register_forward_pre_hook,
        hookline.register_forward_hook,
        hookline.register_backward_pre_hook,
        hookline.register_backward_hook,
    ):
        handle = register(net, lambda *a: None, "**")
        step(net, x)
        handle.remove()
        handle.remove()
    with pytest.raises(ZeroDivisionError), hookline.record(net, grads=True):
        _ = net(x), 1 / 0
    assert state(net) == before
    assert hookline.installed(net) == []
    assert same_bits(step(net, x), numbers)


def test_a_failed_attach_leaves_nothing():
    net = mlp(hybridize=True)
    inner = nn.HybridSequential()
    inner.add(nn.Dense(2, in_units=3))
    net.add(inner)
    inner.initialize()
    net.hybridize()
    inner.hybridize(backend="MKLDNN")
    before = state(net)
    with pytest.raises(hookline.Unsupported):
        hookline.register_forward_hook(net, lambda *a: None, "**")  # of all blocks, only 2.0 can't be
    assert state(net) == before


def test_copies_of_a_hooked_net_have_no_hook():
    net, x = mlp(), data(2, 4)
    expected = net(x).asnumpy()
    with hookline.record(net) as rec, hookline.edit(net, {"0": lambda out: out * 0}):
        copies = [copy.deepcopy(net), pickle.loads(pickle.dumps(net))]
        for made in copies:
            assert type(made) is nn.HybridSequential and type(made[0]) is nn.Dense
            assert made(x).asnumpy().tobytes() == expected.tobytes()
            assert hookline.installed(made) == []
    assert rec.names == []  # the copies never wrote into the recording


def test_a_pickle_of_a_hooked_net_loads_without_hookline(tmp_path):
    net, x = mlp(), nd.ones((1, 4))
    with hookline.register_forward_hook(net, lambda *a: 1 / 0, "**"):
        (tmp_path / "net.pkl").write_bytes(pickle.dumps(net))
    code = (
        "import pickle, sys, mxnet as mx; net = pickle.load(open('net.pkl', 'rb'));"
        "print(net(mx.nd.ones((1, 4))).asnumpy().tobytes().hex()); assert 'hookline' not in sys.modules"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == net(x).asnumpy().tobytes().hex()


def test_a_hooked_block_still_is_what_it_was():
    net = mlp()
    text = repr(net)
    with hookline.record(net):
        assert isinstance(net[0], nn.Dense) and type(net[0]).__name__ == "Dense"
        assert repr(net) == text
        part = net[:1]  # Gluon makes it by type(self)(...)
        assert type(part) is nn.HybridSequential and part[0] is net[0]

        class Holder(gluon.Block):
            def __init__(self, block):
                super().__init__()
                self.fc = block

        holder = Holder(net[0])
        holder.fc = nn.Dense(3)  # Gluon compares the types of the old and the new attribute
    assert type(part) is nn.HybridSequential


def test_parameters_saved_while_hooked_load_into_a_net_without_hooks(tmp_path):
    net, other, x = mlp(), mlp(), data(2, 4)
    with hookline.record(net):
        net.save_parameters(str(tmp_path / "net.params"))
    other.load_parameters(str(tmp_path / "net.params"))
    assert other(x).asnumpy().tobytes() == net(x).asnumpy().tobytes()


def test_the_random_state_is_left_alone():
    net = convnet()
    x = data(2, 3, 8, 8)

    def next_numbers(look):
        mx.random.seed(3)
        with autograd.record():
            look()
        return nd.random.uniform(shape=8).asnumpy()

    def recorded():
        with hookline.record(net):
            net(x)

    assert (next_numbers(recorded) == next_numbers(lambda: net(x))).all()
    mx.random.seed(3)
    expected = nd.random.uniform(shape=8).asnumpy()
    fresh = nn.Dense(3)
    mx.random.seed(3)
    hookline.summary(fresh, (2, 4))  # the copy that runs is filled without drawing
    assert (nd.random.uniform(shape=8).asnumpy() == expected).all()
    assert fresh.weight.shape == (3, 0)


def test_recordings_in_several_threads_do_not_see_each_other():
    net = mlp()
    inputs = [data(2, 4) for _ in range(4)]
    expected = [net(x).asnumpy() for x in inputs]

    def work(number):
        found = []
        for _ in range(10):
            with hookline.record(net, inputs=True, grads=True) as rec:
                with autograd.record():
                    loss = (net(inputs[number]) ** 2).sum()
                loss.backward()
            assert len(rec[""].calls) == 1 and (rec[""].input[0] == inputs[number]).asnumpy().all()
            found.append((rec[""].output.asnumpy() == expected[number]).all())
            found.append((rec[""].grad_output.asnumpy() == 2 * expected[number]).all())
        return all(found)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    assert hookline.installed(net) == []
