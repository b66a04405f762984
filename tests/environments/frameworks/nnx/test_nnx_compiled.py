"""Hooks in code that JAX transforms: jit, grad, vmap, scan, remat, against values computed without hookline."""

import gc
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import hookline

from .models import Chain, Mlp, Relu, Shared, Times

X = jnp.arange(6.0).reshape(2, 3) / 4 + 1


class Weighted(nnx.Module):
    def __init__(self, factor):
        self.factor = nnx.Param(jnp.float32(factor))

    def __call__(self, x):
        return x * self.factor


class Loop(nnx.Module):
    """A part that a scan calls again and again."""

    def __init__(self, times=3):
        self.part = Weighted(2.0)
        self.times = times

    def __call__(self, x):
        return jax.lax.scan(lambda carry, _: (self.part(carry), None), x, length=self.times)[0]


@nnx.jit
def run(model, x):
    return model(x)


def total(model, x):
    return (model(x) ** 2).sum()


grad = nnx.jit(nnx.grad(total, argnums=(0, 1)))


def equal(found, wanted):
    np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def test_hooks_work_where_jit_is_switched_off():
    model = Chain()
    with jax.disable_jit(), hookline.record(model) as rec:
        equal(run(model, X), X * 30)
    assert rec.names == ["first", "block.inner", "block", "last", ""]


def test_branches_and_loops():
    class Choice(nnx.Module):
        def __init__(self):
            self.yes, self.no, self.again = Times(2), Times(3), Times(0.5)

        def __call__(self, x):
            x = jax.lax.cond(x.sum() > 0, lambda x: self.yes(x), lambda x: self.no(x), x)
            return jax.lax.while_loop(lambda x: x.sum() > 1, lambda x: self.again(x), x)

    model = Choice()
    with hookline.record(model) as rec:
        run(model, jnp.float32(4))
    assert [len(rec[name].calls) for name in ("yes", "no", "again")] == [1, 0, 3]


def test_a_split_model_is_hooked_in_jax_jit():
    model = Chain()
    compiled = jax.jit(lambda graph, state, x: nnx.merge(graph, state)(x), static_argnums=0)
    equal(compiled(*nnx.split(model), X), X * 30)
    with hookline.record(model) as rec:
        compiled(*nnx.split(model), X)
    assert rec.names == ["first", "block.inner", "block", "last", ""]
    with hookline.edit(model, {"first": lambda output: output * 10}):
        equal(compiled(*nnx.split(model), X), X * 300)
    equal(compiled(*nnx.split(model), X), X * 30)


def test_a_second_recording_compiles_nothing():
    model, traces = Mlp(), []

    @nnx.jit
    def counted(model, x):
        traces.append(1)
        return model(x)

    x = jnp.ones((5, 4))
    for _ in range(3):
        with hookline.record(model, inputs=True) as rec:
            counted(model, x)
        counted(model, x)
        assert len(rec["fc1"].calls) == 1
    assert len(traces) == 2  # with taps and without


def test_values_can_be_read_while_the_block_is_open():
    model = Chain()
    with hookline.record(model) as rec:
        run(model, X)
        equal(rec["first"].output, X * 2)
        run(model, X * 2)
        assert len(rec["first"].calls) == 2


def test_a_block_sees_what_runs_in_it_and_nothing_else():
    model = Chain()
    with hookline.record(model) as first:
        run(model, X)
    with hookline.record(model) as second:
        run(model, X * 2)
    run(model, X * 3)
    equal(first["first"].output, X * 2)
    equal(second["first"].output, X * 4)
    assert [len(first["first"].calls), len(second["first"].calls)] == [1, 1]


def test_gradients_in_a_compiled_train_step():
    model = Mlp()
    x = jnp.ones((5, 4))
    wanted, to_x = grad(model, x)
    with hookline.record(model, inputs=True, grads=True) as rec:
        found, again = grad(model, x)
    equal(again, to_x)
    equal(found["fc1"]["kernel"][...], wanted["fc1"]["kernel"][...])
    equal(rec["fc1"].param_grads["kernel"], wanted["fc1"]["kernel"][...])
    equal(rec["fc2"].param_grads["bias"], wanted["fc2"]["bias"][...])
    equal(rec[""].grad_input[0], to_x)
    np.testing.assert_allclose(rec[""].grad_output, 2 * rec[""].output, rtol=1e-6)


