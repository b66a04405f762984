"""Hooks on compiled models: placed before and after compiling, on any form of compiling, and taken off again."""

import copy
import gc
import pickle
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import hookline
from hookline.testing import untouched
from tests.support.models import OwnSequential

pytestmark = [
    pytest.mark.usefixtures("fresh_compiler"),
    pytest.mark.filterwarnings(
        "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore:The .grad attribute of a Tensor that is not"
    ),
]


class Affine(nn.Linear):
    """Not torch's own class, which can't be compiled alone."""

    def forward(self, x):
        return super().forward(x)


def net():
    torch.manual_seed(0)
    return OwnSequential(Affine(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))


class Wrapped(nn.Module):
    """A class of one's own: torch runs the hooks of such a root outside of the graph."""

    def __init__(self):
        super().__init__()
        self.body = net()

    def forward(self, x, scale=2, *, shift=None):
        y = self.body(x) * scale
        return y if shift is None else {"y": y + shift, "scale": scale}


X = torch.linspace(-1, 1, 15).reshape(5, 3)


def whole(model, **options):
    return torch.compile(model, backend="aot_eager", fullgraph=True, **options)


def in_place(model):
    model.compile(backend="aot_eager", fullgraph=True)
    return model


def a_part(model):
    model[0].compile(backend="aot_eager", fullgraph=True)
    return model


def a_part_replaced(model):
    model[0] = torch.compile(model[0], backend="aot_eager", fullgraph=True)
    return model


WAYS = [whole, in_place, a_part, a_part_replaced]


def recorded(model, ran, **wanted):
    with hookline.record(model, **wanted) as rec:
        ran(X).square().sum().backward()
    return rec


def assert_same(one, other):
    assert one.names == other.names
    for name in one.names:
        for what in ("output", "grad_output", "grad_input"):
            torch.testing.assert_close(getattr(one[name], what), getattr(other[name], what))


@pytest.mark.parametrize("first", [False, True], ids=["before the first call", "after it"])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_compile(way, first, graphs):
    plain = net()
    wanted = recorded(plain, plain, grads=True)
    model = way(net())
    if first:
        model(X)
    assert_same(wanted, recorded(model, model, grads=True))
    compiled = graphs()
    model(X)
    assert_same(wanted, recorded(model, model, grads=True))
    assert graphs()[0] <= compiled[0] + (0 if first else 1) and graphs()[1] == 0
    assert not any("_orig_mod" in name for name in wanted.names)


def test_the_model_may_be_attached_to_while_its_compiled_form_runs():
    model = net()
    wanted = recorded(net_ := net(), net_, grads=True)
    ran = whole(model)
    ran(X)
    assert_same(wanted, recorded(model, ran, grads=True))


def test_attached_before_compile_is_called_at_all(graphs):
    model, seen = net(), []
    with hookline.register_forward_hook(model, lambda m, a, o: seen.append(o.clone()), "0"):
        ran = whole(model)
        ran(X)
        ran(X)
        assert len(seen) == 2 and graphs() == (1, 0)
        torch.testing.assert_close(seen[0], model[0](X))
    seen.clear()
    ran(X)
    assert not seen and type(model[0]) is Affine


def test_a_function_that_calls_the_model():
    model = net()

    def step(x):
        return model(x).square().sum()

    ran = torch.compile(step, backend="aot_eager", fullgraph=True)
    ran(X)
    wanted = recorded(net_ := net(), net_, grads=True)
    with hookline.record(model, grads=True) as rec:
        ran(X).backward()
    assert_same(wanted, rec)


# The three traps


def test_trap_a_hook_after_the_first_call_is_not_ignored(graphs):
    model = net()
    ran = whole(model)
    before = ran(X)
    with hookline.edit(ran, {"0": lambda out: out * 0 + 1}):
        edited = ran(X)
    torch.testing.assert_close(edited, model[2](torch.ones(5, 4)))
    assert torch.equal(ran(X), before) and graphs() == (2, 0)


