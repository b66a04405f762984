"""Edits of weights: whatever happens in a block, and however it ends, a weight gets its own numbers back.

Each test compares with what is worked out by hand, and `intact` the weights bit for bit, with memory and version.
Blocks are entered and left in random order, cut short at every line of hookline, and used from threads.
"""

import asyncio
import contextvars
import copy
import gc
import pickle
import sys
import threading
import warnings
import weakref
from contextlib import ExitStack, contextmanager, nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import hookline
from hookline.backends.changing import changing
from hookline.backends.weights import PlainWeight
from hookline.hooks import weights
from hookline.hooks.session import opened
from hookline.testing.interrupting import cut
from tests.support.interrupts import is_free


class Tied(nn.Module):
    """An embedding whose weight is the last layer's too, and what else a model has."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.norm = nn.BatchNorm1d(3)
        self.fc = nn.Linear(3, 3)
        self.out = nn.Linear(3, 5, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("scale", torch.rand(3) + 1)

    def forward(self, ids):
        return self.out(self.fc(self.norm(self.embed(ids))) * self.scale)


IDS = torch.tensor([0, 3, 4, 1])


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Tied().eval()


def tensors(model):
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def memory(model):
    """What must be as it was: objects, memory, version, bits."""
    return {
        name: (id(t), t.data_ptr(), t._version, t.dtype, t.stride(), t.requires_grad, t.detach().numpy().tobytes())
        for name, t in tensors(model).items()
    }


@contextmanager
def intact(*models):
    before, sessions = [memory(model) for model in models], list(opened())
    yield
    assert [memory(model) for model in models] == before
    assert weights._stacks == [] and list(opened()) == sessions


# Blocks in any order

CHANGES = {
    "add": lambda w: w + 1,
    "scale": lambda w: w * -2,
    "zero": lambda w: w * 0,
    "nothing": lambda w: None,
    "in place": lambda w: w.mul_(3),
}
SITES = ["embed.weight", "out.weight", "fc.*", "**.weight", "scale", "norm.running_mean"]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_blocks_may_be_left_in_any_order(data):
    torch.manual_seed(0)
    model = Tied().eval()
    own = {name: t.detach().clone() for name, t in tensors(model).items()}
    tied = {"out.weight": "embed.weight"}

    def matched(site):
        names = [*own, "out.weight"]
        wanted = [name for name in names if hookline.globs.matcher(site)(name)]
        return {tied.get(name, name) for name in wanted}

    open_blocks = []
    with intact(model), ExitStack() as whatever_happens:
        for _ in range(data.draw(st.integers(1, 10))):
            if open_blocks and data.draw(st.booleans()):
                block, _ = open_blocks.pop(data.draw(st.integers(0, len(open_blocks) - 1)))
                block.__exit__(None, None, None)
            else:
                edits = data.draw(st.dictionaries(st.sampled_from(SITES), st.sampled_from([*CHANGES]), min_size=1))
                # each entry a function of its own: the same one under two names of a tensor is one edit
                changes = {site: (lambda w, fn=CHANGES[kind]: fn(w)) for site, kind in edits.items()}
                open_blocks.append((whatever_happens.enter_context(hookline.edit(model, changes)), edits))
            expected = {name: t.clone() for name, t in own.items()}
            for _, edits in open_blocks:
                for site, kind in edits.items():
                    for name in matched(site):
                        made = CHANGES[kind](expected[name].clone())
                        expected[name] = expected[name] if made is None else made
            assert [name for name, t in tensors(model).items() if not torch.equal(t, expected[name])] == []
        for block, _ in data.draw(st.permutations(open_blocks)):
            block.__exit__(None, None, None)


def test_an_edit_below_is_taken_out_from_under_one_above(model):
    w = model.fc.weight.detach().clone()
    with intact(model):
        a = hookline.edit(model, {"fc.weight": lambda w: w * 0}).__enter__()
        b = hookline.edit(model, {"fc.weight": lambda w: w + 1}).__enter__()
        assert torch.equal(model.fc.weight, w * 0 + 1)
        a.__exit__(None, None, None)
        assert torch.equal(model.fc.weight, w + 1) and b.audit()["fc.weight"].fired == 2
        b.__exit__(None, None, None)
        b.__exit__(None, None, None)


def test_a_function_that_fails_when_made_anew_is_in_force_no_longer(model):
    w = model.fc.weight.detach().clone()
    asked = []

    def once(w):
        asked.append(1)
        return w + 1 / (2 - len(asked))

    with intact(model):
        a = hookline.edit(model, {"fc.weight": lambda w: w * 2, "fc.bias": lambda b: b * 2}).__enter__()
        b = hookline.edit(model, {"fc.weight": once}).__enter__()
        c = hookline.edit(model, {"fc.weight": lambda w: w * 3}).__enter__()
        with pytest.raises(hookline.HookError, match=r"'fc.weight'.*ZeroDivisionError"):
            a.__exit__(None, None, None)
        assert torch.equal(model.fc.weight, w * 3)
        assert "in force no longer" in b.audit()["fc.weight"].why
        b.__exit__(None, None, None)
        assert torch.equal(model.fc.weight, w * 3)
        c.__exit__(None, None, None)


def test_a_block_is_entered_once_at_a_time(model):
    block = hookline.edit(model, {"fc.weight": lambda w: w * 2})
    w = model.fc.weight.detach().clone()
    with intact(model):
        with block:
            with pytest.raises(hookline.InvalidArgument, match="open already"):
                block.__enter__()
            assert torch.equal(model.fc.weight, w * 2)
        with block:
            assert torch.equal(model.fc.weight, w * 2)


def test_a_function_may_open_blocks_itself(model):
    w = model.fc.weight.detach().clone()

    def nested(weight):
        with hookline.edit(model, {"fc.weight": lambda w: w + 1}):
            assert torch.equal(model.fc.weight, w + 1)
        return weight * 2

    with intact(model), hookline.edit(model, {"fc.weight": nested}):
        assert torch.equal(model.fc.weight, w * 2)


def test_a_generator_may_be_closed_elsewhere(model):
    def run():
        with hookline.edit(model, {"fc.weight": lambda w: w * 0}):
            yield

    with intact(model):
        first, second = run(), run()
        next(first), next(second)
        first.close()
        del second
        gc.collect()
    before = memory(model)
    third = run()
    # A context of its own: the one in which a block was opened goes on counting it, when another thread closes it.
    contextvars.copy_context().run(next, third)
    assert not model.fc.weight.any()
    in_thread(third.close)
    assert memory(model) == before and weights._stacks == []


# Interrupts


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2, bias=False)
        self.out = nn.Linear(2, 2, bias=False)
        self.out.weight = self.fc.weight
        self.register_buffer("scale", torch.rand(2) + 1)

    def forward(self, x):
        return self.out(self.fc(x)) * self.scale


def one(model):
    with hookline.edit(model, {"*.weight": lambda w: w * 2, "scale": torch.zeros(2)}):
        model(torch.ones(1, 2))


def nested(model):
    with (
        hookline.edit(model, {"fc.weight": lambda w: w * 2}),
        hookline.edit(model, {"out.weight": lambda w: w + 1}),
    ):
        model(torch.ones(1, 2))


def overlapping(model):
    with ExitStack() as stack, ExitStack() as first:  # it leaves all of them, also when leaving one is cut short
        first.enter_context(hookline.edit(model, {"fc.weight": lambda w: w * 2}))
        stack.enter_context(hookline.edit(model, {"fc.weight": lambda w: w + 1}))
        first.close()
        model(torch.ones(1, 2))


def converted(model):
    with hookline.edit(model, {"fc.weight": lambda w: w * 2, "scale": lambda s: s * 2}):
        model.double()


# An interrupt between `edit(...)` and its `with`: that the block was never entered is true, and told.
@pytest.mark.filterwarnings("ignore:this hookline.edit:RuntimeWarning")
@pytest.mark.parametrize("action", [one, nested, overlapping, converted])
def test_an_interrupt_at_any_line_leaves_the_weights_as_they_were(action):
    action(Small())  # what is loaded at first use is not to be interrupted
    lines, going = 0, True
    while going:
        lines += 1
        model = Small()
        own, before = copy.deepcopy(model), memory(model)
        going = cut(lines, lambda model=model: action(model))
        for name, tensor in tensors(model).items():
            assert torch.equal(tensor, tensors(own)[name].to(tensor.dtype)), (lines, name)
        assert weights._stacks == [] and not opened() and torch.is_grad_enabled()
        assert action is converted or memory(model) == before
        assert is_free(weights._alone) and is_free(changing), lines
    assert lines > 250


def test_an_error_in_the_function_or_the_body(model):
    with intact(model):
        with pytest.raises(hookline.HookError, match=r"'scale'"):
            hookline.edit(model, {"fc.weight": lambda w: w * 2, "scale": lambda s: 1 / 0}).__enter__()
        with pytest.raises(hookline.WrongReplacement, match="strided"):
            hookline.edit(model, {"fc.weight": lambda w: w.to_sparse()}).__enter__()
        with pytest.raises(KeyError), hookline.edit(model, {"fc.weight": lambda w: w * 2}):
            raise KeyError


# Threads and tasks


def in_thread(action):
    """What `action` returns or raises in another thread."""
    found = []

    def run():
        try:
            found.append(action())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    (result,) = found
    return result


@pytest.mark.parametrize("site", ["fc.weight", "scale"])
def test_a_second_thread_is_refused(model, site):
    other = Tied()
    with intact(model, other):
        with hookline.edit(model, {"fc.weight": lambda w: w * 0}):
            refused = in_thread(lambda: hookline.edit(model, {site: lambda w: w + 1}).__enter__())
            assert isinstance(refused, hookline.Unsupported)
            text = f"an edit of '{site}' while a block of another thread or task (test_weight_edits.py:"
            assert text in str(refused) and "a copy of the model" in str(refused)
            # a part of the model, and a model that shares a part
            refused = in_thread(lambda: hookline.edit(model.fc, {"bias": lambda w: w + 1}).__enter__())
            assert isinstance(refused, hookline.Unsupported)
            refused = in_thread(
                lambda: hookline.edit(nn.Sequential(model.fc), {"0.bias": torch.ones(3)}).__enter__()
            )
            assert isinstance(refused, hookline.Unsupported)

            def elsewhere():
                with hookline.edit(other, {"fc.weight": lambda w: w * 0}):
                    return other.fc.weight.abs().sum().item()

            assert in_thread(elsewhere) == 0
        in_thread(lambda: hookline.edit(model, {site: lambda w: w + 1}).__enter__().__exit__(None, None, None))


def test_a_block_on_a_part_of_the_model_is_a_stranger_too(model):
    with intact(model), hookline.edit(model.norm, {"weight": lambda w: w * 0}):
        assert isinstance(
            in_thread(lambda: hookline.edit(model, {"fc.weight": lambda w: w}).__enter__()), hookline.Unsupported
        )
        part = hookline.edit(model.fc, {"weight": lambda w: w * 1})
        assert in_thread(lambda: part.__enter__()) is part
        part.__exit__(None, None, None)


def test_tasks_are_told_apart(model):
    async def edited():
        with hookline.edit(model, {"fc.weight": lambda w: w * 0}):
            await asyncio.sleep(0.01)
            return model.fc.weight.abs().sum().item()

    async def main():
        return await asyncio.gather(edited(), edited(), return_exceptions=True)

    with intact(model):
        first, second = asyncio.run(main())
    assert first == 0 and isinstance(second, hookline.Unsupported)


def test_a_storm_of_threads(model):
    wrong, done, refused = [], [], []

    def run(number):
        for turn in range(60):
            value = float(number * 1000 + turn)
            try:
                with hookline.edit(model, {"fc.weight": torch.full((3, 3), value), "scale": lambda s: s * 2}):
                    if not bool((model.fc.weight == value).all()):
                        wrong.append(value)
                done.append(1)
            except hookline.Unsupported:
                refused.append(1)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with intact(model):
            threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong and done and len(done) + len(refused) == 360


def test_a_call_in_another_thread_never_reads_memory_that_is_used_again():
    class Powers(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(300_000))

        def forward(self):
            return self.w.pow(1.5)  # slow enough for several blocks to come and go

    model = Powers()
    mixed, calls, stop = [], [], threading.Event()

    def call():
        with torch.no_grad():
            while not stop.is_set():
                found = model()
                calls.append(1)
                if not bool((found == found[0]).all()):
                    mixed.append(found.unique().tolist()[:5])

    thread = threading.Thread(target=call)
    thread.start()
    turn = 1
    while len(calls) < 60 and turn < 100_000:
        turn += 1
        with hookline.edit(model, {"w": torch.full((300_000,), float(turn))}):
            pass
    stop.set()
    thread.join()
    assert len(calls) >= 60 and not mixed


def test_a_function_that_waits_for_another_thread_does_not_lock(model):
    other = Tied()

    def waits(w):
        assert in_thread(lambda: hookline.edit(other, {"scale": lambda s: s}).__enter__().close()) is None
        return w

    with intact(model, other), hookline.edit(model, {"fc.weight": waits}):
        pass


# What torch keeps of weights


@pytest.mark.parametrize("grad", [True, False])
def test_autocast(model, grad):
    fc, x = model.fc, torch.ones(2, 3)
    with torch.set_grad_enabled(grad), intact(model):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            own = fc(x)
            with hookline.edit(model, {"fc.weight": lambda w: w * 0}):
                assert torch.equal(fc(x), fc.bias.bfloat16().expand(2, 3))
                with (
                    torch.autocast("cpu", dtype=torch.bfloat16),
                    hookline.edit(model, {"fc.weight": lambda w: w + 1}),
                ):
                    ones = torch.ones(3, 3, dtype=torch.bfloat16)
                    assert torch.equal(fc(x), nn.functional.linear(x.bfloat16(), ones, fc.bias.bfloat16()))
                assert torch.equal(fc(x), fc.bias.bfloat16().expand(2, 3))
            assert torch.equal(fc(x), own)
        with hookline.edit(model, {"fc.weight": lambda w: w * 0}), torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(fc(x), fc.bias.bfloat16().expand(2, 3))


def test_a_block_that_ends_inside_an_autocast_region_it_did_not_begin_in(model):
    fc, x = model.fc, torch.ones(2, 3)
    block = hookline.edit(model, {"fc.weight": lambda w: w * 0}).__enter__()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        edited = fc(x)
        block.__exit__(None, None, None)
        assert torch.equal(fc(x), nn.functional.linear(x.bfloat16(), fc.weight.bfloat16(), fc.bias.bfloat16()))
        assert not torch.equal(fc(x), edited)


def test_parametrized_weights_that_are_cached():
    layer, x = parametrizations.weight_norm(nn.Linear(2, 2)), torch.ones(1, 2)
    with intact(layer), parametrize.cached():
        own = layer(x)
        with hookline.edit(layer, {"parametrizations.weight.original0": lambda g: g * 0}):
            assert torch.equal(layer(x)[0], layer.bias)
        assert torch.equal(layer(x), own)


def test_pruned_weights():
    layer, x = prune.l1_unstructured(nn.Linear(4, 2), "weight", 0.5), torch.ones(1, 4)
    own = layer(x)
    with intact(layer), hookline.edit(layer, {"weight_orig": lambda w: w * 0}):
        assert torch.equal(layer(x)[0], layer.bias)
    assert torch.equal(layer(x), own)


def test_a_recurrent_layer_which_keeps_a_list_of_its_weights():
    layer, x = nn.LSTM(2, 3), torch.randn(4, 1, 2)
    own = layer(x)[0]
    with intact(layer), hookline.edit(layer, {"*": lambda w: w * 0}):
        assert not layer(x)[0].any()
    assert torch.equal(layer(x)[0], own)


@pytest.mark.parametrize("freeze", [False, True])
def test_compiled_code(model, freeze):
    torch.compiler.reset()
    compiled = torch.compile(model.fc, backend="aot_eager")
    x = torch.ones(2, 3)
    with torch.no_grad() if freeze else nullcontext(), intact(model):
        own = compiled(x)
        with hookline.edit(compiled, {"weight": lambda w: w * 0}):
            assert torch.equal(compiled(x), model.fc.bias.expand(2, 3))
        assert torch.equal(compiled(x), own)


def test_code_that_has_weights_as_constants_is_refused(model):
    from torch._inductor import config

    refused = pytest.raises(hookline.Unsupported, match=r"'fc.weight' while inductor freezes.*without inductor")
    with config.patch(freezing=True), refused:
        hookline.edit(model, {"fc.weight": lambda w: w * 0})


def test_scripted_and_functional_models(model):
    x = torch.ones(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(model.fc, (x,))
    with hookline.edit(traced, {"weight": lambda w: w * 0}):
        assert torch.equal(traced(x), model.fc.bias.expand(2, 3))
    assert torch.equal(traced(x), model.fc(x))
    given = {name: torch.ones_like(t) for name, t in model.fc.named_parameters()}
    with intact(model), hookline.edit(model, {"fc.weight": lambda w: w * 0}):
        assert torch.func.functional_call(model.fc, given, (x,)).eq(4).all()


# Gradients


class Scaled(nn.Module):
    """Its weight is saved by autograd as it is."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.full((2,), 3.0))

    def forward(self, x):
        return x * self.w


