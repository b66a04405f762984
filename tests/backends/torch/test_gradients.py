"""Gradients: the module's own share, every call, every structure, and silence explained."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import hookline
from hookline.testing.zoo import Checkpointed
from tests.support.compare import tensors


def test_grad_input_is_the_modules_own_share_beside_a_residual():
    fc = nn.Linear(3, 3)
    x = torch.randn(2, 3, requires_grad=True)
    h = x * 1
    with hookline.record(fc, grads=True) as rec:
        (h + fc(h)).sum().backward()
    own = torch.ones(2, 3) @ fc.weight
    assert torch.equal(rec[""].grad_input[0], own)
    assert torch.equal(x.grad, own + 1)


def test_an_identity_on_a_shortcut_has_its_own_share():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.shortcut = nn.Linear(3, 3), nn.Identity()

        def forward(self, x):
            return 5 * self.body(x) + 2 * self.shortcut(x)

    model = Block()
    with hookline.record(model, grads=True) as rec:
        model(torch.randn(2, 3, requires_grad=True)).sum().backward()
    assert torch.equal(rec["shortcut"].grad_output, torch.full((2, 3), 2.0))
    assert torch.equal(rec["shortcut"].grad_input[0], torch.full((2, 3), 2.0))
    assert torch.equal(rec["body"].grad_output, torch.full((2, 3), 5.0))


@pytest.mark.parametrize("read", ["record", "backward hook"])
def test_in_place_relu_gets_the_gradient_of_the_value_before(read):
    torch.manual_seed(0)
    layers = [nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 3)]
    model = nn.Sequential(*layers)
    x = torch.randn(4, 3)
    h = layers[0](x).detach().requires_grad_()
    a = torch.relu(h)
    layers[2](a).square().sum().backward()
    for _ in range(2):  # the second call knows that the module writes to its input
        got = {}
        if read == "record":
            with hookline.record(model, grads=True) as rec:
                model(x).square().sum().backward()
            got = {name: (rec[name].grad_input, rec[name].grad_output) for name in ("0", "1")}
        else:
            names = {module: name for name, module in model.named_modules()}

            def hook(module, grad_input, grad_output, got=got, names=names):
                got[names[module]] = grad_input, grad_output[0]

            with hookline.register_backward_hook(model, hook, "*"):
                model(x).square().sum().backward()
                model(x).square().sum().backward()
        assert torch.equal(got["1"][0][0], h.grad)
        assert torch.equal(got["0"][1], h.grad)
        assert got["0"][0] == (None,)


def test_a_call_and_its_backward_belong_together():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3, bias=False)

        def forward(self, x):
            return 10 * self.fc(x) + 100 * self.fc(-x)

    model = Twice()
    with hookline.record(model, grads=True) as rec:
        model(torch.randn(1, 3, requires_grad=True)).sum().backward()
    first, second = rec["fc"].calls
    assert torch.equal(first.grad_output, torch.full((1, 3), 10.0))
    assert torch.equal(second.grad_output, torch.full((1, 3), 100.0))
    assert torch.equal(rec["fc"].grad_output, second.grad_output)
    assert torch.allclose(first.grad_input[0] * 10, second.grad_input[0])


def test_structures_and_keywords_have_gradients_leaf_by_leaf():
    class Net(nn.Module):
        def forward(self, x, *, extra):
            return {"sum": x + extra["e"][0], "rest": (x * 3, None), "label": "text"}

    net = Net()
    x, e = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    with hookline.record(net, grads=True) as rec:
        out = net(x, extra={"e": [e], "no": torch.ones(1)})
        (out["sum"].sum() * 2 + out["rest"][0].sum() * 5).backward()
    grad = rec[""].grad_output
    assert grad["sum"].tolist() == [2, 2] and grad["rest"][0].tolist() == [5, 5]
    assert grad["rest"][1] is None and grad["label"] is None
    assert rec[""].grad_input[0].tolist() == [17, 17]
    assert rec[""].grad_kwargs["extra"]["e"][0].tolist() == [2, 2]
    assert rec[""].grad_kwargs["extra"]["no"] is None


def test_parameters_gradients_are_those_of_the_backward():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with hookline.record(model, grads=True) as rec:
        model(torch.randn(5, 3)).sum().backward()
    for name in ("0", "1", "2"):
        for own, parameter in model.get_submodule(name).named_parameters():
            assert torch.equal(rec[name].param_grads[own], parameter.grad)
    model[0].weight.grad.zero_()
    assert rec["0"].param_grads["weight"].abs().sum() > 0


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_records_what_the_plain_model_records(reentrant):
    torch.manual_seed(0)
    model = Checkpointed(reentrant=reentrant)
    x = torch.randn(2, 3, requires_grad=True)

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared, self.one, self.two = model.shared, model.one, model.two

        def forward(self, x):
            return self.two(self.one(x))

    recordings = []
    for net in (model, Plain()):
        with hookline.record(net, inputs=True, grads=True) as rec:
            net(x).square().sum().backward()
        recordings.append(rec)
    checkpointed, plain = recordings
    assert checkpointed.names == plain.names
    for name in plain.names:
        assert len(checkpointed[name].calls) == len(plain[name].calls), name
        for got, expected in zip(checkpointed[name].calls, plain[name].calls, strict=True):
            assert torch.equal(got.output, expected.output)
            torch.testing.assert_close(got.grad_output, expected.grad_output, rtol=0, atol=0)
            torch.testing.assert_close(got.grad_input, expected.grad_input, rtol=0, atol=0)


def test_a_forward_inside_a_backward_that_is_no_recomputation_counts():
    model, probe = nn.Linear(3, 3), torch.randn(1, 3)
    y = torch.randn(2, 3, requires_grad=True) * 2
    y.register_hook(lambda grad: grad + 0 * model(probe).sum())
    with hookline.record(model) as rec:
        model(y).sum().backward()
    assert len(rec[""].calls) == 2


def test_a_second_backward_overwrites_and_graphs_may_be_kept():
    fc = nn.Linear(3, 3)
    with hookline.record(fc, grads=True) as rec:
        loss = fc(torch.randn(2, 3, requires_grad=True)).sum()
        loss.backward(retain_graph=True)
        (loss * 2).backward()
    assert torch.equal(rec[""].grad_output, torch.full((2, 3), 2.0))
    assert torch.equal(rec[""].grad_input[0], 2 * torch.ones(2, 3) @ fc.weight)


def test_double_backward_goes_through():
    fc = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    x = torch.randn(2, 3, requires_grad=True)
    with hookline.record(fc, grads=True) as rec:
        (first,) = torch.autograd.grad(fc(x).sum(), x, create_graph=True)
        first.square().sum().backward()
    assert not rec["0"].grad_output.requires_grad
    assert x.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda m, x: m(x), "no backward ran"),
        (lambda m, x: (m(x.detach().requires_grad_()), (x * 1).sum().backward())[0], "no backward ran"),
        (lambda m, x: torch.no_grad()(m)(x), "no backward ran"),
        (lambda m, x: (m(x), m(x * 2).sum().backward())[0], "in 1 of 2 calls"),
    ],
    ids=["no backward", "backward elsewhere", "no_grad", "one call unused"],
)
def test_missing_gradients_are_explained(make, word):
    model = nn.Linear(3, 3)
    with hookline.record(model, grads=True) as rec:
        make(model, torch.randn(2, 3, requires_grad=True))
    assert word in rec.audit()[""].why


def test_a_view_written_to_afterwards_has_the_gradient_of_what_it_was():
    class View(nn.Module):
        def forward(self, x):
            return x[:, :2]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.view = View()

        def forward(self, x):
            return self.view(x * 1).mul_(2)

    net = Net()
    with hookline.record(net, grads=True) as rec:
        net(torch.randn(2, 3, requires_grad=True)).sum().backward()
    assert rec["view"].grad_output.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert rec.audit()["view"].why is None
    assert rec.audit()[""].why is None


def test_no_cycle_keeps_a_graph_alive():
    """Hooks that held tensors of their own graph would leak it: the cycle runs through C++."""

    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 3), nn.Identity(), nn.ReLU(inplace=True))

        def forward(self, x):
            self.last = self.net(x)
            return self.last

    def once(attach):
        model = Keeps()
        with attach(model):
            out = model(torch.randn(2, 3, requires_grad=True))
            out.sum().backward()
        return weakref.ref(model)

    for attach in (
        lambda m: hookline.record(m, inputs=True, grads=True),
        lambda m: hookline.register_backward_hook(m, lambda *a: None, "**"),
        lambda m: hookline.register_backward_pre_hook(m, lambda *a: None, "**"),
    ):
        ref = once(attach)
        gc.collect()
        assert ref() is None


def test_several_outputs_meet_before_the_backward_pre_hook():
    class Two(nn.Module):
        def forward(self, x):
            early = x * 2
            return early, early.exp() * 3

    model, seen = Two(), []

    def hook(module, grads):
        seen.append([g.tolist() for g in grads])
        return grads[0] * 10, grads[1] * 0

    x = torch.zeros(1, requires_grad=True)
    with hookline.register_backward_pre_hook(model, hook):
        a, b = model(x)
        (a * 5 + b * 7).sum().backward()
    assert seen == [[[5.0], [7.0]]]
    assert x.grad.item() == 100.0


def test_several_inputs_meet_before_the_backward_hook():
    class Mix(nn.Module):
        def forward(self, a, b, flag, c=None):
            return a * 2 + b * 3 + (0 if c is None else c * 4)

    model, seen = Mix(), []

    def hook(module, grad_input, grad_output):
        seen.append((grad_input, grad_output))
        return grad_input[0] * 10, None, None

    a, b, c = (torch.ones(1, requires_grad=True) for _ in range(3))
    with hookline.register_backward_hook(model, hook):
        model(a * 1, b * 1, "flag", c=c * 1).backward()
    ((grad_input, grad_output),) = seen
    assert [g and g.item() for g in grad_input] == [2.0, 3.0, None]
    assert [g.item() for g in grad_output] == [1.0]
    assert (a.grad.item(), b.grad.item(), c.grad.item()) == (20.0, 3.0, 4.0)


@pytest.mark.parametrize("leaf", [True, False])
def test_several_inputs_meet_also_where_the_module_writes_to_one(leaf):
    class Writes(nn.Module):
        def forward(self, a, b):
            a.mul_(2)
            return a * 3 + b * 5

    a, b = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    model, seen = Writes(), []

    def hook(module, grad_input, grad_output):
        seen.append([g.item() for g in (*grad_input, *grad_output)])
        return grad_input[0] * 10, grad_input[1] * 100

    with hookline.register_backward_hook(model, hook):
        model(a * 1, b if leaf else b * 1).backward()
    assert seen == [[6.0, 5.0, 1.0]] and (a.grad.item(), b.grad.item()) == (60.0, 500.0)


def test_edited_gradients_are_what_a_recording_sees():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    x = torch.randn(2, 3, requires_grad=True)
    edits = {"1:grad_output": lambda g: g * 2, "1:grad_input": lambda g: (g[0] * 3,)}
    with hookline.record(model, grads=True) as rec, hookline.edit(model, edits):
        model(x).sum().backward()
    assert torch.equal(rec["1"].grad_output, torch.full((2, 3), 2.0))
    torch.testing.assert_close(rec["1"].grad_input[0], 6 * torch.ones(2, 3) @ model[1].weight)
    assert torch.equal(rec["0"].grad_output, rec["1"].grad_input[0])


def test_hook_backward_on_several_tensors_and_in_place_after():
    seen = []

    def fn(grads):
        seen.append([g.tolist() for g in grads])
        return grads[0] * 10, grads[1] * 100

    a, b = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    x, y = hookline.HookBackward(fn)(a * 1, b * 1)
    (2 * x + 3 * y).backward()
    assert seen == [[[2.0], [3.0]]] and a.grad.item() == 20 and b.grad.item() == 300

    z = torch.ones(1, requires_grad=True)
    t = z * 1
    h = hookline.HookBackward(lambda grads: seen.append(grads[0].item()))(t)
    h.mul_(7)
    h.backward()
    assert seen[-1] == 7.0 and z.grad.item() == 7.0


def test_hook_backward_counts_only_what_comes_back_to_this_point():
    seen = []
    z = torch.ones(1, requires_grad=True)
    t = z * 1
    h = hookline.HookBackward(lambda grads: seen.append(grads[0].item()))(t)
    (h * 3 + t * 5).backward()
    assert seen == [3.0] and z.grad.item() == 8.0
    assert hookline.HookBackward(seen.append)(torch.ones(1)).tolist() == [1.0]
    with torch.no_grad():
        hookline.HookBackward(seen.append)(z)
    (z * 2).backward()
    assert seen == [3.0]


def test_reentrant_checkpoint_gradients_reach_backward_hooks():
    model, seen = nn.Linear(3, 3), []
    with hookline.register_backward_hook(model, lambda m, gi, go: seen.append(tensors(gi))):
        checkpoint(model, torch.randn(2, 3, requires_grad=True), use_reentrant=True).sum().backward()
    assert len(seen) == 1 and torch.equal(seen[0][0], torch.ones(2, 3) @ model.weight)


def test_one_operation_with_several_outputs_is_counted_once():
    class Split(nn.Module):
        def forward(self, x):
            return torch.split(x, 2, dim=1)

    model, x = Split(), torch.randn(2, 4, requires_grad=True)
    with hookline.record(model, grads=True) as rec:
        first, second = model(x * 1)
        (first.sum() + 2 * second.sum()).backward()
    assert torch.equal(rec[""].grad_input[0], x.grad)


def test_gradients_are_let_go_as_soon_as_they_are_told():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.act = nn.Linear(4, 4), nn.ReLU(inplace=True)

        def forward(self, x):
            out = self.fc(x)
            out += x
            return self.act(out)

    model, seen, alive = nn.Sequential(*(Residual() for _ in range(8))), [], []

    def hook(module, grad_input, grad_output):
        alive.append(sum(held() is not None for held in seen))
        seen.extend(map(weakref.ref, (*grad_input, *grad_output)))

    with hookline.register_backward_hook(model, hook, "**"):
        model(torch.randn(2, 4, requires_grad=True)).sum().backward()
    assert len(seen) == 50 and max(alive) <= 6  # those of one block
