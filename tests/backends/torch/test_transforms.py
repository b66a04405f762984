"""Inside the transforms of torch.func what is computed stays the same, and what is recorded can be read."""

import random
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.func import functional_call, functionalize, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils._pytree import tree_leaves

from hookline import edit, record, register_backward_hook, register_forward_hook, watch
from hookline.lines import kernel
from hookline.lines.registry import forget, statistic

# torch loads its formulas for jvp by torch.jit, which is deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def batch():
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(1))


def loss(model, parameters, x):
    return functional_call(model, parameters, (x,)).square().sum()


def per_sample(model, x):
    return vmap(grad(lambda p, one: loss(model, p, one)), (None, 0))(dict(model.named_parameters()), x)


def batched_gradients(model, x):
    x = x.clone().requires_grad_()
    out = model(x)
    seeds = torch.stack([torch.ones_like(out), 2 * torch.ones_like(out)])
    return torch.autograd.grad(out, x, seeds, is_grads_batched=True)


def ensemble(model, x):
    stacked = {name: torch.stack([p, 2 * p]) for name, p in model.named_parameters()}
    return vmap(lambda p, x: functional_call(model, p, (x,)), (0, None))(stacked, x)


# name: (what runs, shape of the output of "1", shape of its gradient or None)
RUNS = {
    "vmap": (lambda m, x: vmap(m)(x), (5, 4), None),
    "vmap over another dim": (lambda m, x: vmap(m, in_dims=1)(x.t().contiguous()), (5, 4), None),
    "vmap in chunks": (lambda m, x: vmap(m, chunk_size=5)(x), (5, 4), None),
    "nested vmap": (lambda m, x: vmap(vmap(m), in_dims=1)(x.expand(2, 5, 3).clone()), (5, 2, 4), None),
    "an ensemble": (ensemble, (2, 5, 4), None),
    "grad": (lambda m, x: grad(lambda p: loss(m, p, x))(dict(m.named_parameters())), (5, 4), (5, 4)),
    "per-sample gradients": (per_sample, (5, 4), (5, 4)),
    "vjp": (lambda m, x: vjp(m, x)[1](torch.ones(5, 2)), (5, 4), (5, 4)),
    "jvp": (lambda m, x: jvp(m, (x,), (x,)), (5, 4), None),
    "jacrev": (lambda m, x: jacrev(m)(x[0]), (4,), (2, 4)),
    "jacfwd": (lambda m, x: jacfwd(m)(x[0]), (4,), None),
    "hessian": (lambda m, x: hessian(lambda x: m(x).sum())(x[0]), (4,), (1, 4)),
    "functionalize": (lambda m, x: functionalize(m)(x), (5, 4), None),
    "vectorized jacobian": (
        lambda m, x: torch.autograd.functional.jacobian(m, x[0], vectorize=True),
        (4,),
        (2, 4),
    ),
    "batched gradients": (batched_gradients, (5, 4), (2, 5, 4)),
}