def test_trap_a_second_instance_of_a_compiled_class():
    first = whole(Wrapped())
    first(X)
    second_model = Wrapped()
    seen = []
    with hookline.register_forward_hook(second_model, lambda m, a, o: seen.append(1), "body.0"):
        second = whole(second_model)
        second(X)
        first(X)
        assert seen == [1]
        with hookline.record(first, "body.0") as rec:
            second(X)
        assert rec.names == [] and seen == [1, 1]


def test_trap_appending_to_a_list_compiles_nothing_anew(graphs):
    ran, seen = whole(net()), []
    with hookline.register_forward_hook(ran, lambda m, a, o: seen.append(len(seen)), "*"):
        ran(X)
        compiled = graphs()
        for _ in range(5):
            ran(X)
    assert seen == list(range(18)) and graphs() == compiled == (1, 0)


# Graphs are made once


def test_another_callback_compiles_nothing(graphs):
    ran = whole(net())
    ran(X)
    for number in range(4):
        seen = []
        with hookline.register_forward_hook(ran, lambda m, a, o, s=seen, n=number: s.append(n), "0"):
            ran(X)
        assert seen == [number]
        ran(X)
    assert graphs() == (2, 0)


def test_two_batch_sizes_share_a_dynamic_graph(graphs):
    ran = whole(net(), dynamic=True)
    with hookline.record(ran, "2") as rec:
        ran(X)
        ran(X[:3])
    assert [call.output.shape[0] for call in rec["2"].calls] == [5, 3] and graphs() == (1, 0)