def test_an_input_without_gradient_has_none():
    model = Mlp()
    with hookline.record(model, grads=True) as rec:
        nnx.jit(nnx.grad(total))(model, jnp.ones((5, 4)))
    assert rec["fc1"].grad_input == (None,)
    assert rec["fc2"].grad_input[0].shape == (5, 3)
    assert rec["fc1"].grad_output.shape == (5, 3)


def test_a_backward_hook_runs_where_no_input_has_a_gradient():
    model, seen = Mlp(), []

    def note(module, grad_input, grad_output):
        seen.append((module, grad_input, np.asarray(grad_output[0]).shape))

    with hookline.register_backward_hook(model, note, "fc1"):
        nnx.jit(nnx.grad(total))(model, jnp.ones((5, 4)))
        jax.effects_barrier()
    assert seen == [(model.fc1, (None,), (5, 3))]


def test_gradient_of_a_compiled_function():
    model = Chain()
    inner = nnx.jit(lambda model, x: model(x))
    with hookline.record(model, "block", grads=True) as rec:
        found = jax.grad(lambda x: inner(model, x).sum())(X)
    equal(found, jnp.full_like(X, 30))
    equal(rec["block"].grad_output, jnp.full_like(X, 5))
    equal(rec["block"].grad_input[0], jnp.full_like(X, 15))


@pytest.mark.parametrize("compiled", [False, True])
def test_under_vmap_each_example_is_a_call(compiled):
    model = Mlp()
    each = nnx.vmap(lambda model, x: nnx.grad(total, argnums=1)(model, x), in_axes=(None, 0))
    x = jnp.arange(12.0).reshape(3, 4) / 8
    function = nnx.jit(each) if compiled else each
    with hookline.record(model, grads=True) as rec:
        found = function(model, x)
    assert [len(rec[name].calls) for name in rec.names] == [3, 3, 3, 3]
    for number, example in enumerate(x):
        equal(rec["fc1"].calls[number].output, model.fc1(example))
        np.testing.assert_allclose(rec[""].calls[number].grad_input[0], found[number], rtol=1e-6)


def test_in_a_scan_each_step_is_a_call_with_its_gradient():
    model = Loop()
    with hookline.record(model, inputs=True, grads=True) as rec:
        _, found = grad(model, X)
    assert rec.names == ["part", ""]
    calls = rec["part"].calls
    assert len(calls) == 3
    for number, call in enumerate(calls):
        equal(call.input[0], X * 2**number)
        equal(call.output, X * 2 ** (number + 1))
        equal(call.grad_input[0], 2 * X * 8 * 2 ** (3 - number))
        equal(call.grad_output, 2 * X * 8 * 2 ** (2 - number))
    equal(rec[""].grad_input[0], found)


def test_parameter_gradients_are_summed_over_the_calls_of_a_backward():
    model = Loop()
    wanted, _ = grad(model, X)
    with hookline.record(model, grads=True) as rec:
        grad(model, X * 3)
        grad(model, X)
    np.testing.assert_allclose(rec["part"].param_grads["factor"], wanted["part"]["factor"][...], rtol=1e-6)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("policy", [None, jax.checkpoint_policies.everything_saveable])
def test_a_recomputed_forward_is_not_a_second_call(compiled, policy):
    class Saving(nnx.Module):
        def __init__(self):
            self.part = Weighted(3.0)

        def __call__(self, x):
            return nnx.remat(lambda part, x: part(part(x)), policy=policy)(self.part, x)

    model = Saving()
    function = nnx.jit(nnx.grad(total, argnums=1)) if compiled else nnx.grad(total, argnums=1)
    plain = function(model, X)
    with hookline.record(model, grads=True) as rec:
        equal(function(model, X), plain)
    assert [len(rec["part"].calls), len(rec[""].calls)] == [2, 1]
    equal(rec["part"].calls[0].output, X * 3)
    equal(rec["part"].calls[1].output, X * 9)
    equal(rec["part"].calls[1].grad_output, 18 * X)
    equal(rec["part"].calls[0].grad_output, 54 * X)
    with hookline.record(model) as rec:
        function(model, X)
        function(model, X)
    assert len(rec["part"].calls) == 4


