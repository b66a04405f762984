"""The conformance suite of hookline.testing on MXNet Gluon, and the records for the comparison of frameworks."""

from contextlib import contextmanager

import mxnet as mx
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import hookline
from hookline.testing import conformance
from hookline.testing.conformance import reference
from tests.environments.frameworks import across


class Times(gluon.HybridBlock):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def hybrid_forward(self, F, x):
        return x * self.factor


class Inner(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.inner = Times(3)

    def hybrid_forward(self, F, x):
        return self.inner(x)


class Chain(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.first, self.block, self.last = Times(2), Inner(), Times(5)

    def hybrid_forward(self, F, x):
        return self.last(self.block(self.first(x)))


class Branch(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.part = Times(3)

    def hybrid_forward(self, F, x):
        return self.part(x) + x * 10


class Shared(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.a = self.b = Times(2)

    def hybrid_forward(self, F, x):
        return self.b(self.a(x))


class Itself(gluon.Block):
    def forward(self, x):
        return x


class Same(gluon.Block):
    def __init__(self):
        super().__init__()
        self.same = Itself()

    def forward(self, x):
        return self.same(x) * 3


class Forked(gluon.Block):
    def forward(self, x):
        return {"double": x * 2, "more": (x * 3, None)}


class Fork(gluon.Block):
    def __init__(self):
        super().__init__()
        self.fork = Forked()

    def forward(self, x):
        found = self.fork(x)
        return found["double"] * 5 + found["more"][0] * 7


class Joined(gluon.Block):
    def forward(self, pair):
        return pair["a"] * 2 + pair["b"] * 3


class Join(gluon.Block):
    def __init__(self):
        super().__init__()
        self.join = Joined()

    def forward(self, x):
        return self.join({"a": x, "b": x * 4})


class Scaled(gluon.Block):
    """Block.__call__ takes no keyword arguments; a block with some passes them on by position, as RNNs do."""

    def __call__(self, x, factor=1.0, add=None):
        return super().__call__(x, factor, add)

    def forward(self, x, factor, add):
        return x * factor + add


class Kwargs(gluon.Block):
    def __init__(self):
        super().__init__()
        self.scaled = Scaled()

    def forward(self, x):
        return self.scaled(x, factor=3.0, add=x * 2)


class Attention(gluon.Block):
    def __call__(self, query, key, value):
        return super().__call__(query, key, value)

    def forward(self, query, key, value):
        return query * 2 + key * 3 + value * 5


class Attend(gluon.Block):
    def __init__(self):
        super().__init__()
        self.attend = Attention()

    def forward(self, x):
        return self.attend(x, x, value=x) + x * 7


class Outputs(gluon.Block):
    def forward(self, x):
        h = x * 2
        return h, h + 1, h


class Several(gluon.Block):
    def __init__(self):
        super().__init__()
        self.several = Outputs()

    def forward(self, x):
        a, b, c = self.several(x)
        return a * 3 + b * 5 + c * 7


class Handing(gluon.Block):
    def forward(self, x):
        return x * 2, x


class Handed(gluon.Block):
    def __init__(self):
        super().__init__()
        self.handed = Handing()

    def forward(self, x):
        a, b = self.handed(x)
        return a + a * 4 + b * 3 + x * 4


class Silent(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.used, self.unused = Times(2), Times(3)

    def hybrid_forward(self, F, x):
        return self.used(x)


class Inplace(gluon.Block):
    def __init__(self):
        super().__init__()
        self.first = Times(2)

    def forward(self, x):
        y = self.first(x)
        y[:] = 0
        return y + 1


class Point(gluon.Block):
    def __init__(self, hook):
        super().__init__()
        self.hook = hook

    def forward(self, x):
        return self.hook(x * 2) * 3


class Points(Point):
    def forward(self, x):
        a, b = self.hook(x * 2, x * 5)
        return a * 3 + b * 7


class Norm(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm(in_channels=3)
        self.initialize()

    def hybrid_forward(self, F, x):
        return self.norm(x)


class Filled(gluon.HybridBlock):
    """A net that gets its numbers by the names of its parameters."""

    def fill(self, numbers):
        self.initialize()
        for name, parameter in self._collect_params_with_prefix().items():
            parameter.set_data(nd.array(numbers[name]))


class Mlp(Filled):
    def __init__(self, sizes=(4, 3, 2), numbers=reference.WEIGHTS):
        super().__init__()
        self.fc1 = nn.Dense(sizes[1], in_units=sizes[0])
        self.act = nn.Activation("relu")
        self.fc2 = nn.Dense(sizes[2], in_units=sizes[1])
        self.fill(numbers)

    def hybrid_forward(self, F, x):
        return self.fc2(self.act(self.fc1(x)))


class Cnn(Filled):
    def __init__(self, numbers):
        super().__init__()
        self.conv1, self.act1 = nn.Conv2D(2, 3, in_channels=1), nn.Activation("relu")
        self.conv2, self.act2 = nn.Conv2D(3, 3, in_channels=2), nn.Activation("relu")
        self.fc = nn.Dense(2, in_units=3)
        self.fill(numbers)

    def hybrid_forward(self, F, x):
        return self.fc(self.act2(self.conv2(self.act1(self.conv1(x)))).mean((2, 3)))


MODELS = {
    kind.__name__.lower(): kind
    for kind in (
        Chain,
        Branch,
        Shared,
        Same,
        Fork,
        Join,
        Kwargs,
        Attend,
        Several,
        Handed,
        Silent,
        Inplace,
        Point,
        Points,
        Norm,
        Mlp,
    )
}


class MxnetAdapter(conformance.Adapter):
    name = "mxnet"

    def __init__(self, hybridize=False):
        self.hybridize = hybridize

    def build(self, model, **parts):
        made = MODELS[model](**parts)
        if self.hybridize:
            made.hybridize()
        return made

    def tensor(self, array):
        return nd.array(array)

    def array(self, tensor):
        return tensor.asnumpy()

    def backward(self, model, x, weights):
        given = nd.array(x)
        given.attach_grad()
        with autograd.record():
            loss = (model(given) * nd.array(weights)).sum()
        loss.backward()
        return given.grad.asnumpy()

    def train(self, model, x, weights, steps):
        trainer = gluon.Trainer(model.collect_params(), "sgd", {"learning_rate": 0.1})
        for _ in range(steps):
            with autograd.record():
                loss = (model(nd.array(x)) * nd.array(weights)).sum()
            loss.backward()
            trainer.step(1)

    @contextmanager
    def compiled(self, model):
        model.hybridize()
        yield model, lambda x: model(nd.array(x)).asnumpy()


@pytest.mark.parametrize("check", conformance.CHECKS, ids=str)
def test_mxnet_conforms(check):
    check(MxnetAdapter())


# Operators of a compiled graph have the names that MXNet gives them: test_mxnet_operators.py.
@pytest.mark.parametrize("check", [check for check in conformance.CHECKS if "ops" not in check.needs], ids=str)
def test_hybridized_mxnet_conforms(check):
    check(MxnetAdapter(hybridize=True))


@pytest.mark.parametrize("name", ["cnn", "mlp"])
def test_records_are_kept_for_the_comparison_of_frameworks(name):
    numbers = across.WEIGHTS[name]
    net = Cnn(numbers) if name == "cnn" else Mlp((4, 8, 2), numbers)
    x = nd.array(across.X[name])
    x.attach_grad()
    with hookline.record(net, inputs=True, grads=True) as rec:
        with autograd.record():
            loss = (net(x) * nd.array(across.LOSS[name])).sum()
        loss.backward()
    assert rec.names == across.SITES[name]
    path = across.keep(rec, "mxnet", name)
    loaded = hookline.load_recording(path)
    assert isinstance(loaded[""].output, mx.nd.NDArray)
    assert (loaded[""].output.asnumpy() == rec[""].output.asnumpy()).all()
