"""What broke when others tried it, each with the code that showed it (G1 to G14; G5 and G13 are apart)."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
import torch
from torch import nn

import hookline
from tests.support.compare import same_bits


class Prompt(nn.Module):
    """Returns a parameter, or a view of all of it."""

    def __init__(self, view=lambda w: w):
        super().__init__()
        self.w = nn.Parameter(torch.ones(2))
        self.view = view

    def forward(self):
        return self.view(self.w)


class Same(nn.Module):
    def forward(self, x):
        return x


class Res(nn.Module):
    """Uses its input twice."""

    def forward(self, x):
        return x * 2 + x.sin()


PROMPTS = pytest.mark.parametrize(
    "view", [lambda w: w, lambda w: w.unsqueeze(0), lambda w: w.view(-1)], ids=["whole", "unsqueezed", "viewed"]
)


@PROMPTS
def test_g1_an_edit_of_a_returned_parameter_ends_with_its_block(view):
    m = Prompt(view)
    with hookline.edit(m, {":grad_output": lambda g: g * 0}):
        m().sum().backward()
    assert m.w.grad.tolist() == [0, 0]
    m.w.grad = None
    m().sum().backward()
    assert m.w.grad.tolist() == [1, 1]


@PROMPTS
def test_g1_two_calls_that_return_a_parameter_have_their_own_gradients(view):
    m = Prompt(view)
    with hookline.record(m, grads=True) as r:
        a, b = m(), m()
        (a * 3 + b * 5).sum().backward()
    assert [call.grad_output.flatten().tolist() for call in r[""].calls] == [[3, 3], [5, 5]]


@PROMPTS
def test_g1_a_watch_of_a_returned_parameter_counts_the_same_at_every_step(view):
    m = Prompt(view)
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    with hookline.watch(m, every=1) as w:
        for _ in range(4):
            optimizer.zero_grad()
            m().sum().backward()
            optimizer.step()
    assert [row["count"] for row in w.rows("", kind="grad_output")] == [2, 2, 2, 2]


def hooks_on(tensor):
    return len(tensor._backward_hooks or ()) + len(tensor._post_accumulate_grad_hooks or ())


def test_g1_hook_backward_leaves_nothing_on_a_parameter():
    w, seen = nn.Parameter(torch.ones(2)), []
    hook = hookline.HookBackward(lambda grads: seen.append(grads[0].tolist()))
    for _ in range(3):
        (hook(w) * 3).sum().backward()
    assert hooks_on(w) == 0 and seen == [[3, 3]] * 3


@pytest.mark.parametrize("m", [nn.Flatten(0), Same()], ids=["Flatten", "returned"])
def test_g1_nothing_stays_on_an_input_that_is_returned(m):
    x = torch.ones(2, requires_grad=True)
    for open_block in (
        lambda: hookline.record(m, inputs=True, grads=True),
        lambda: hookline.watch(m, inputs=True),
        lambda: hookline.register_backward_hook(m, lambda mod, gi, go: None),
        lambda: hookline.register_backward_pre_hook(m, lambda mod, go: None),
        lambda: hookline.edit(m, {":grad_output": lambda g: g, ":grad_input": lambda g: g}),
    ):
        with open_block():
            m(x).sum().backward()
        assert hooks_on(x) == 0


class Shortcut(nn.Module):
    def __init__(self):
        super().__init__()
        self.shortcut = nn.Identity()

    def forward(self, x):
        return x + 2 * self.shortcut(x)


def test_g2_an_edit_of_a_shortcut_leaves_the_main_branch():
    m, x = Shortcut(), torch.ones(1, requires_grad=True)
    with hookline.edit(m, {"shortcut:grad_output": lambda g: g * 0}):
        m(x * 1).backward()
    assert x.grad.item() == 1


def test_g2_a_pre_hook_and_a_watch_of_a_shortcut_have_its_share():
    m, x, seen = Shortcut(), torch.ones(1, requires_grad=True), []
    with hookline.register_backward_pre_hook(m, lambda mod, go: seen.append(go[0].item()), "shortcut"):
        m(x * 1).backward()
    with hookline.watch(m) as w:
        m(x * 1).backward()
    (row,) = w.rows("shortcut", kind="grad_output")
    assert seen == [2] and (row["count"], row["mean"]) == (1, 2)


class HandsOn(nn.Module):
    def forward(self, x):
        return x * 2, x


def test_g3_a_module_that_uses_its_input_and_hands_it_on():
    m, seen = HandsOn(), []

    def run():
        a, b = m(torch.ones(1, requires_grad=True) * 1)
        (a + b * 3).backward()

    with hookline.record(m, grads=True) as r:
        run()
    with hookline.register_backward_hook(m, lambda mod, gi, go: seen.append(gi[0].item())):
        run()
    with hookline.watch(m, inputs=True) as w:
        run()
    assert r[""].grad_input[0].item() == 5 and seen == [5]
    (row,) = w.rows("", kind="grad_input")
    assert (row["count"], row["mean"]) == (1, 5)


def test_g4_a_watch_counts_an_input_that_is_used_twice_once():
    m = nn.Sequential(Res())
    with hookline.watch(m, inputs=True) as w:
        m(torch.zeros(4, requires_grad=True) * 1).sum().backward()
    (row,) = w.rows("0", kind="grad_input")
    assert (row["count"], row["mean"]) == (4, 3.0)


class Two(nn.Module):
    def forward(self, a, b):
        return a * 2 + b * 7


def test_g6_one_tensor_at_several_arguments():
    m, x = Two(), torch.ones(1, requires_grad=True)
    h = x * 1
    with hookline.record(m, grads=True) as r:
        m(h, h).backward()
    assert [g.item() for g in r[""].grad_input] == [2, 7]
    for keep in (0, 1):
        x.grad, h = None, x * 1
        hook = lambda mod, gi, go, keep=keep: tuple(g * (n == keep) for n, g in enumerate(gi))  # noqa: E731
        with hookline.register_backward_hook(m, hook):
            m(h, h).backward()
        assert x.grad.item() == (2, 7)[keep]


def test_g6_self_attention_has_three_shares():
    torch.manual_seed(0)
    m, x = nn.MultiheadAttention(4, 2), torch.randn(3, 1, 4, requires_grad=True)
    wanted = []
    with m.register_full_backward_hook(lambda mod, gi, go: wanted.append(gi)):
        h = x * 1
        m(h, h, h)[0].square().sum().backward()
    h = x * 1
    with hookline.record(m, "", grads=True) as r:
        m(h, h, h)[0].square().sum().backward()
    for got, right in zip(r[""].grad_input, wanted[0], strict=True):
        torch.testing.assert_close(got, right)


def test_g7_replaced_gradients_of_a_container_and_its_part_compose():
    m, x = nn.Sequential(Res(), nn.Tanh()), torch.zeros(1, requires_grad=True)
    edits = {"0:grad_input": lambda g: (g[0] * -1,), ":grad_input": lambda g: (g[0] * 3,)}
    with hookline.edit(m, edits), hookline.record(m, grads=True) as r:
        m(x * 1).sum().backward()
    assert x.grad.item() == -9
    assert (r["0"].grad_input[0].item(), r[""].grad_input[0].item()) == (-3, -9)


class Cut(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: x.clone())
    backward = staticmethod(lambda ctx, g: None)


class Undefined(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Sequential(nn.Linear(2, 2), nn.Tanh()), nn.Linear(2, 1)

    def forward(self, x):
        return self.b(Cut.apply(self.a(x)))


def test_g8_an_undefined_gradient_is_none_and_raises_nothing():
    m, seen = Undefined(), []
    with hookline.record(m, grads=True) as r:
        m(torch.ones(1, 2)).sum().backward()
    assert r["a"].grad_output is None and r["b"].grad_output.item() == 1
    with hookline.edit(m, {("**", "grad_output"): lambda g: seen.append(g)}):
        m(torch.ones(1, 2)).sum().backward()
    assert len(seen) == 2 and all(g is not None for g in seen)


class UsedTwice(nn.Module):
    """A module returns its input; its output is used twice, its input once more."""

    def __init__(self):
        super().__init__()
        self.fc, self.same = nn.Linear(8, 8), Same()

    def forward(self, x):
        h = self.fc(x)
        y = self.same(h)
        return y.sin() * 0.3 + y.tanh() * 0.7 + h.cos() * 1.1


@pytest.mark.parametrize(
    "way",
    [
        lambda m: hookline.record(m, grads=True),
        lambda m: hookline.watch(m, inputs=True),
        lambda m: hookline.register_backward_hook(m, lambda mod, gi, go: None, "**"),
    ],
    ids=["record", "watch", "backward hook"],
)
def test_g9_the_same_bits_where_a_module_returns_its_input(way):
    for seed in range(20):
        results = []
        for observed in (False, True):
            torch.manual_seed(seed)
            m, x = UsedTwice(), torch.randn(16, 8)
            if observed:
                with way(m):
                    m(x).square().sum().backward()
            else:
                m(x).square().sum().backward()
            results.append([p.grad for p in m.parameters()])
        assert same_bits(*results), f"seed {seed}"


class TwoOut(nn.Module):
    def forward(self, x):
        return x * 2, x * 3


WRITTEN = {"first": (10, 1), "second": (1, 10), "both": (10, 10)}


@pytest.mark.parametrize("written", WRITTEN)
def test_g10_outputs_that_are_written_to_later_have_gradients(written):
    m, x, seen, wanted = TwoOut(), torch.ones(1, requires_grad=True), [], WRITTEN[written]

    def run():
        x.grad = None
        a, b = m(x)
        a = a.mul_(10) if wanted[0] == 10 else a
        b = b.mul_(10) if wanted[1] == 10 else b
        (a + b).backward()

    with hookline.register_backward_pre_hook(m, lambda mod, go: seen.append([g.item() for g in go])):
        run()
    assert seen == [list(wanted)]
    with hookline.edit(m, {":grad_output": lambda g: tuple(None if t is None else t * 0 for t in g)}):
        run()
    assert x.grad.item() == 0


def penalized(m, x):
    (grad,) = torch.autograd.grad(m(x).sum(), x, create_graph=True)
    grad.square().sum().backward()


def bent():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh(), Res()), torch.randn(2, 3, requires_grad=True)


def test_g11_a_record_has_both_gradients_of_one_backward():
    m, x = bent()
    with hookline.record(m, grads=True) as first:
        torch.autograd.grad(m(x).sum(), x)
    m, x = bent()
    with hookline.record(m, grads=True) as r:
        penalized(m, x)
    # The model's output is reached by the first backward alone.
    assert torch.equal(r[""].grad_output, torch.ones(2, 3))
    torch.testing.assert_close(r[""].grad_input[0], first[""].grad_input[0])


def test_g11_a_gradient_penalty_calls_hooks_as_torchs_are_called():
    m, x = bent()
    wanted, told = [], []
    names = {module: name for name, module in m.named_modules()}
    handles = [one.register_full_backward_hook(lambda mod, gi, go: wanted.append(names[mod])) for one in names]
    penalized(m, x)
    for handle in handles:
        handle.remove()

    def hook(mod, gi, go):
        assert go[0] is not None
        told.append(names[mod])

    with hookline.register_backward_hook(m, hook, "**"):
        penalized(m, x)
    assert sorted(told) == sorted(wanted)


class Gated(nn.Module):
    """Uses its input twice, in several operations."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return torch.tanh(self.fc(x)) * x


