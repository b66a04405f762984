"""A forward that runs again in a backward is no second call: nested checkpoints, Functions of one's own."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import hookline

# A checkpoint that is run in another one, without gradients at first, warns.
pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")

CHECKPOINTS = {
    "plain": lambda fn, x: fn(x),
    "reentrant": lambda fn, x: checkpoint(fn, x, use_reentrant=True),
    "not reentrant": lambda fn, x: checkpoint(fn, x, use_reentrant=False),
}


class Nested(nn.Module):
    """A segment in a segment in a segment."""

    def __init__(self, *ways):
        super().__init__()
        self.ways = [CHECKPOINTS[way] for way in ways]
        self.parts = nn.ModuleList(nn.Linear(3, 3) for _ in ways)
        self.last = nn.Linear(3, 3)

    def forward(self, x):
        return self.last(self.level(0, x))

    def level(self, number, x):
        if number == len(self.ways):
            return x.sin()
        return self.ways[number](lambda h: self.level(number + 1, self.parts[number](h).tanh()), x)


class Repeating(torch.autograd.Function):
    """Keeps the input alone and runs the forward again in the backward."""

    @staticmethod
    def forward(ctx, fn, count, x, *parameters):
        ctx.fn, ctx.parameters = fn, parameters[:count]
        ctx.save_for_backward(x)
        with torch.no_grad():
            return fn(x)

    @staticmethod
    def backward(ctx, grad):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.fn(x)
        own, *others = torch.autograd.grad(y, [x, *ctx.parameters], grad, allow_unused=True)
        return None, None, own, *others


class ByFunction(nn.Module):
    """One site twice in a Function, and once outside; `plain` runs the same without it."""

    def __init__(self, *, plain):
        super().__init__()
        self.plain = plain
        self.shared = nn.Linear(3, 3)
        self.part = nn.Sequential(self.shared, nn.Tanh(), self.shared, nn.ReLU(inplace=True))

    def forward(self, x):
        x = self.shared(x).sin()
        if not self.plain:
            parameters = tuple(self.part.parameters())
            x = Repeating.apply(self.part, len(parameters), x, *parameters)
        else:
            x = self.part(x)
        return self.shared(x)


class Reversible(torch.autograd.Function):
    """Computes its inputs from its outputs in the backward: what is repeated there has rounded values."""

    @staticmethod
    def forward(ctx, one, two, a, b):
        ctx.parts = one, two
        with torch.no_grad():
            a = a + one(b)
            b = b + two(a)
        ctx.save_for_backward(a, b)
        return a, b

    @staticmethod
    def backward(ctx, grad_a, grad_b):
        one, two = ctx.parts
        a, b = ctx.saved_tensors
        a = a.detach().requires_grad_()
        with torch.enable_grad():
            change = two(a)
        change.backward(grad_b)
        b, grad_a = (b - change).detach().requires_grad_(), grad_a + a.grad
        with torch.enable_grad():
            change = one(b)
        change.backward(grad_a)
        return None, None, grad_a, grad_b + b.grad


class ReversibleNet(nn.Module):
    def __init__(self, *, plain):
        super().__init__()
        self.plain, self.one, self.two = plain, nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        a, b = x.sin(), x.cos()
        if self.plain:
            a = a + self.one(b)
            b = b + self.two(a)
        else:
            a, b = Reversible.apply(self.one, self.two, a, b)
        return a * b


PAIRS = {
    **{
        " in ".join(ways): (lambda ways=ways: Nested(*ways), lambda ways=ways: Nested(*["plain"] * len(ways)))
        for ways in (
            ("reentrant", "reentrant"),
            ("reentrant", "not reentrant"),
            ("not reentrant", "reentrant"),
            ("not reentrant", "not reentrant"),
            ("reentrant", "plain", "reentrant"),
            ("not reentrant", "not reentrant", "not reentrant"),
        )
    },
    "a Function": (lambda: ByFunction(plain=False), lambda: ByFunction(plain=True)),
    "reversible": (lambda: ReversibleNet(plain=False), lambda: ReversibleNet(plain=True)),
}


ALL = {"inputs": True, "grads": True}


def built(make):
    torch.manual_seed(0)
    return make(), torch.randn(2, 3, requires_grad=True)


def run(make, block):
    model, x = built(make)
    with block(model) as held:
        model(x).sum().backward()
    return held, [x.grad, *(p.grad for p in model.parameters())]


@pytest.fixture(params=PAIRS)
def pair(request):
    return PAIRS[request.param]


@pytest.mark.parametrize(
    "options", [{}, {"inputs": True}, {"grads": True}, {"inputs": True, "grads": True}], ids=str
)
def test_record_has_what_the_plain_model_has(pair, options):
    """Values are those of the first run, exactly; gradients those of the plain model."""
    (found, _), (wanted, _) = (run(make, lambda model: hookline.record(model, **options)) for make in pair)
    assert set(found.names) == set(wanted.names)
    for name in wanted.names:
        assert len(found[name].calls) == len(wanted[name].calls), name
        for got, want in zip(found[name].calls, wanted[name].calls, strict=True):
            assert torch.equal(got.output, want.output)
            if "inputs" in options:
                assert torch.equal(got.input[0], want.input[0])
            if "grads" in options:
                torch.testing.assert_close(got.grad_output, want.grad_output)
                torch.testing.assert_close(got.grad_input, want.grad_input)


@pytest.mark.parametrize("inputs", [False, True])
def test_watch_has_the_rows_of_the_plain_model(pair, inputs):
    (found, _), (wanted, _) = (run(make, lambda model: hookline.watch(model, inputs=inputs)) for make in pair)
    rows = [
        {(r["site"], r["kind"], r["call"]): r for r in w.rows() if "param" not in r["kind"]}
        for w in (found, wanted)
    ]
    assert set(rows[0]) == set(rows[1])
    for key, want in rows[1].items():
        assert rows[0][key]["count"] == want["count"], key
        assert rows[0][key]["mean"] == pytest.approx(want["mean"], rel=1e-4, abs=1e-6), key


@pytest.mark.parametrize(
    "block",
    [
        lambda model: hookline.record(model, inputs=True, grads=True),
        lambda model: hookline.watch(model, inputs=True),
        lambda model: hookline.register_backward_hook(model, lambda *told: None, "**"),
        lambda model: hookline.register_backward_pre_hook(model, lambda *told: None, "**"),
        lambda model: hookline.register_op_hook(model, lambda *told: None, monitor_all=True),
    ],
    ids=["record", "watch", "backward hook", "backward pre-hook", "op hook"],
)
def test_gradients_stay(pair, block):
    _, found = run(pair[0], block)
    _, wanted = run(pair[0], lambda model: nullcontext())
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_forward_operators_are_told_once(pair):
    def told(make):
        seen = []
        run(make, lambda model: hookline.register_op_hook(model, lambda name, *rest: seen.append(name)))
        return sorted(name for name in seen if "backward" not in name and "detach" not in name)

    assert [n for n in told(pair[0]) if "/addmm" in n] == [n for n in told(pair[1]) if "/addmm" in n]


def test_the_audit_tells_of_repeated_forwards():
    rec, _ = run(PAIRS["a Function"][0], hookline.record)
    assert "repeated 2 times in a backward" in rec.audit()["shared"].why
    assert rec.audit()["part"].fired == 1 and "repeated once" in rec.audit()["part"].why


class CalledInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, x):
        ctx.fn = fn
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return None, ctx.fn(grad)


def test_a_call_that_a_backward_makes_for_the_first_time_counts():
    model, x = nn.Sequential(nn.Linear(3, 3)), torch.randn(2, 3, requires_grad=True)
    with hookline.record(model) as rec, hookline.watch(model, grads=False) as w:
        CalledInBackward.apply(model, x).sum().backward()
    assert len(rec["0"].calls) == len(rec[""].calls) == 1
    assert len([row for row in w.rows(kind="output") if row["site"] == "0"]) == 1
    assert torch.equal(rec["0"].output, x.grad)


def test_a_call_that_a_hook_on_a_tensor_makes_counts():
    model, x = nn.Linear(3, 3), torch.randn(2, 3, requires_grad=True)
    with hookline.record(model) as rec:
        y = CalledInBackward.apply(lambda grad: grad, model(x))
        y.register_hook(lambda grad: model(grad).detach())
        y.sum().backward()
    assert len(rec[""].calls) == 2
    assert rec.audit()[""].why is None


def test_a_checkpoint_in_a_checkpoint_is_no_second_call():
    """What is repeated for the outer one runs the inner one's forward again, under the hooks of that."""

    class Inner(nn.Module):
        def __init__(self, shared):
            super().__init__()
            self.shared = shared

        def forward(self, x):
            return self.shared(checkpoint(self.shared, x, use_reentrant=False))

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
            self.inner = Inner(self.shared)

        def forward(self, x):
            return self.shared(checkpoint(self.inner, x, use_reentrant=False))

    torch.manual_seed(0)
    model, x = Outer(), torch.randn(3, 2, requires_grad=True)
    with hookline.record(model, inputs=True, grads=True) as rec, hookline.watch(model) as w:
        model(x).sum().backward()
    calls = rec["shared"].calls
    assert len(calls) == 3 and all(call.grad_output is not None for call in calls)
    assert torch.equal(calls[1].grad_input[0], calls[0].grad_output)
    assert [row["call"] for row in w.rows("shared", "output")] == [0, 1, 2]
