"""The hook contract (ARCHITECTURE.md), line by line, beyond what the zoo shows."""

import asyncio
import copy
import threading
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import hookline
from hookline.backends.torch.values import release_memory
from hookline.testing import untouched
from tests.support.compare import same_bits
from tests.support.models import taking_no_hook


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)

    def forward(self, x):
        return self.c(self.b(self.a(x)))


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Chain()


@pytest.fixture
def x():
    torch.manual_seed(1)
    return torch.randn(4, 3)


# 2. All or nothing, and nothing left


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit], ids=lambda e: e.__name__)
@pytest.mark.parametrize("options", [{}, {"inputs": True, "grads": True}], ids=["outputs", "everything"])
def test_an_exception_in_the_forward_leaves_nothing(model, x, error, options):
    class Bad(nn.Module):
        def forward(self, x):
            raise error("inside")

    model.b = Bad()
    with untouched(model), pytest.raises(error, match="inside"), hookline.record(model, **options) as rec:
        model(x)
    assert rec.names == ["a"]
    assert "inside" in rec.audit()["b"].why and "inside" in rec.audit()["c"].why
    assert torch.equal(rec["a"].output, model.a(x))


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt], ids=lambda e: e.__name__)
def test_an_exception_in_a_hook_leaves_nothing(model, x, error):
    def hook(module, args, output):
        raise error("in the hook")

    expected = hookline.HookError if error is ValueError else error
    with (
        untouched(model),
        pytest.raises(expected) as caught,
        hookline.register_forward_hook(model, hook, "b"),
        hookline.record(model, grads=True),
        hookline.edit(model, {"a": lambda out: out + 1}),
    ):
        model(x)
    if error is ValueError:
        assert caught.value.site == "b" and isinstance(caught.value.__cause__, ValueError)
        assert "'b'" in str(caught.value) and "in the hook" in str(caught.value)


def test_a_failure_while_attaching_leaves_nothing(model):
    taking_no_hook(model.b, RuntimeError("third tap"))
    with untouched(model), pytest.raises(RuntimeError, match="third tap"):
        hookline.register_forward_hook(model, lambda m, a, o: None, "**")


def test_other_peoples_hooks_stay_and_run(model, x):
    log = []
    foreign = model.a.register_forward_hook(lambda m, a, o: log.append("before"))
    with untouched(model):
        with hookline.record(model) as rec:
            late = model.a.register_forward_hook(lambda m, a, o: o * 2)
            model(x)
            late.remove()
        assert log == ["before"] and rec.names == ["a", "b", "c", ""]
    foreign.remove()


def test_handles_are_idempotent_and_may_go_while_running(model, x):
    seen = []

    def once(module, args, output):
        seen.append(1)
        handle.detach()

    handle = hookline.register_forward_hook(model, once, "a")
    model(x)
    model(x)
    handle.remove()
    assert seen == [1]
    with hookline.register_forward_hook(model, lambda m, a, o: seen.append(2), "a") as inner:
        assert isinstance(inner, hookline.Handle)
        model(x)
    model(x)
    assert seen == [1, 2]


def test_a_copy_made_in_the_block_works_after_it(model, x):
    with hookline.record(model, grads=True), hookline.edit(model, {"b": hookline.skip, "a.bias": torch.zeros(3)}):
        edited = model(x)
        clone = copy.deepcopy(model)
    assert hookline.installed(clone) == []
    assert "forward" in vars(clone.b)
    model.a.bias.data.zero_()
    assert torch.equal(clone(x), model(x))
    assert not torch.equal(clone(x), edited)


# 3. A recorded value is what it was when it passed


