"""Property tests: random module trees against a reference that is computed without any hook."""

import dataclasses
from typing import NamedTuple

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

import hookline
from hookline.trees import filled, leaves, map_leaves, slotted, unfilled
from tests.support.compare import same_bits

WIDTH = 3


class Part(nn.Module):
    """A module that can also compute itself without being called: `reference` fills `log`.

    log[name] is a list of (input, output) per call; both are clones with a gradient of their own, so
    that after the backward their .grad is the module's own share.
    """

    def compute(self, x):
        """What forward does, without in-place operations and without calling a module."""
        raise NotImplementedError

    def reference(self, x, name, log):
        inside = x.clone()
        out = self.parts(inside, name, log).clone()
        for tensor in (inside, out):
            tensor.retain_grad()
        log.setdefault(name, []).append((inside, out))
        return out

    def parts(self, x, name, log):
        return self.compute(x)

    def child(self, key, x, name, log):
        return self._modules[key].reference(x, f"{name}.{key}" if name else key, log)


class Linear(Part):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.float64))

    def forward(self, x):
        return x @ self.weight

    compute = forward


class Sin(Part):
    """Its backward needs its input, not its output, which may therefore be written to."""

    def forward(self, x):
        return torch.sin(x)

    compute = forward


class WritesItsInput(Part):
    """As ReLU(inplace=True); a multiplication, since its backward needs no saved value."""

    def forward(self, x):
        return x.mul_(-0.5)

    def compute(self, x):
        return x * -0.5


class Same(Part):
    def forward(self, x):
        return x

    def compute(self, x):
        return x


class Transposed(Part):
    """Returns a view."""

    def forward(self, x):
        return x.flip(-1).unsqueeze(0).squeeze(0)

    compute = forward


class Flat(Part):
    """Returns a view of all of its input."""

    def forward(self, x):
        return x.view(-1).view(2, WIDTH)

    compute = forward


class Chain(Part):
    def __init__(self, *parts):
        super().__init__()
        for number, part in enumerate(parts):
            self.add_module(str(number), part)

    def forward(self, x):
        for part in self._modules.values():
            x = part(x)
        return x

    def parts(self, x, name, log):
        for key in self._modules:
            x = self.child(key, x, name, log)
        return x


class Around(Part):
    """A residual connection; the branch gets a copy, so that it may write to it."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return 2 * x + self.body(x * 1)

    def parts(self, x, name, log):
        return 2 * x + self.child("body", x * 1, name, log)


class Repeated(Part):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return self.body(self.body(x * 1) + 1)

    def parts(self, x, name, log):
        return self.child("body", self.child("body", x * 1, name, log) + 1, name, log)


class Fork(Part):
    """Two children read one tensor; one gets it by keyword."""

    def __init__(self, left, right):
        super().__init__()
        self.left, self.right = left, right

    def forward(self, x):
        return self.left(x * 1) * 3 + self.right(x=x * 1)

    def parts(self, x, name, log):
        return self.child("left", x * 1, name, log) * 3 + self.child("right", x * 1, name, log)


class WrittenAfter(Part):
    """Writes to its child's output."""

    def __init__(self):
        super().__init__()
        self.body = Linear()

    def forward(self, x):
        out = self.body(x)
        out += 1
        return out

    def parts(self, x, name, log):
        return self.child("body", x, name, log) + 1


atoms = st.sampled_from([Linear, Sin, WritesItsInput, Same, Transposed, Flat, WrittenAfter]).map(
    lambda kind: kind()
)


def grown(children):
    return st.one_of(
        st.lists(children, min_size=1, max_size=3).map(lambda parts: Chain(*parts)),
        children.map(Around),
        children.map(Repeated),
        st.tuples(children, children).map(lambda pair: Fork(*pair)),
    )


trees = st.recursive(atoms, grown, max_leaves=6).map(lambda body: Chain(Linear(), body))


def start():
    return torch.linspace(-1, 1, 2 * WIDTH, dtype=torch.float64).reshape(2, WIDTH).requires_grad_()