def test_g11_second_derivatives_of_replaced_gradients_are_torchs():
    results = []
    for register in (nn.Module.register_full_backward_hook, hookline.register_backward_hook):
        torch.manual_seed(0)
        m, x = nn.Sequential(nn.Linear(3, 3), Gated(), nn.Tanh()), torch.randn(2, 3, requires_grad=True)
        with register(m[1], lambda mod, gi, go: (gi[0] * 2,) if go[0] is not None else None):
            penalized(m, x)
        results.append([p.grad for p in m.parameters()])
    for ours, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("transform", ["vmap", "per sample", "jacrev"])
def test_g12_what_was_recorded_in_a_transform_can_be_read_or_says_why_not(transform):
    m, x = nn.Sequential(nn.Linear(3, 2), nn.Tanh()), torch.randn(4, 3)
    parameters = dict(m.named_parameters())

    def loss(parameters, one):
        return torch.func.functional_call(m, parameters, one).sum()

    with hookline.record(m) as r:
        if transform == "vmap":
            torch.func.vmap(m)(x)
        elif transform == "per sample":
            torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
        else:
            torch.func.jacrev(m)(x[0])
    with suppress(hookline.HooklineError):  # which says why; what torch raises does not
        assert math.isfinite(r["1"].output.sum().item())


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:The .grad attribute of a Tensor that is not"
)
@pytest.mark.usefixtures("fresh_compiler")
def test_g14_compiled_autograd():
    from torch._dynamo import compiled_autograd

    torch.manual_seed(0)
    m, x = nn.Sequential(nn.Linear(3, 2), nn.Tanh()), torch.randn(4, 3, requires_grad=True)
    with hookline.record(m, grads=True) as wanted:
        m(x).sum().backward()
    with hookline.record(m, grads=True) as r:
        loss = m(x).sum()
        with compiled_autograd._enable(torch.compile(backend="aot_eager")):
            loss.backward()
    for name in wanted:
        torch.testing.assert_close(r[name].grad_output, wanted[name].grad_output)
        torch.testing.assert_close(r[name].grad_input, wanted[name].grad_input)