def test_a_graph_from_before_a_block_is_good_after_it():
    model, x = Scaled(), torch.ones(2, requires_grad=True)
    y = model(x).sum()
    with hookline.edit(model, {"w": lambda w: w * 10}):
        z = model(x).sum()
        z.backward()
        assert x.grad.tolist() == [30, 30] and model.w.grad.tolist() == [1, 1]
        x.grad = None
    y.backward()
    assert x.grad.tolist() == [3, 3] and model.w.grad.tolist() == [2, 2]


def test_a_backward_that_would_compute_with_other_numbers_raises():
    model, x = Scaled(), torch.ones(2, requires_grad=True)
    before = model(x).sum()
    a = hookline.edit(model, {"w": lambda w: w * 10})
    b = hookline.edit(model, {"w": lambda w: w + 1})
    with a:
        inside = model(x).sum()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            before.backward()
        with b, pytest.raises(RuntimeError, match="modified by an inplace operation"):
            inside.backward()
        inside.backward(retain_graph=True)  # the numbers it was made with are back
        assert x.grad.tolist() == [30, 30]
    for after in (nullcontext(), a, b):
        with after, pytest.raises(RuntimeError, match="modified by an inplace operation"):
            inside.backward(retain_graph=True)


def test_hooks_gradients_and_optimizers_hold_on_to_the_weight(model):
    heard = []
    weight = model.fc.weight
    weight.register_hook(lambda g: heard.append(g))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with hookline.edit(model, {"fc.weight": lambda w: w * 2}):
        assert model.fc.weight is weight and weight.is_leaf and weight.requires_grad
        model(IDS).sum().backward()
        assert any(one is weight for one in optimizer.param_groups[0]["params"]) and torch.equal(
            weight.grad, heard[0]
        )
    grad = weight.grad.clone()
    w = weight.detach().clone()
    optimizer.step()
    assert torch.equal(weight, w.add(grad, alpha=-0.1))