def same(one, other):
    pairs = zip(tree_leaves(one), tree_leaves(other), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("name", RUNS)
def test_what_is_recorded_can_be_read_afterwards(name):
    run, shape, grad_shape = RUNS[name]
    x = batch()
    want = run(net(), x)
    model = net()
    with record(model, inputs=True, grads=True) as rec:
        got = run(model, x)
    assert same(got, want)
    site = rec["1"]
    for value in (site.output, site.input[0]):
        assert value.shape == shape and not value.requires_grad
        assert value.numpy().shape == shape and value.clone().add_(1).sum().item()  # as of any other tensor
    assert torch.equal(site.output, site.input[0].tanh())
    if grad_shape is None:
        assert site.grad_output is None
    else:
        assert site.grad_output.shape == site.grad_input[0].shape == grad_shape
        torch.testing.assert_close(site.grad_input[0], site.grad_output * (1 - site.output.square()))


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("way", ["baseline", "torch"])
def test_statistics_are_of_all_that_is_recorded(name, way):
    run, _, grad_shape = RUNS[name]
    x, model = batch(), net()
    with kernel.using(way), record(model, grads=True) as rec, watch(model, inputs=True, stats=["p99"]) as w:
        got = run(model, x)
    assert same(got, run(net(), x))
    pairs = {"output": rec["1"].output, "grad_output": rec["1"].grad_output}
    for kind, value in pairs.items():
        rows = w.rows("1", kind=kind)
        if value is None:
            assert kind == "grad_output" and grad_shape is None and not rows
            continue
        assert rows[0]["count"] == value.numel()
        assert rows[0]["mean"] == pytest.approx(value.double().mean().item(), rel=1e-6)


@pytest.mark.parametrize("name", RUNS)
def test_values_are_kept_cast_and_moved_as_anywhere(name):
    run, _, grad_shape = RUNS[name]
    x, model = batch(), net()
    with record(model) as plain:
        run(model, x)
    with record(model, reduce=lambda t: t[..., :1], grads=True) as rec:
        got = run(model, x)
    assert same(got, run(net(), x))
    assert torch.equal(rec["1"].output, plain["1"].output[..., :1])
    assert grad_shape is None or rec["1"].grad_output.shape == (*grad_shape[:-1], 1)
    with record(model, dtype="float64", device="cpu", limit="1MB") as rec:
        run(model, x)
    assert torch.equal(rec["1"].output, plain["1"].output.double())


@pytest.mark.parametrize("name", RUNS)
def test_hooks_and_edits_work_on_what_the_module_sees(name):
    run, _, grad_shape = RUNS[name]
    x, model, seen = batch(), net(), []
    with register_forward_hook(model, lambda m, args, out: out * 2, "1"):
        doubled = run(model, x)
    with edit(model, {"1": lambda out: out * 2}):
        assert same(run(model, x), doubled)
    assert not same(doubled, run(net(), x))
    with register_backward_hook(model, lambda m, gi, go: seen.append(gi) or (gi[0] * 0,), "1"):
        run(model, x)
    assert bool(seen) == (grad_shape is not None)


def test_a_large_value_is_read_as_well():
    model = nn.Sequential(nn.ReLU())
    x = torch.randn(3, 400, 100)
    with record(model) as rec:
        vmap(model, in_dims=2)(x)
    assert torch.equal(rec["0"].output, x.relu().movedim(2, 0))


def test_a_value_that_is_written_to_later_is_what_it_was():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    x = batch()
    with record(model) as rec, torch.no_grad():
        vmap(model)(x)
        vmap(grad(lambda one: model(one).sum()))(x)
    before, after = (rec["0"].calls[i].output for i in (0, 1))
    assert (before < 0).any() and torch.equal(before, after)
    assert torch.equal(rec["1"].output, before.relu())


def test_writes_to_views_have_arrived_under_functionalize():
    class Writes(nn.Module):
        def forward(self, x):
            x = x * 1
            x[0].add_(1)
            return x

    model, x = Writes(), batch()
    with record(model) as rec:
        out = functionalize(model)(x)
    assert torch.equal(rec[""].output, out) and not torch.equal(out, x)


def test_the_same_for_all_of_a_batch_has_no_batch_dim():
    model = nn.ModuleDict({"shared": nn.Tanh(), "own": nn.Tanh()})
    x = batch()
    with record(model) as rec:
        vmap(lambda one: model["own"](one) + model["shared"](x[0]))(x)
    assert rec["own"].output.shape == (5, 3) and rec["shared"].output.shape == (3,)


def test_statistics_in_inference_mode_follow_what_is_written_in_place():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    with torch.inference_mode(), watch(model, inputs=True) as w, record(model) as rec:
        model(batch())
    assert w.rows("0", kind="output")[0]["min"] < 0
    for site in ("1", ""):
        assert w.rows(site, kind="output")[0]["min"] == 0 == rec[site].output.min()
    assert not rec["1"].output.is_inference()


@pytest.mark.parametrize("seed", range(40))
def test_any_nesting_gives_what_a_loop_over_the_batch_gives(seed):
    """Random networks under random vmaps and grads, beside plain calls for each sample."""
    chance = random.Random(seed)
    torch.manual_seed(seed)
    widths = [chance.randint(1, 4) for _ in range(chance.randint(2, 4))]
    parts = []
    for a, b in pairwise(widths):
        parts += [nn.Linear(a, b), chance.choice([nn.Tanh, nn.Sigmoid, nn.Softplus])()]
    model = nn.Sequential(*parts)
    sizes = [chance.randint(1, 3) for _ in range(chance.randint(1, 3))]
    x = torch.randn(*sizes, widths[0])
    differentiates = chance.random() < 0.5
    run = grad(lambda one: model(one).square().sum()) if differentiates else model
    order = [len(sizes)]  # the batch dims at random places, told to each vmap from the innermost on
    for dim in reversed(range(len(sizes))):
        place = chance.randint(0, len(order))
        order.insert(place, dim)
        run = vmap(run, in_dims=place)
    with record(model, grads=differentiates) as rec:
        run(x.permute(order).contiguous())
    with record(model, grads=differentiates) as plain:
        for one in x.reshape(-1, widths[0]):
            one = one.clone().requires_grad_()
            out = model(one)
            if differentiates:
                out.square().sum().backward()
    for name in rec.names:
        expected = torch.stack([call.output for call in plain[name].calls])
        torch.testing.assert_close(rec[name].output, expected.reshape(*sizes, -1))
        if differentiates:
            expected = torch.stack([call.grad_output for call in plain[name].calls])
            torch.testing.assert_close(rec[name].grad_output, expected.reshape(*sizes, -1))


def test_a_statistic_of_ones_own_gets_plain_values():
    @statistic("peak", merge="max")
    def peak(x, xp):
        seen.append(tuple(x.shape))
        return x.abs().max()

    seen, model, x = [], net(), batch()
    try:
        with watch(model, "1", stats=["peak"]) as w, record(model, "1") as rec:
            vmap(grad(lambda one: model(one).sum()))(x)
    finally:
        forget("peak")
    assert set(seen) == {(5, 4)}
    assert w.rows("1", kind="output")[0]["peak"] == rec["1"].output.abs().max()