def test_layers_in_an_nnx_scan_are_calls_of_one_site():
    class Stack(nnx.Module):
        def __init__(self):
            @nnx.vmap(in_axes=0, out_axes=0)
            def layers(factor):
                return Weighted(factor)

            self.layers = layers(jnp.asarray([2.0, 3.0, 5.0]))

        def __call__(self, x):
            @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
            def through(layer, x):
                return layer(x)

            return through(self.layers, x)

    model = Stack()
    with hookline.record(model, "layers") as rec:
        equal(run(model, X), X * 30)
    assert [float(call.output[0, 0] / X[0, 0]) for call in rec["layers"].calls] == [2.0, 6.0, 30.0]


def test_second_derivatives_pass():
    model = Chain()
    function = jax.hessian(lambda x: (model(x) ** 2).sum())
    wanted = function(X[0])
    with hookline.record(model) as rec:
        equal(function(X[0]), wanted)
    assert len(rec["first"].calls) == 1


def test_forward_mode_passes_where_no_gradients_are_recorded():
    model = Chain()
    with hookline.record(model) as rec:
        _, tangent = jax.jvp(lambda x: model(x), (X,), (jnp.ones_like(X),))
    equal(tangent, jnp.full_like(X, 30))
    equal(rec["block"].output, X * 6)


def test_a_hook_that_looks_gets_values_at_every_run():
    model, seen = Chain(), []

    def note(module, args, output):
        seen.append((module is model.block, float(args[0].sum()), float(output.sum())))

    with hookline.register_forward_hook(model, note, "block"):
        for factor in (1, 2):
            run(model, X * factor)
        jax.effects_barrier()
    run(model, X)
    jax.effects_barrier()
    one = float((X * 2).sum()), float((X * 6).sum())
    assert seen == [(True, *one), (True, 2 * one[0], 2 * one[1])]


def test_a_hook_that_is_annotated_to_return_none_never_sees_a_tracer():
    model, kinds = Chain(), []

    def unreadable(kind) -> None:
        return kinds.append(kind) or None

    class Note:
        def __call__(self, module, args, output) -> None:
            return unreadable(type(output))

    with hookline.register_forward_hook(model, Note(), "block"):
        run(model, X)
        jax.effects_barrier()
    assert len(kinds) == 1 and not issubclass(kinds[0], jax.core.Tracer)


def test_a_hook_that_returns_something_is_part_of_the_program():
    model, traces = Chain(), []

    def tenfold(module, args, output):
        traces.append(type(module).__name__)
        return output * 10

    handle = hookline.register_forward_hook(model, tenfold, "block")
    equal(run(model, X), X * 300)
    equal(run(model, X), X * 300)
    assert traces == ["Block"]
    handle.remove()
    equal(run(model, X), X * 30)


def test_an_edit_can_use_the_traced_weights():
    model = Loop(1)

    def without(module, args, output):
        return output / module.factor

    with hookline.register_forward_hook(model, without, "part"):
        equal(run(model, X), X)
        model.part.factor[...] = jnp.float32(7)
        equal(run(model, X), X)  # the same program: the weight is no constant of it


def test_a_hook_may_remove_itself_while_the_program_runs():
    model, seen = Chain(), []

    def once(module, args, output):
        seen.append("once")
        handle.remove()

    handle = hookline.register_forward_hook(model, once, "first")
    run(model, X)
    jax.effects_barrier()
    run(model, X)
    jax.effects_barrier()
    assert seen == ["once"]
    assert hookline.installed(model) == []