def test_recordings_do_not_change_when_buffers_are_used_again(x):
    big = nn.Sequential(nn.Linear(3, 70_000), nn.ReLU(inplace=True))
    with hookline.record(big) as first:
        big(x)
    kept = first["0"].output
    copy_of_it = kept.clone()
    part = first["1"].output[:, :5]
    part_copy = part.clone()
    array = first[""].output.numpy()
    array_copy = array.copy()
    del first
    for _ in range(3):
        with hookline.record(big) as rec:
            big(torch.randn(4, 3))
    assert torch.equal(kept, copy_of_it) and torch.equal(part, part_copy) and (array == array_copy).all()
    assert rec["0"].output.data_ptr() != kept.data_ptr()


def test_a_buffer_that_nobody_holds_is_used_again(x):
    big = nn.Linear(3, 70_000)
    release_memory()
    with hookline.record(big) as rec:
        big(x)
    pointer = rec[""].output.requires_grad_().data_ptr()
    del rec
    with hookline.record(big) as rec:
        big(x)
    assert rec[""].output.data_ptr() == pointer and not rec[""].output.requires_grad
    assert torch.equal(rec[""].output, big(x))


def test_values_of_inference_mode_are_usable_afterwards(model, x):
    with torch.inference_mode(), hookline.record(model, inputs=True) as rec:
        model(x)
    for name in rec.names:
        assert not rec[name].output.is_inference() and not rec[name].input[0].is_inference()
    fc = nn.Linear(3, 1)
    fc(rec["b"].output).sum().backward()
    assert fc.weight.grad is not None


def test_inputs_are_kept_as_they_came_in(x):
    class Writes(nn.Module):
        def forward(self, x):
            return x.add_(1)

    model = Writes()
    before = x.clone()
    with hookline.record(model, inputs=True) as rec:
        model(x)
    assert torch.equal(rec[""].input[0], before) and torch.equal(rec[""].output, before + 1)


# 4. Silence is reported


def test_a_model_that_was_not_called_says_so(model, x):
    with hookline.record(model) as rec:
        pass
    assert all("was not called in this block" in entry.why for entry in rec.audit())
    with hookline.record(model) as rec:
        model.forward(x)
    assert rec.audit()[""].why.startswith("its parts ran but the module itself was not called")
    with hookline.record(model.c) as rec:
        model.c.forward(model.b(model.a(x)))
    assert ".forward" in rec.audit()[""].why


def test_fused_encoder_layer_says_that_looking_switches_it():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.no_grad(), hookline.record(layer) as rec:
        layer(torch.randn(1, 4, 8))
    assert "fused kernel" in rec.audit()[""].why
    odd = nn.TransformerEncoderLayer(9, 3, 16, batch_first=True).eval()
    with torch.no_grad(), hookline.record(odd) as rec:
        odd(torch.randn(1, 4, 9))
    assert rec.audit()[""].why is None


def test_early_stop_ends_with_the_site_that_executes_last_not_the_one_listed_last(model, x):
    log = []
    model.c.register_forward_hook(lambda m, a, o: log.append("c ran"))
    with untouched(model), hookline.record(model, ["b", "a"], stop=True) as rec:
        model(x)
        log.append("not reached")
    assert rec.names == ["a", "b"] and log == []
    assert torch.equal(rec["b"].output, torch.relu(model.a(x)))
    with hookline.record(model, ["a", "c"], stop=True) as rec:
        try:
            model(x)
        except Exception:
            pytest.fail("a model's own `except Exception` must not see the stop")
    assert rec.names == ["a", "c"]
    with hookline.record(nn.Sequential(model, nn.ReLU()), ["0.a"], stop=True) as rec:
        model(x)
    assert rec.names == ["0.a"]


def test_early_stop_with_a_site_that_is_never_reached(model, x):
    model.unused = nn.ReLU()
    with hookline.record(model, ["a", "unused"], stop=True) as rec:
        out = model(x)
    assert out.shape == (4, 2) and rec.audit()["unused"].fired == 0
    with hookline.record(model, ["a"], stop=True) as rec:
        model(x)
    assert rec.audit()["a"].why is None