def weights_of(model):
    return [p.grad for p in model.parameters()]


@settings(max_examples=150, deadline=None)
@given(trees)
@example(Chain(Linear(), Chain(Chain(Same()), WritesItsInput())))
@example(Chain(Linear(), Chain(Chain(Flat()), WritesItsInput())))
@example(Chain(Linear(), Chain(Same(), Same(), WritesItsInput())))
@example(Chain(Linear(), Chain(WritesItsInput(), Chain(Flat(), WritesItsInput()))))
def test_recorded_values_and_gradients_equal_a_reference_without_hooks(model):
    log = {}
    model.reference(start(), "", log).square().sum().backward()
    model.zero_grad()
    x = start()
    with hookline.record(model, inputs=True, grads=True) as rec:
        model(x * 1).square().sum().backward()
    assert sorted(rec.names) == sorted(log)
    for name, calls in log.items():
        assert len(rec[name].calls) == len(calls)
        for got, (inside, out) in zip(rec[name].calls, calls, strict=True):
            given_input = got.input[0] if got.input else got.kwargs["x"]
            torch.testing.assert_close(given_input, inside.detach(), rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(got.output, out.detach(), rtol=1e-12, atol=1e-12)
            own = got.grad_input[0] if got.grad_input else got.grad_kwargs["x"]
            torch.testing.assert_close(own, inside.grad, rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(got.grad_output, out.grad, rtol=1e-9, atol=1e-9)


@settings(max_examples=150, deadline=None)
@given(trees)
def test_outputs_and_gradients_are_bitwise_those_without_a_recording(model):
    results = []
    for record in (False, True):
        model.zero_grad()
        x = start()
        if record:
            with hookline.record(model, inputs=True, grads=True):
                out = model(x * 1)
                out.square().sum().backward()
        else:
            out = model(x * 1)
            out.square().sum().backward()
        results.append((out, x.grad, weights_of(model)))
    assert same_bits(*results)


@settings(max_examples=60, deadline=None)
@given(trees)
def test_backward_hooks_see_what_a_recording_sees(model):
    names = {module: name for name, module in model.named_modules()}
    seen = {}

    def hook(module, grad_input, grad_output):
        seen.setdefault(names[module], []).append((grad_input, grad_output[0]))

    with hookline.register_backward_hook(model, hook, "**"):
        model(start() * 1).square().sum().backward()
    with hookline.record(model, grads=True) as rec:
        model(start() * 1).square().sum().backward()
    for name, calls in seen.items():
        expected = rec[name].calls
        assert len(calls) == len(expected)
        for (grad_input, grad_output), call in zip(reversed(calls), expected, strict=True):
            torch.testing.assert_close(grad_output, call.grad_output, rtol=1e-9, atol=1e-9)
            if grad_input:
                torch.testing.assert_close(grad_input[0], call.grad_input[0], rtol=1e-9, atol=1e-9)


class Point(NamedTuple):
    x: object
    y: object


@dataclasses.dataclass
class Box:
    inside: object
    label: str = "kept"


values = st.one_of(st.none(), st.text(max_size=3), st.integers(), st.floats(allow_nan=False))
structures = st.recursive(
    values,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.tuples(inner, inner).map(lambda pair: Point(*pair)),
        inner.map(Box),
    ),
    max_leaves=12,
)


@given(structures)
def test_structures_come_apart_and_together(tree):
    assert map_leaves(lambda n: n, tree, float) is tree
    doubled = map_leaves(lambda n: (n,), tree, float)
    assert type(doubled) is type(tree) or isinstance(tree, float)
    assert [n for (n,) in _singletons(doubled, tree)] == list(leaves(tree, float))
    template, count = slotted(tree, float)
    values = unfilled(template, tree)
    assert list(values.values()) == list(leaves(tree, float)) and len(values) == count
    assert list(leaves(filled(template, values), float)) == list(leaves(tree, float))


def _singletons(doubled, tree):
    """The one-tuples that replaced the floats of `tree`, in order."""
    template, _ = slotted(tree, float)
    return unfilled(template, doubled).values()