def test_an_error_of_a_hook_in_compiled_code_comes_with_its_site_and_type():
    model = Chain()

    def fails(module, args, output):
        raise KeyError("mine")

    with (
        pytest.raises(hookline.HookError, match=r"at site 'block'.*KeyError") as caught,
        hookline.register_forward_hook(model, fails, "block"),
    ):
        run(model, X).block_until_ready()
    assert isinstance(caught.value.__cause__, KeyError)
    equal(run(model, X), X * 30)
    assert hookline.installed(model) == []


def test_an_error_of_reduce_is_told_and_ends_no_training():
    model = Chain()

    def fails(tensor):
        raise KeyError("mine")

    with (
        pytest.warns(UserWarning, match="reduce .*raised KeyError"),
        hookline.record(model, reduce=fails) as rec,
    ):
        equal(run(model, X), X * 30)
    assert all("reduce function raised" in (entry.why or "") for entry in rec.audit())
    assert type(model) is Chain
    equal(run(model, X), X * 30)


def test_stopping_a_compiled_forward_is_refused():
    model = Chain()
    with (
        pytest.raises(hookline.Unsupported, match="a compiled program runs to its end"),
        hookline.record(model, "block", stop=True),
    ):
        run(model, X)
    equal(run(model, X), X * 30)


def test_a_block_inside_of_traced_code_is_refused():
    model = Chain()

    @nnx.jit
    def inside(model, x):
        with hookline.record(model):
            return model(x)

    with pytest.raises(hookline.Unsupported, match="open the block outside"):
        inside(model, X)


def test_an_edit_inside_of_traced_code_works():
    model = Chain()

    @nnx.jit
    def inside(model, x):
        with hookline.edit(model, {"block": lambda output: output * 10}):
            return model(x)

    equal(inside(model, X), X * 300)
    equal(run(model, X), X * 30)


def test_a_skipped_module_and_an_edited_weight():
    model = Loop(1)
    with hookline.edit(model, {"part": hookline.skip}):
        equal(run(model, X), X)
    with hookline.edit(model, {"part.factor": jnp.float32(10)}):
        equal(run(model, X), X * 10)
    equal(run(model, X), X * 2)


def test_gradients_are_edited_in_compiled_code():
    model = Chain()
    compiled = nnx.jit(nnx.grad(lambda model, x: model(x).sum(), argnums=1))
    with hookline.edit(model, {"block:grad_output": lambda grad: grad * 10}):
        equal(compiled(model, X), jnp.full_like(X, 300))
    with hookline.edit(model, {"first:grad_input": lambda grads: (grads[0] * 0,)}):
        equal(compiled(model, X), jnp.zeros_like(X))
    equal(compiled(model, X), jnp.full_like(X, 30))


def test_a_recording_is_freed_though_its_program_lives_on():
    model = Chain()
    with hookline.record(model, grads=True) as rec:
        grad_of = nnx.jit(nnx.grad(lambda model, x: model(x).sum(), argnums=1))
        grad_of(model, X)
    gone = weakref.ref(rec)
    del rec
    gc.collect()
    assert gone() is None
    equal(grad_of(model, X), jnp.full_like(X, 30))


def test_a_model_is_freed_though_its_program_lives_on():
    model = Chain()
    with hookline.record(model):
        run(model, X)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_shared_modules_and_random_numbers():
    class Noisy(nnx.Module):
        def __init__(self):
            self.drop = nnx.Dropout(0.5, rngs=nnx.Rngs(0))
            self.norm = nnx.BatchNorm(3, rngs=nnx.Rngs(0))
            self.act = Relu()

        def __call__(self, x):
            return self.act(self.norm(self.drop(x)))

    plain, watched = Noisy(), Noisy()
    for _ in range(2):
        wanted = run(plain, X)
        with hookline.record(watched, inputs=True) as rec:
            equal(run(watched, X), wanted)
        equal(rec[""].output, wanted)
    equal(watched.norm.mean[...], plain.norm.mean[...])
    equal(watched.drop.rngs.count[...], plain.drop.rngs.count[...])
    model = Shared()
    with hookline.record(model) as rec:
        run(model, X)
    assert [len(rec["b"].calls), rec["a"].aliases] == [2, ("b",)]