@pytest.mark.parametrize("compiler", ["eager", "aot_eager", "inductor"])
def test_watch_switches_between_two_graphs(compiler, graphs):
    def rows(ran, model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with hookline.watch(ran, every=3, inputs=True) as w:
            for _ in range(7):
                optimizer.zero_grad()
                ran(X).square().sum().backward()
                optimizer.step()
        return sorted(w.rows(), key=lambda row: [row[k] for k in KEY])

    plain, model = net(), net()
    ran = torch.compile(model, backend=compiler, fullgraph=True)
    wanted, found = rows(plain, plain), rows(ran, model)
    assert graphs() == (2, 0)
    assert [[row[k] for k in KEY] for row in found] == [[row[k] for k in KEY] for row in wanted]
    for one, other in zip(wanted, found, strict=True):
        assert one["count"] == other["count"] and one["hist"].sum() == other["hist"].sum()
        for statistic in ("mean", "std", "min", "max", "absmax", "l2", "near_zero"):
            assert one[statistic] == pytest.approx(other[statistic], rel=1e-4, abs=1e-6), (one["site"], statistic)


KEY = ("site", "kind", "step", "call", "mode")


# The five primitives, each eager and compiled


PRIMITIVES = {
    "pre-hook": (hookline.register_forward_pre_hook, lambda m, args: (args[0] * 2,)),
    "hook": (hookline.register_forward_hook, lambda m, args, out: out + args[0].sum()),
    "hook that writes": (hookline.register_forward_hook, lambda m, args, out: out.mul_(3) and None),
    "backward pre-hook": (hookline.register_backward_pre_hook, lambda m, grads: (grads[0] * 3,)),
    "backward hook": (hookline.register_backward_hook, lambda m, gin, gout: (gin[0] * 5,)),
}


@pytest.mark.parametrize("compiler", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", PRIMITIVES)
def test_a_primitive_that_replaces(name, compiler, graphs):
    register, hook = PRIMITIVES[name]
    if name == "hook that writes":

        def hook(module, args, out):
            out.mul_(3)

    def results(model, ran):
        x = X.clone().requires_grad_()
        with register(ran, hook, "2"):
            output = ran(x)
            output.square().sum().backward()
        return output, x.grad, [p.grad for p in model.parameters()]

    plain, model = net(), net()
    ran = torch.compile(model, backend=compiler, fullgraph=True)
    torch.testing.assert_close(results(model, ran), results(plain, plain))
    assert graphs() == (1, 0)


@pytest.mark.parametrize("compiler", ["aot_eager", "inductor"])
def test_a_backward_hook_sees_what_it_sees_eagerly_and_may_keep_it(compiler):
    def seen(ran):
        kept = []
        with hookline.register_backward_hook(ran, lambda m, gin, gout: kept.append((gin, gout)), "*"):
            ran(X.clone().requires_grad_()).square().sum().backward()
        return kept

    torch.testing.assert_close(seen(torch.compile(net(), backend=compiler, fullgraph=True)), seen(net()))


def test_keyword_arguments_and_structures(graphs):
    def results(ran):
        shift = torch.ones(2, requires_grad=True)
        with (
            hookline.register_forward_pre_hook(
                ran, lambda m, a, k: (a, k | {"shift": k["shift"] * 2}), with_kwargs=True
            ),
            hookline.record(ran, "", inputs=True, grads=True) as rec,
        ):
            output = ran(X, 3, shift=shift)
            output["y"].sum().backward()
        return output, rec[""].kwargs, rec[""].grad_kwargs, rec[""].output, shift.grad

    torch.testing.assert_close(results(whole(Wrapped())), results(Wrapped()))
    inner = nn.ModuleDict({"w": Wrapped()})
    inner.forward = lambda x: inner["w"](x, 3, shift=x.sum())["y"]
    with hookline.record(inner, "w", inputs=True) as rec:
        torch.compile(inner, backend="aot_eager", fullgraph=True)(X)
    assert rec["w"].input[1] == 3 and rec["w"].kwargs["shift"].shape == () and rec["w"].output["scale"] == 3


# Edits


def test_an_edit_uses_parameters_of_its_own():
    def grad_of_steering(model, ran):
        steering = torch.ones(4, requires_grad=True)
        with hookline.edit(ran, {"0": lambda out: out + steering}):
            ran(X).square().sum().backward()
        return steering.grad

    model = net()
    torch.testing.assert_close(grad_of_steering(model, whole(model)), grad_of_steering(net_ := net(), net_))


@pytest.mark.parametrize(
    "change", [hookline.skip, hookline.skip(torch.ones(5, 4)), hookline.skip(lambda x: x * 2)]
)
def test_skipping_a_module(change, graphs):
    plain, ran = net(), whole(net())
    before = ran(X)
    with hookline.edit(plain, {"1": change}):
        wanted = plain(X)
    with hookline.edit(ran, {"1": change}) as block:
        torch.testing.assert_close(ran(X), wanted)
    assert block.audit()[0].fired == 1
    assert torch.equal(ran(X), before) and graphs() == (2, 0)


def test_weights_and_gradients_are_edited():
    plain, model = net(), net()
    edits = {"0.bias": torch.ones(4), "2:grad_output": lambda g: g * 3, "1:input": lambda args: (args[0] + 1,)}
    for ran, owner in ((plain, plain), (whole(model), model)):
        with hookline.edit(ran, edits):
            ran(X).square().sum().backward()
        assert owner[0].bias.grad is not None
    for one, other in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_a_forward_is_stopped_early():
    ran = whole(net())
    with hookline.record(ran, "0", stop=True) as rec:
        ran(X)
        raise AssertionError("not reached")
    assert rec.names == ["0"] and rec["0"].output.shape == (5, 4)


# What can't be, and what is left


def test_more_than_tensors_can_not_be_replaced():
    inner = nn.Sequential(Wrapped())
    inner.forward = lambda x: inner[0](x, 3)
    ran = whole(inner)
    handle = hookline.register_forward_pre_hook(ran, lambda m, a, k: ((a[0], 4), k), "0", with_kwargs=True)
    with handle, pytest.raises(hookline.Unsupported, match="3 became 4"):
        ran(X)


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net()

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False)


def test_values_in_a_checkpointed_part_are_recorded_and_not_replaced():
    ran = whole(Checkpointed())
    with hookline.record(ran, grads=True) as rec:
        ran(X).sum().backward()
    assert rec["body.0"].grad_output.abs().sum() > 0
    edit = hookline.edit(ran, {"body.0": lambda out: out * 2})
    with edit, pytest.raises(Exception, match=r"a part that torch\.utils\.checkpoint recomputes"):
        ran(X)


def test_an_error_in_a_hook_names_the_site_and_leaves_nothing():
    model = net()
    ran = whole(model)
    wanted = ran(X)

    def broken(module, args, output):
        raise ValueError("no")

    error = pytest.raises(hookline.HookError, match=r"'0'.*ValueError: no")
    with untouched(model), hookline.register_forward_hook(ran, broken, "0"), error:
        ran(X)
    assert torch.equal(ran(X), wanted)


def test_a_tapped_model_keeps_its_class_in_name_and_in_copies():
    model = net()
    ran = whole(model)
    ran(X)
    with hookline.record(ran) as rec:
        assert type(model[0]) is not Affine and isinstance(model[0], Affine)
        assert repr(model) == repr(net())
        pickled = [pickle.loads(pickle.dumps(model, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
        for other in (copy.deepcopy(model), *pickled):
            assert type(other[0]) is Affine
            other(X)
            assert hookline.installed(other) == []
        assert rec.names == []
        ran(X)
    assert rec.names == ["0", "1", "2", ""] and type(model[0]) is Affine


@pytest.mark.parametrize("make", [net, lambda: Checkpointed()], ids=["plain", "checkpointed"])
def test_a_forward_without_a_backward_keeps_nothing(make):
    ran = whole(make())
    with hookline.record(ran, grads=True) as rec:
        for _ in range(3):
            ran(X)
    calls = [weakref.ref(call) for name in rec.names for call in rec[name].calls]
    del rec
    gc.collect()
    assert len(calls) >= 12 and [call for call in calls if call() is not None] == []


def test_forwards_and_backwards_are_told_apart_in_any_order():
    ran = whole(net())
    with hookline.record(ran, "2", grads=True) as rec:
        first, second = ran(X), ran(X * 2)
        first.sum().backward()
        (second * 7).sum().backward()
    assert [call.grad_output.unique().item() for call in rec["2"].calls] == [1, 7]


# HookBackward


@pytest.mark.parametrize("compiler", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("write", [False, True], ids=["", "written to later"])
def test_hookbackward_in_compiled_code(compiler, write, graphs):
    kept = []
    hook = hookline.HookBackward(lambda grads: kept.append(grads) or grads[0] * 2)

    def forward(x):
        z = hook(x * 3)
        return (z.mul_(2) if write else z * 2).square().sum() + x.sum()

    def grad(fn):
        kept.clear()
        x = X.clone().requires_grad_()
        fn(x).backward()
        return x.grad, list(kept)

    torch.testing.assert_close(grad(torch.compile(forward, backend=compiler, fullgraph=True)), grad(forward))
    assert graphs() == (1, 0)


@pytest.mark.parametrize("compiler", ["eager", "aot_eager", "inductor"])
def test_hookbackward_under_the_transforms_of_torch_func(compiler):
    from torch.func import grad, jacrev, vmap

    hook = hookline.HookBackward(lambda grads: grads[0] * 2)
    hook_two = hookline.HookBackward(lambda grads: (grads[0] * 2, grads[1] * 3))

    def point(v):
        return torch.sin(hook(v * v))

    def two(v):
        a, b = hook_two(v * 2, v * 3)
        return (a * b).sum()

    for fn, at in (
        (grad(lambda v: point(v).sum()), X[0]),
        (vmap(grad(lambda v: point(v).sum())), X),
        (jacrev(point), X[0]),
        (grad(two), X[0]),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            torch.testing.assert_close(torch.compile(fn, backend=compiler, fullgraph=True)(at), fn(at))
