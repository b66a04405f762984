"""The conformance suite of hookline.testing, on MindSpore."""

from contextlib import contextmanager

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from hookline.testing import conformance
from hookline.testing.conformance import reference


class Times(nn.Cell):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def construct(self, x):
        return x * self.factor


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.inner = Times(3)

    def construct(self, x):
        return self.inner(x)


class Chain(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.block, self.last = Times(2), Block(), Times(5)

    def construct(self, x):
        return self.last(self.block(self.first(x)))


class Branch(nn.Cell):
    def __init__(self):
        super().__init__()
        self.part = Times(3)

    def construct(self, x):
        return self.part(x) + x * 10


class Shared(nn.Cell):
    def __init__(self):
        super().__init__()
        self.a = Times(2)
        self.b = self.a

    def construct(self, x):
        return self.b(self.a(x))


class Same(nn.Cell):
    def __init__(self):
        super().__init__()
        self.same = nn.Identity()

    def construct(self, x):
        return self.same(x) * 3


class Forked(nn.Cell):
    def construct(self, x):
        return {"double": x * 2, "more": (x * 3, None)}


class Fork(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fork = Forked()

    def construct(self, x):
        found = self.fork(x)
        return found["double"] * 5 + found["more"][0] * 7


class Joined(nn.Cell):
    def construct(self, pair):
        return pair["a"] * 2 + pair["b"] * 3


class Join(nn.Cell):
    def __init__(self):
        super().__init__()
        self.join = Joined()

    def construct(self, x):
        return self.join({"a": x, "b": x * 4})


class Scaled(nn.Cell):
    def construct(self, x, factor=1.0, add=None):
        return x * factor + add


class Kwargs(nn.Cell):
    def __init__(self):
        super().__init__()
        self.scaled = Scaled()

    def construct(self, x):
        return self.scaled(x, factor=3.0, add=x * 2)


class Attention(nn.Cell):
    def construct(self, query, key, value):
        return query * 2 + key * 3 + value * 5


class Attend(nn.Cell):
    def __init__(self):
        super().__init__()
        self.attend = Attention()

    def construct(self, x):
        return self.attend(x, x, value=x) + x * 7


class Outputs(nn.Cell):
    def construct(self, x):
        h = x * 2
        return h, h + 1, h


class Several(nn.Cell):
    def __init__(self):
        super().__init__()
        self.several = Outputs()

    def construct(self, x):
        a, b, c = self.several(x)
        return a * 3 + b * 5 + c * 7


class Handing(nn.Cell):
    def construct(self, x):
        return x * 2, x


class Handed(nn.Cell):
    def __init__(self):
        super().__init__()
        self.handed = Handing()

    def construct(self, x):
        a, b = self.handed(x)
        return a + a * 4 + b * 3 + x * 4


class Silent(nn.Cell):
    def __init__(self):
        super().__init__()
        self.used, self.unused = Times(2), Times(3)

    def construct(self, x):
        return self.used(x)


class Inplace(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = Times(2)

    def construct(self, x):
        y = self.first(x)
        y.copy_(x * 0)
        return y + 1


class Point(nn.Cell):
    def __init__(self, hook):
        super().__init__()
        self.hook = hook

    def construct(self, x):
        return self.hook(x * 2) * 3


class Points(Point):
    def construct(self, x):
        a, b = self.hook(x * 2, x * 5)
        return a * 3 + b * 7


class Norm(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def construct(self, x):
        return self.norm(x)


class Mlp(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Dense(4, 3), nn.ReLU(), nn.Dense(3, 2)
        for parameter in self.get_parameters():
            parameter.set_data(Tensor(reference.WEIGHTS[parameter.name]))

    def construct(self, x):
        return self.fc2(self.act(self.fc1(x)))


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


class MindSporeAdapter(conformance.Adapter):
    name = "mindspore"

    def build(self, model, **parts):
        return MODELS[model](**parts)

    def tensor(self, array):
        return Tensor(array)

    def array(self, tensor):
        return tensor.asnumpy().copy()

    def backward(self, model, x, weights):
        def loss(x):
            return (model(x) * Tensor(weights)).sum()

        grads = ms.grad(loss, 0, list(model.trainable_params()) or None)(Tensor(x))
        return (grads[0] if isinstance(grads, tuple) else grads).asnumpy().copy()

    def train(self, model, x, weights, steps):
        optimizer = nn.SGD(model.trainable_params(), learning_rate=0.1)
        step = ms.value_and_grad(lambda x: (model(x) * Tensor(weights)).sum(), None, optimizer.parameters)
        for _ in range(steps):
            _, grads = step(Tensor(x))
            optimizer(grads)

    @contextmanager
    def compiled(self, model):
        ms.set_context(mode=ms.GRAPH_MODE)
        try:
            yield model, lambda x: model(Tensor(x)).asnumpy()
        finally:
            ms.set_context(mode=ms.PYNATIVE_MODE)

    def state(self, model):
        return model.state_dict()


@pytest.mark.parametrize("check", conformance.CHECKS, ids=str)
def test_mindspore_conforms(check):
    check(MindSporeAdapter())


def test_the_adapter_builds_the_models():
    assert np.array_equal(MindSporeAdapter().run(Inplace(), np.ones(2, np.float32)), [1.0, 1.0])
