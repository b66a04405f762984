"""A net is freed when nobody has it, whatever was attached to it before. Gluon's own blocks are cycles."""

import gc
import time
import weakref

import pytest
from mxnet import gluon

import hookline
from tests.environments.frameworks.mxnet.nets import data, mlp, step


def nothing(*told):
    return None


def watched(**how):
    def watch(net):
        trainer = gluon.Trainer(net.collect_params(), "sgd")
        with hookline.watch(net, progress=False, **how):
            for _ in range(2):
                step(net, data(2, 4))
                trainer.step(1)

    return watch


def within(open_block):
    def use(net):
        with open_block(net):
            step(net, data(2, 4))

    return use


def failing(net):
    try:
        with hookline.record(net, grads=True), hookline.watch(net, progress=False):
            step(net, data(2, 4))
            raise KeyError("of the user")
    except KeyError:
        pass


USES = {
    "nothing": nothing,
    "record": within(lambda net: hookline.record(net, inputs=True, grads=True)),
    "record operators": within(lambda net: hookline.record(net, ops=True, grads=True)),
    "watch": watched(inputs=True),
    "watch every second step": watched(every=2),
    "watch operators": watched(ops=True),
    "op hook": within(lambda net: hookline.register_op_hook(net, nothing)),
    "op hook on all values": within(lambda net: hookline.register_op_hook(net, nothing, monitor_all=True)),
    "forward hook": within(lambda net: hookline.register_forward_hook(net, nothing, "**")),
    "backward hook": within(lambda net: hookline.register_backward_hook(net, nothing, "**")),
    "edit": within(lambda net: hookline.edit(net, {"0": lambda out: out, "1.weight": lambda w: w * 2})),
    "an exception": failing,
}


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("name", USES)
def test_a_net_is_freed(name, hybridize):
    net = mlp(hybridize=hybridize)
    step(net, data(2, 4))
    references = [weakref.ref(thing) for thing in (net, net[0], net[0].weight)]
    USES[name](net)
    del net
    end = time.monotonic() + 10  # a graph is freed by MXNet's threads, some time after its last operation
    while any(reference() is not None for reference in references) and time.monotonic() < end:
        gc.collect()
        time.sleep(0.01)
    assert [reference() for reference in references] == [None, None, None]


@pytest.mark.parametrize("hybridize", [False, True])
def test_an_op_hook_that_was_removed_is_not_called_by_a_later_backward(hybridize):
    from mxnet import autograd

    net, told = mlp(hybridize=hybridize), []
    with hookline.register_op_hook(net, lambda *event: told.append(event)), autograd.record():
        loss = net(data(2, 4)).sum()
    count = len(told)
    assert count
    loss.backward()
    net[0].weight.grad().wait_to_read()
    assert len(told) == count