def test_g14_parameter_gradients_of_a_lazy_module():
    m = nn.LazyLinear(2)
    with hookline.record(m, grads=True) as r:
        m(torch.ones(1, 3)).sum().backward()
    assert sorted(r[""].param_grads) == ["bias", "weight"] or "lazy" in (r.audit()[""].why or "")


@pytest.mark.parametrize("m", [nn.Linear(2, 2), Res()], ids=["one operation", "several"])
def test_autograd_grad_of_an_input_that_is_a_leaf_calls_backward_hooks(m):
    """Found by the law: where the input's own node does not run, the hook was not called."""
    x, seen = torch.ones(2, requires_grad=True), []
    with hookline.register_backward_hook(m, lambda mod, gi, go: seen.append(gi[0])):
        (grad,) = torch.autograd.grad(m(x).sum(), x)
    assert len(seen) == 1 and torch.equal(seen[0], grad)


class Returns(nn.Module):
    def forward(self, x):
        return x


@pytest.mark.parametrize("is_view", [False, True])
def test_an_input_that_was_handed_on_and_written_to_without_autograd_keeps_its_gradient(is_view):
    """Found by the law: of a view of a leaf that is a view itself, torch loses the gradient once it is written."""
    x = (torch.ones(4).view(2, 2) if is_view else torch.ones(2, 2)).requires_grad_()
    m, seen = Returns(), []
    with hookline.register_backward_pre_hook(m, lambda mod, grads: seen.append(grads[0])):
        out = m(x)
        out.detach()[:, :1].mul_(0.5)
        (out * 3).sum().backward()
    assert torch.equal(x.grad, torch.full((2, 2), 3.0)) and [grad.tolist() for grad in seen] == [x.grad.tolist()]


