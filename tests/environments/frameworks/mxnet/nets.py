"""Small nets that the tests share."""

import mxnet as mx
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn


class Mul(gluon.HybridBlock):
    """Multiplies by a number."""

    def __init__(self, by):
        super().__init__()
        self.by = by

    def hybrid_forward(self, F, x):
        return x * self.by


class Structured(gluon.Block):
    """Returns a dict with a tuple and a list in it."""

    def forward(self, x, other=None):
        return {"a": x * 5, "b": (x * 7, [x * 11, None, "text"])}


def mlp(*, hybridize=False, **kwargs):
    net = nn.HybridSequential()
    net.add(nn.Dense(5, activation="relu", in_units=4), nn.Dense(3, in_units=5))
    net.initialize(mx.init.Xavier())
    if hybridize:
        net.hybridize(**kwargs)
    return net


def convnet():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.Dropout(0.5))
    inner = nn.HybridSequential()
    inner.add(nn.Conv2D(8, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.GlobalAvgPool2D())
    net.add(inner, nn.Flatten(), nn.Dense(3))
    net.initialize(mx.init.Xavier())
    net(nd.ones((2, 3, 8, 8)))
    return net


def data(*shape):
    return nd.random.normal(shape=shape)


def step(net, x, seed=0):
    """A forward and a backward: everything that comes of them, as numpy arrays."""
    mx.random.seed(seed)
    x = x.copy()
    x.attach_grad()
    with autograd.record():
        y = net(x)
        loss = (y * y).sum()
    loss.backward()
    found = {"output": y.asnumpy(), "input gradient": x.grad.asnumpy()}
    for name, parameter in net._collect_params_with_prefix().items():
        found[name] = parameter.data().asnumpy()
        if parameter.grad_req != "null":
            found[f"{name} gradient"] = parameter.grad().asnumpy()
    return found


def same_bits(a, b):
    assert a.keys() == b.keys()
    return all(a[key].dtype == b[key].dtype and a[key].tobytes() == b[key].tobytes() for key in a)