# What is done to the model inside a block


@pytest.mark.parametrize(
    "convert",
    [
        lambda m: m.double(),
        lambda m: m.half(),
        lambda m: m.to(torch.bfloat16),
        lambda m: m.to("cpu", torch.float64),
        lambda m: m.double().float(),
        lambda m: m.half().double(),
        lambda m: m.float(),
    ],
)
@pytest.mark.parametrize("settings", [(False, False), (True, False), (False, True)])
def test_converting_the_model_inside(model, convert, settings):
    expected = copy.deepcopy(model)
    found = {name: t.detach().clone() for name, t in model.state_dict().items()}
    overwrite, swap = settings
    torch.__future__.set_overwrite_module_params_on_conversion(overwrite)
    torch.__future__.set_swap_module_params_on_conversion(swap)
    old = model.scale
    own = old.clone()
    changes = {"fc.weight": lambda w: w * 2, "scale": lambda s: s + float("nan"), "out.*": lambda w: w + 1}
    try:
        convert(expected)
        with hookline.edit(model, changes):
            convert(model)
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
        torch.__future__.set_swap_module_params_on_conversion(False)
    for name, tensor in tensors(model).items():
        assert tensor.dtype == tensors(expected)[name].dtype
        if name in ("fc.weight", "scale", "embed.weight", "out.weight"):  # its own numbers, not rounded on the way
            assert torch.equal(tensor, found[name].to(tensor.dtype)), name
        else:
            assert torch.equal(tensor, tensors(expected)[name]), name
    assert torch.equal(old, own)
    assert weights._stacks == []


