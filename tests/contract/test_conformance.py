"""The conformance suite of hookline.testing, on torch; others run it in tests/environments/frameworks."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn

from hookline.backends.capabilities import FEATURES, capabilities
from hookline.testing import conformance
from hookline.testing.conformance import reference


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Times(3)

    def forward(self, x):
        return self.inner(x)


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.block, self.last = Times(2), Block(), Times(5)

    def forward(self, x):
        return self.last(self.block(self.first(x)))


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Times(3)

    def forward(self, x):
        return self.part(x) + x * 10


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = self.b = Times(2)

    def forward(self, x):
        return self.b(self.a(x))


class Same(nn.Module):
    def __init__(self):
        super().__init__()
        self.same = nn.Identity()

    def forward(self, x):
        return self.same(x) * 3


class Forked(nn.Module):
    def forward(self, x):
        return {"double": x * 2, "more": (x * 3, None)}


class Fork(nn.Module):
    def __init__(self):
        super().__init__()
        self.fork = Forked()

    def forward(self, x):
        found = self.fork(x)
        return found["double"] * 5 + found["more"][0] * 7


class Joined(nn.Module):
    def forward(self, pair):
        return pair["a"] * 2 + pair["b"] * 3


class Join(nn.Module):
    def __init__(self):
        super().__init__()
        self.join = Joined()

    def forward(self, x):
        return self.join({"a": x, "b": x * 4})


class Scaled(nn.Module):
    def forward(self, x, factor=1.0, add=None):
        return x * factor + add


class Kwargs(nn.Module):
    def __init__(self):
        super().__init__()
        self.scaled = Scaled()

    def forward(self, x):
        return self.scaled(x, factor=3.0, add=x * 2)


class Attention(nn.Module):
    def forward(self, query, key, value):
        return query * 2 + key * 3 + value * 5


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = Attention()

    def forward(self, x):
        return self.attend(x, x, value=x) + x * 7


class Outputs(nn.Module):
    def forward(self, x):
        h = x * 2
        return h, h + 1, h


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.several = Outputs()

    def forward(self, x):
        a, b, c = self.several(x)
        return a * 3 + b * 5 + c * 7


class Handing(nn.Module):
    def forward(self, x):
        return x * 2, x


class Handed(nn.Module):
    def __init__(self):
        super().__init__()
        self.handed = Handing()

    def forward(self, x):
        a, b = self.handed(x)
        return a + a * 4 + b * 3 + x * 4


class Silent(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = Times(2), Times(3)

    def forward(self, x):
        return self.used(x)


class Inplace(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Times(2)

    def forward(self, x):
        return self.first(x).zero_() + 1


class Point(nn.Module):
    def __init__(self, hook):
        super().__init__()
        self.hook = hook

    def forward(self, x):
        return self.hook(x * 2) * 3


class Points(Point):
    def forward(self, x):
        a, b = self.hook(x * 2, x * 5)
        return a * 3 + b * 7


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(x)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)
        self.load_state_dict({name: torch.tensor(value) for name, value in reference.WEIGHTS.items()})

    def forward(self, x):
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


class TorchAdapter(conformance.Adapter):
    name = "torch"

    def build(self, model, **parts):
        return MODELS[model](**parts)

    def tensor(self, array):
        return torch.tensor(array)

    def array(self, tensor):
        return tensor.detach().numpy().copy()

    def backward(self, model, x, weights):
        given = torch.tensor(x, requires_grad=True)
        (model(given) * torch.tensor(weights)).sum().backward()
        return given.grad.numpy()

    def train_with_momentum(self, model, x, weights, steps):
        self.train(model, x, weights, steps, momentum=0.5)

    def train(self, model, x, weights, steps, momentum=0.0):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
        for _ in range(steps):
            optimizer.zero_grad()
            (model(torch.tensor(x)) * torch.tensor(weights)).sum().backward()
            optimizer.step()

    @contextmanager
    def compiled(self, model):
        compiled = torch.compile(model, backend="eager")
        yield compiled, lambda x: compiled(torch.tensor(x)).detach().numpy()

    def state(self, model):
        return model.state_dict()


@pytest.mark.parametrize("check", conformance.CHECKS, ids=str)
def test_torch_conforms(check):
    check(TorchAdapter())


def test_every_feature_is_checked():
    checked = {feature for check in conformance.CHECKS for feature in check.needs}
    assert checked == set(FEATURES)


def test_every_model_of_the_adapters_docstring_is_built():
    text = conformance.adapter.__doc__
    assert all(f"| {name} |" in text for name in MODELS)
    assert np.array_equal(TorchAdapter().run(MODELS["chain"](), np.ones(1, np.float32)), [30.0])


def test_a_declared_no_must_raise_for_its_reason(monkeypatch):
    torch_says = capabilities()["torch"]
    claims = {**torch_says.answers, "stop": ("no reason", "nothing")}
    (check,) = [check for check in conformance.CHECKS if "stop" in check.needs]
    monkeypatch.setattr(conformance.checking, "capabilities", lambda: {"torch": FakeAnswers(claims)})
    with pytest.raises(AssertionError, match="Unsupported was wanted, nothing was raised"):
        check(TorchAdapter())


class FakeAnswers:
    name = "torch"

    def __init__(self, answers):
        self.answers = answers

    def can(self, feature):
        return self.answers[feature] is None