def test_early_stop_says_what_was_not_reached(model, x):
    with hookline.record(model, ["b"], stop=True), hookline.record(model) as outer:
        model(x)
    assert outer.names == ["a", "b"]
    assert "StopForward" in outer.audit()["c"].why


# 5. Structures


def test_model_outputs_of_transformers_come_back_in_their_own_type():
    from transformers.modeling_outputs import BaseModelOutputWithPast

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            return BaseModelOutputWithPast(last_hidden_state=self.fc(x), hidden_states=(x, x * 2))

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def forward(self, x):
            out = self.net(x)
            return out.last_hidden_state * 3 + out["hidden_states"][1]

    model = Outer()
    with hookline.record(model, grads=True) as rec:
        model(torch.randn(2, 3, requires_grad=True)).sum().backward()
    out, grad = rec["net"].output, rec["net"].grad_output
    assert type(out) is BaseModelOutputWithPast and type(grad) is BaseModelOutputWithPast
    assert out.last_hidden_state is out["last_hidden_state"] and not out.last_hidden_state.requires_grad
    assert torch.equal(grad.last_hidden_state, torch.full((2, 3), 3.0))
    assert grad.hidden_states[0] is None and torch.equal(grad["hidden_states"][1], torch.ones(2, 3))
    seen = []
    with hookline.register_backward_hook(model, lambda m, gi, go: seen.append(go), "net"):
        model(torch.randn(2, 3, requires_grad=True)).sum().backward()
    assert torch.equal(seen[0][0].last_hidden_state, torch.full((2, 3), 3.0))


def test_frozen_and_slotted_dataclasses_pass_whole():
    @dataclass(frozen=True, slots=True)
    class Frozen:
        value: torch.Tensor
        note: str = "kept"

    class Net(nn.Module):
        def forward(self, x):
            return Frozen(x * 2, "own")

    with hookline.record(model := Net(), grads=True) as rec:
        out = model(torch.ones(2, requires_grad=True))
        out.value.sum().backward()
    assert rec[""].output.note == "own" and rec[""].output.value.tolist() == [2, 2]
    assert rec[""].grad_output.value.tolist() == [1, 1]


# reduce, device, dtype


def test_reduce_never_pins_the_whole(model, x):
    with hookline.record(model, reduce=lambda t: t[:1]) as rec:
        model(x)
    assert rec["a"].output.untyped_storage().nbytes() == 3 * 4
    assert torch.equal(rec["a"].output, model.a(x)[:1])
    with hookline.record(model, reduce=lambda t: (t.mean(), "text"), grads=True) as rec:
        model(x).sum().backward()
    assert rec["c"].grad_output == (torch.tensor(1.0), "text")
    with (
        hookline.record(model, reduce=float) as rec,
        pytest.warns(UserWarning, match=r"record, at 'a': reduce \(float\)"),
    ):
        model(x)
    assert rec["a"].output is None and "reduce function raised" in rec.audit()[0].why


def test_dtype_casts_floats_only(x):
    class Net(nn.Module):
        def forward(self, x):
            return x, (x > 0).long()

    with hookline.record(model := Net(), dtype="bfloat16") as rec:
        model(x)
    assert rec[""].output[0].dtype == torch.bfloat16 and rec[""].output[1].dtype == torch.int64
    with hookline.record(model, dtype=torch.float64, device="cpu") as rec:
        model(x)
    assert rec[""].output[0].dtype == torch.float64


# 7. Replacement


def test_two_edits_on_one_site_apply_in_order(model, x):
    plain = model.a(x)
    with hookline.edit(model, {"a": lambda out: out + 1}), hookline.edit(model, {"a": lambda out: out * 2}):
        with hookline.record(model, "a") as rec:
            model(x)
        assert torch.equal(rec["a"].output, (plain + 1) * 2)
    with hookline.record(model, "a") as rec, hookline.edit(model, {"a": lambda out: out * 2}):
        model(x)
    assert torch.equal(rec["a"].output, plain * 2)