def test_converting_between_blocks(model):
    expected = copy.deepcopy(model).double()
    for order in ([0, 1], [1, 0]):
        a = hookline.edit(model, {"scale": lambda s: s * 2, "fc.weight": lambda w: w * 2}).__enter__()
        model.double()
        b = hookline.edit(model, {"scale": lambda s: s + 1, "fc.weight": lambda w: w + 1}).__enter__()
        assert torch.equal(model.scale, expected.scale * 2 + 1)
        assert torch.equal(model.fc.weight, expected.fc.weight * 2 + 1)
        for number in order:
            (a, b)[number].__exit__(None, None, None)
        assert all(torch.equal(t, tensors(expected)[name]) for name, t in tensors(model).items())
        model.float()


def test_memory_formats_and_other_strides():
    conv = nn.Conv2d(4, 4, 3)
    own = conv.weight.detach().clone()
    with hookline.edit(conv, {"weight": lambda w: w * 2}):
        conv.to(memory_format=torch.channels_last)
    assert conv.weight.is_contiguous(memory_format=torch.channels_last) and torch.equal(conv.weight, own)
    with intact(conv), hookline.edit(conv, {"weight": lambda w: (w * 2).contiguous()}):
        assert torch.equal(conv.weight, own * 2)
    flat = torch.arange(12.0)
    layer = nn.Linear(3, 2, bias=False)
    layer.weight.data = flat[:12:2].view(3, 2).t()
    with intact(layer), hookline.edit(layer, {"weight": lambda w: w * 2}):
        assert torch.equal(layer.weight, flat[:12:2].view(3, 2).t() * 2)