class KeepsAside(nn.Module):
    def forward(self, x):
        self.h = x * 2
        return (self.h,)


def test_a_hook_on_outputs_that_nobody_uses_is_not_called():
    """Found by the law: what was kept aside is in the graph, what left is not."""
    m, x, seen = KeepsAside(), torch.ones(2, requires_grad=True), []
    with hookline.register_backward_pre_hook(m, lambda mod, grads: seen.append(grads)):
        m(x)
        m.h.sum().backward()
    assert seen == []


class Calls(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Returns()

    def forward(self, x):
        for _ in range(3):
            x = self.part(x=x)
        return x


def test_calls_that_hand_their_input_on_are_told_apart():
    """Found by the law: by its arguments alone, a call by keyword looks like the one before."""
    m, seen = Calls(), []
    with hookline.register_backward_pre_hook(m.part, lambda mod, grads: seen.append(grads[0].tolist())):
        (m(torch.ones(2, requires_grad=True) * 1) * 3).sum().backward()
    assert seen == [[3.0, 3.0]] * 3


class Layouts(torch.autograd.Function):
    """Notes in which layouts gradients come."""

    seen: list = []  # noqa: RUF012

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        Layouts.seen.append(grad.stride())
        return grad


class TwoLayouts(nn.Module):
    """A value whose gradient comes in two layouts, once through a module that hands it on."""

    def __init__(self):
        super().__init__()
        self.conv, self.hand = nn.Conv2d(2, 3, 1), Returns()

    def forward(self, x):
        y = Layouts.apply(self.conv(x))
        handed = self.hand(y)
        return y.permute(0, 2, 3, 1).contiguous().sin().sum() + handed.cos().sum()


def test_gradients_keep_their_layout():
    """Found by timm's coatnet: the sum of two is the same in any order, its layout is not."""
    m, x = TwoLayouts(), torch.randn(2, 2, 5, 7)
    Layouts.seen.clear()
    m(x).backward()
    for block in (
        hookline.record(m, inputs=True, grads=True),
        hookline.watch(m, inputs=True),
        hookline.register_backward_hook(m, lambda *told: None, "**"),
        hookline.register_backward_pre_hook(m, lambda *told: None, "**"),
    ):
        with block:
            m(x).backward()
    assert len(Layouts.seen) == 5 and len(set(Layouts.seen)) == 1


class _Doubled(nn.Module):
    """Gets one tensor at two places."""

    def forward(self, pair):
        return (pair[1] * 2 + pair[1].sin() + pair[1]) * 0.5


class _Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = _Doubled()

    def forward(self, x):
        return self.part((x, x)) * 0.25, x


def test_g11_the_audit_says_where_gradients_of_gradients_may_differ_in_the_last_digits():
    def penalty(model, x):
        out, same = model(x)
        loss = (out * torch.sin(x.detach())).sin().sum() + (same * torch.cos(x.detach())).sin().sum()
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        slope.square().sum().backward()
        return x.grad

    plain = penalty(_Shared(), torch.linspace(-2, 2, 9).requires_grad_())
    model, x = _Shared(), torch.linspace(-2, 2, 9).requires_grad_()
    with hookline.record(model, inputs=True, grads=True) as rec:
        seen = penalty(model, x)
    torch.testing.assert_close(seen, plain)
    (told,) = [entry for entry in rec.audit() if entry.site == "part"]
    assert "gradients of gradients" in told.why