def test_patching_from_another_recording(model, x):
    other = torch.randn(4, 3)
    with hookline.record(model, inputs=True) as clean:
        expected = model(x)
    for edits in (
        {"a": clean["a"].output},
        {"a": clean["a"]},
        {"b:input": clean["b"]},
        {"c:input": clean["c"].input},
        {"c:input": clean["c"].input[0]},
        {"": clean[""].calls[0]},
    ):
        with untouched(model), hookline.edit(model, edits) as done:
            assert torch.equal(model(other), expected)
        assert [entry.fired for entry in done.audit()] == [1]
    half = hookline.record(model, "a", dtype=torch.bfloat16)
    with half as rec:
        model(x)
    with hookline.edit(model, {"a": rec["a"]}):
        assert model(other).dtype == torch.float32


def test_kwargs_are_edited_by_name():
    class Net(nn.Module):
        def forward(self, *, x, scale, mode="plain"):
            return x * scale

    net = Net()
    arguments = {"x": torch.ones(2), "scale": torch.tensor(2.0)}
    with hookline.edit(net, {":kwargs": {"scale": torch.tensor(5.0)}}):
        assert net(**arguments).tolist() == [5, 5]
    with hookline.edit(net, {":kwargs": lambda kw: {"x": kw["x"] * 3}}):
        assert net(**arguments).tolist() == [6, 6]


def test_skipping_a_module(model, x):
    with untouched(model), hookline.edit(model, {"b": hookline.skip}) as edits:
        assert torch.equal(model(x), model.c(model.a(x)))
        assert [label.kind for label in hookline.installed(model)] == ["skip of the module"]
    assert edits.audit()["b"].fired == 1
    fixed = torch.randn(4, 3)
    with hookline.edit(model, {"a": hookline.skip(fixed)}):
        assert torch.equal(model(x), model.c(torch.relu(fixed)))
    with hookline.edit(model, {"a": hookline.skip(lambda x: -x)}):
        assert torch.equal(model(x), model.c(torch.relu(-x)))
    with untouched(model), hookline.edit(model, {"a": hookline.skip}), hookline.edit(model, {"a": hookline.skip}):
        model(x)


def test_weights_are_edited_and_come_back_untouched(model, x):
    with untouched(model):
        with hookline.edit(model, {"a.weight": lambda w: w * 0, "c.bias": torch.zeros(2)}) as edits:
            assert torch.equal(model(x), torch.relu(model.a.bias).expand(4, 3) @ model.c.weight.T)
        assert len(edits.audit()) == 2
        with hookline.edit(model, {"*.bias": lambda b: b + 1}) as edits:
            assert len(edits.audit()) == 2
        with (
            pytest.raises(hookline.WrongReplacement, match=r"a\.weight"),
            hookline.edit(model, {"c.bias": torch.ones(2), "a.weight": torch.zeros(1)}),
        ):
            pass


def test_edits_that_never_apply_say_why(model, x):
    with hookline.edit(model, {"c": lambda out: out}) as edits:
        pass
    assert edits.audit()["c"].fired == 0 and "not called" in edits.audit()["c"].why


def test_parameters_may_be_edited_inside_a_hook(model, x):
    weights = []

    def double(module, args, output):
        weights.append(module.weight.detach().clone())
        module.weight = nn.Parameter(module.weight * 2)

    with hookline.register_forward_hook(model, double, "a"):
        for _ in range(3):
            model(x)
    assert torch.equal(weights[1], weights[0] * 2) and torch.equal(weights[2], weights[0] * 4)


# 10. Threads and nesting


def test_two_nested_recordings_both_see_all(model, x):
    with hookline.record(model, inputs=True, grads=True) as outer:
        model(x).sum().backward()
        with hookline.record(model, grads=True) as inner:
            model(x).sum().backward()
    assert [len(outer[n].calls) for n in outer.names] == [2, 2, 2, 2]
    assert [len(inner[n].calls) for n in inner.names] == [1, 1, 1, 1]
    assert same_bits(inner["a"].grad_output, outer["a"].calls[1].grad_output)
    assert same_bits(inner["c"].grad_input, outer["c"].calls[1].grad_input)