def test_random_keys_as_arguments_are_recorded():
    class Sampling(nnx.Module):
        def __init__(self):
            self.part = Drawn()

        def __call__(self, x, key):
            return self.part(x, key=key)

    class Drawn(nnx.Module):
        def __call__(self, x, key):
            return x + jax.random.uniform(key, x.shape)

    model, key = Sampling(), jax.random.key(3)
    with hookline.record(model, inputs=True, grads=True) as rec:
        nnx.jit(nnx.grad(lambda model, x, key: model(x, key).sum(), argnums=1))(model, X, key)
    equal(rec["part"].kwargs["key"], jax.random.key_data(key))
    assert rec["part"].grad_kwargs == {"key": None}


def test_compiled_for_other_shapes_and_types():
    model = Times(2)
    for x in (X, X[:1], X.astype(jnp.bfloat16), jnp.arange(3), jnp.ones((2, 2)) + 1j):
        with hookline.record(model, grads=True) as rec:
            equal(run(model, x), x * 2)
        equal(rec[""].output, x * 2)
        assert rec[""].output.dtype == x.dtype


FORWARD_MODES = {
    "jvp": lambda f, x: jax.jvp(f, (x,), (x,)),
    "jacfwd": lambda f, x: jax.jacfwd(f)(x),
    "jvp in jit": lambda f, x: jax.jit(lambda x: jax.jvp(f, (x,), (x,)))(x),
    "jvp of vmap": lambda f, x: jax.jvp(jax.vmap(f), (x,), (x,)),
    "grad of jvp": lambda f, x: jax.grad(lambda x: jax.jvp(f, (x,), (x,))[1].sum())(x),
}
HEARING = {
    "record": lambda model: hookline.record(model, grads=True),
    "watch": lambda model: hookline.watch(model, progress=False),
    "backward hook": lambda model: hookline.register_backward_hook(model, lambda m, i, o: None, "block"),
    "backward pre-hook": lambda model: hookline.register_backward_pre_hook(model, lambda m, o: None, "block"),
    "edit": lambda model: hookline.edit(model, {"block:grad_input": lambda grads: grads}),
    "op hook": lambda model: hookline.register_op_hook(model, lambda *told: None),
}


@pytest.mark.parametrize("mode", FORWARD_MODES)
@pytest.mark.parametrize("hearing", HEARING)
def test_forward_mode_is_refused_where_gradients_are_heard(hearing, mode):
    model = Chain()
    wanted = FORWARD_MODES[mode](lambda x: model(x) ** 2, X)
    with pytest.raises(hookline.Unsupported, match="inside of jvp"), HEARING[hearing](model):
        FORWARD_MODES[mode](lambda x: model(x) ** 2, X)
    assert hookline.installed(model) == []
    with hookline.record(model, inputs=True) as rec:  # values alone are fine
        found = FORWARD_MODES[mode](lambda x: model(x) ** 2, X)
    jax.tree.map(equal, found, wanted)
    assert rec.audit()["block"].fired


def test_forward_mode_around_reverse_mode_hears_gradients():
    model = Chain()
    with hookline.record(model, "block", grads=True) as rec:
        hessian = jax.hessian(lambda x: (model(x) ** 2).sum())(X)
    equal(hessian.reshape(6, 6), jnp.eye(6) * 1800)
    assert rec["block"].calls
    with hookline.record(model, "block", grads=True):  # what is differentiated here does not go through the model
        jax.jvp(lambda y: y * model(X).sum(), (1.0,), (1.0,))


def test_calls_of_compiled_code_are_told_to_the_blocks_of_all_threads():
    # JAX does not tell which thread runs a program: docs/frameworks/nnx.md says so.
    model = Chain()
    run(model, X)
    with hookline.record(model, "block") as rec:
        run(model, X)
        other = threading.Thread(target=lambda: run(model, X * 2).block_until_ready())
        other.start()
        other.join()
    assert sorted(float(call.output.sum()) for call in rec["block"].calls) == [
        float((X * 6).sum()),
        float((X * 12).sum()),
    ]