def test_shared_memory(model):
    with hookline.edit(model, {"fc.weight": lambda w: w * 2}):
        model.share_memory()
    assert all(t.is_shared() for t in tensors(model).values())
    with intact(model), hookline.edit(model, {"fc.weight": lambda w: w * 2}):
        pass


def test_what_is_written_inside_is_gone_and_told(model):
    state = {name: t.clone() for name, t in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step():
        model(IDS).sum().backward()
        optimizer.step()

    def in_place():
        with torch.no_grad():
            model.fc.weight.mul_(2)

    for write in (step, in_place, lambda: model.load_state_dict(state)):
        own = model.fc.weight.detach().clone()
        with hookline.edit(model, {"fc.weight": lambda w: w * 2, "scale": lambda s: s + 1}) as edits:
            model(IDS)
            write()
        assert torch.equal(model.fc.weight, own)
        assert "written to inside the block" in edits.audit()["fc.weight"].why
    with hookline.edit(model, {"fc.weight": lambda w: w * 2}) as edits:
        model(IDS).sum().backward()
    assert edits.audit()["fc.weight"].why is None
    model.train()
    own = model.norm.running_mean.clone()
    with hookline.edit(model, {"norm.running_mean": lambda m: m + 1}) as edits:
        model.norm(torch.randn(4, 3))
    assert torch.equal(model.norm.running_mean, own) and edits.audit()["norm.running_mean"].fired == 1


def test_a_tensor_put_in_its_place_stays_and_is_told(model):
    own, weight = model.fc.weight.detach().clone(), model.fc.weight
    with hookline.edit(model, {"fc.weight": lambda w: w * 2, "scale": lambda s: s * 2}) as edits:
        model.fc.weight = nn.Parameter(torch.ones(3, 3))
        model.scale = model.scale + 1
    assert model.fc.weight.eq(1).all() and torch.equal(weight, own)
    assert "stays there" in edits.audit()["fc.weight"].why and "stays there" in edits.audit()["scale"].why
    own = model.fc.weight.detach().clone()
    state = {name: t + 1 if t.is_floating_point() else t for name, t in model.state_dict().items()}
    with hookline.edit(model, {"fc.weight": lambda w: w * 2}) as edits:
        model.load_state_dict(state, assign=True)
    assert torch.equal(model.fc.weight, own + 1) and "stays there" in edits.audit()["fc.weight"].why


def test_copies_made_inside_have_the_edited_numbers(model):
    own = model.fc.weight.detach().clone()
    with intact(model):
        with hookline.edit(model, {"fc.weight": lambda w: w * 2}):
            copies = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
            state = model.state_dict()
        assert all(torch.equal(one.fc.weight, own * 2) for one in copies)
        assert torch.equal(state["fc.weight"], own * 2)


def test_a_block_made_long_before_is_of_what_the_model_has_now(model):
    block = hookline.edit(model, {"scale": lambda s: s * 2, "fc.weight": lambda w: w * 2})
    model.double()
    with intact(model), block:
        assert torch.equal(model(IDS), copy.deepcopy(model)(IDS))
        doubled = model.scale.clone()
    assert torch.equal(model.scale * 2, doubled)


def test_inference_mode(model):
    with intact(model):
        with torch.inference_mode(), hookline.edit(model, {"fc.weight": lambda w: w * 2}):
            model(IDS)
        block = hookline.edit(model, {"fc.weight": lambda w: w * 2})
        with torch.inference_mode():
            block.__enter__()
        model(IDS).sum().backward()
        with torch.inference_mode():
            block.__exit__(None, None, None)
        model(IDS).sum().backward()
    with torch.inference_mode():
        made_there = nn.Linear(2, 2)
    own = made_there.weight.clone()
    with hookline.edit(made_there, {"weight": lambda w: w * 2}), torch.inference_mode():
        assert torch.equal(made_there.weight, own * 2)
    assert torch.equal(made_there.weight, own) and made_there.weight.is_inference()


# Tied weights, and what can't be edited


def test_one_change_of_a_tied_weight_is_made_once(model):
    own = model.embed.weight.detach().clone()

    def double(w):
        return w * 2

    for edits in ({"**.weight": double}, {"embed.weight": double, "out.weight": double}, {"out.weight": double}):
        with intact(model), hookline.edit(model, edits) as done:
            assert torch.equal(model.embed.weight, own * 2)
        assert done.audit()["out.weight"].fired == 1
        assert "one tensor with 'embed.weight'" in done.audit()["out.weight"].why


def test_two_changes_of_a_tied_weight_are_made_in_order(model):
    own = model.embed.weight.detach().clone()
    with (
        intact(model),
        hookline.edit(model, {"out.weight": lambda w: w * 2, "embed.weight": lambda w: w + 1}) as done,
    ):
        assert torch.equal(model.embed.weight, own * 2 + 1)
    assert [entry.fired for entry in done.audit()] == [1, 1]


def test_tensors_that_share_memory_without_being_tied_are_told():
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    model["b"].weight.data = model["a"].weight.data
    with intact(model), hookline.edit(model, {"a.weight": lambda w: w * 2}) as done:
        pass
    assert "looks at the same memory" in done.audit()["a.weight"].why


def test_an_edit_that_was_not_made_says_so(model):
    with hookline.edit(model, {"fc.weight": lambda w: None}) as done:
        pass
    assert done.audit()["fc.weight"].fired == 0 and "returned None" in done.audit()["fc.weight"].why


def test_what_has_no_numbers_is_refused():
    with pytest.raises(hookline.InvalidArgument, match=r"'weight' is lazy.*run the model once"):
        hookline.edit(nn.LazyLinear(2), {"weight": lambda w: w})
    with pytest.raises(hookline.InvalidArgument, match=r"'weight' is on the meta device"):
        hookline.edit(nn.Linear(2, 2, device="meta"), {"weight": lambda w: w})


def test_a_tensor_that_keeps_its_numbers_elsewhere_is_refused():
    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            args = [arg.inner if isinstance(arg, cls) else arg for arg in args]
            found = func(*args, **(kwargs or {}))
            return cls(found) if isinstance(found, torch.Tensor) else found

    model = nn.Module()
    model.w = nn.Parameter(Wrapped(torch.ones(2)))
    with pytest.raises(hookline.Unsupported, match=r"an edit of 'w', a Wrapped.*edit the output"):
        hookline.edit(model, {"w": lambda w: w})
    plain = nn.Linear(2, 2)
    with intact(plain), pytest.raises(hookline.WrongReplacement, match="expected a plain tensor, got a Wrapped"):
        hookline.edit(plain, {"bias": lambda w: Wrapped(w)}).__enter__()


def test_sparse_quantized_and_empty_tensors():
    model = nn.Module()
    model.register_buffer("sparse", torch.eye(3).to_sparse())
    model.register_buffer("empty", torch.ones(0))
    model.register_buffer("flags", torch.tensor([True, False]))
    for name in ("sparse", "empty", "flags"):
        own = getattr(model, name)
        before = own.clone()
        with hookline.edit(
            model,
            {name: lambda t: t.clone() if t.numel() == 0 else t.logical_not() if t.dtype is torch.bool else t * 2},
        ):
            assert getattr(model, name) is own
        assert torch.equal(own.to_dense(), before.to_dense())


def test_a_model_that_holds_its_parent():
    parent, child = nn.Linear(2, 2), nn.Linear(2, 2)
    parent.child = child
    object.__getattribute__(child, "_modules")["parent"] = parent
    with hookline.edit(parent, {"child.weight": lambda w: w * 0}):
        assert not child.weight.any()
    assert child.weight.any()


def test_nothing_is_held_afterwards():
    layer, edited, made = nn.Linear(2, 2), [], []

    def double(w):
        made.append(weakref.ref(w))
        return w * 2

    with hookline.edit(layer, {"weight": double}):
        edited.append(weakref.ref(layer.weight.data.untyped_storage()))
    dead = weakref.ref(layer)
    del layer
    gc.collect()
    assert dead() is None and made[0]() is None


def test_plain_weights_of_other_frameworks():
    held = {"w": (1, 2)}
    weight = PlainWeight("w", held.get, held.__setitem__)
    own = weight.own()
    assert weight.own() is own and weight.objects() == ["w"] and weight.misfit(3) == weight.remark() == ""
    weight.release()
    held["w"] = (2, 2)
    weight.put((3, 3))
    weight.put((4, 4))
    assert held["w"] == (4, 4) and weight.own() == (2, 2)
    weight.restore()
    weight.restore()
    assert held["w"] == (2, 2)