def test_recordings_in_two_threads_do_not_see_each_other(model):
    inputs = [torch.full((1, 3), float(n)) for n in range(4)]
    barrier = threading.Barrier(len(inputs))
    results = {}

    def work(n):
        with hookline.record(model, inputs=True, grads=True) as rec:
            barrier.wait()
            for _ in range(20):
                model(inputs[n]).sum().backward()
            barrier.wait()
        results[n] = rec

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(inputs))]
    with untouched(model):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for n, given in enumerate(inputs):
        assert len(results[n]["a"].calls) == 20
        assert all(torch.equal(call.input[0], given) for call in results[n]["a"].calls)


def test_an_edit_in_one_thread_is_not_seen_by_another_with_its_own_block(model, x):
    plain = model(x)
    inside, done, results = threading.Event(), threading.Event(), {}

    def other():
        inside.wait()
        with hookline.record(model) as rec:
            model(x)
        results["other"] = rec[""].output
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with hookline.edit(model, {"": lambda out: out * 0}):
        inside.set()
        done.wait()
        assert not model(x).any()
    thread.join()
    assert torch.equal(results["other"], plain)


def test_worker_threads_of_a_recording_are_seen(model):
    """As DataParallel does it: replicas, each run by a thread of its own."""
    replicas = [model._replicate_for_data_parallel() for _ in range(3)]
    for replica in replicas:
        for name, module in model.named_children():
            child = module._replicate_for_data_parallel()
            child._parameters = dict(module._parameters)
            replica._modules[name] = child
    with untouched(model), hookline.record(model, inputs=True) as rec:
        # Replicas share the hook dictionaries of the model, as those of DataParallel do.
        for replica in replicas:
            vars(replica).update({k: v for k, v in vars(model).items() if k.endswith("_hooks")})
        threads = [
            threading.Thread(target=replica, args=(torch.full((1, 3), float(n)),))
            for n, replica in enumerate(replicas)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(call.input[0][0, 0].item() for call in rec["a"].calls) == [0.0, 1.0, 2.0]


def test_asyncio_tasks_do_not_see_each_other(model):
    async def task(n):
        with hookline.record(model, inputs=True) as rec:
            await asyncio.sleep(0)
            model(torch.full((1, 3), float(n)))
            await asyncio.sleep(0)
        return [call.input[0][0, 0].item() for call in rec["a"].calls]

    async def main():
        return await asyncio.gather(*(task(n) for n in range(3)))

    assert asyncio.run(main()) == [[0.0], [1.0], [2.0]]


# installed, import


def test_installed_tells_whose_hook_sits_where(model, x):
    with hookline.record(model, "a", grads=True), hookline.edit(model, {"b:input": lambda args: args}):
        hookline.register_backward_hook(model, lambda m, gi, go: None, "c")
        labels = hookline.installed(model)
    assert {(label.owner, label.site) for label in labels} == {
        ("record", "a"),
        ("edit", "b"),
        ("register_backward_hook", "c"),
    }
    assert all(label.placed_at.startswith("test_contract.py:") for label in labels)


def test_the_value_of_a_closed_recording_needs_no_model(x):
    import gc
    import weakref

    model = Chain()
    with hookline.record(model) as rec:
        model(x)
    ref = weakref.ref(model.a)
    del model
    gc.collect()
    assert ref() is None and rec["a"].output.shape == (4, 3)


def test_a_long_chain_of_identities_keeps_every_gradient(x):
    deep = nn.Sequential(*[nn.Identity() for _ in range(300)])
    with hookline.record(deep, grads=True) as rec:
        for _ in range(3):
            deep(x.clone().requires_grad_()).sum().backward()
    assert len(rec["299"].calls) == 3
    assert torch.equal(rec["0"].grad_output, torch.ones(4, 3))
