"""What surprises in JAX and NNX, as it is in the versions tested: a release that changes it is noticed here."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.extend.core import get_opaque_trace_state

import hookline
from hookline.backends.nnx import compat

from .models import Chain, Mlp, Times

X = jnp.arange(4.0) + 1


def test_python_runs_once_a_trace():
    runs = []
    function = jax.jit(lambda x: (runs.append(type(x)), x * 2)[1])
    function(X)
    function(X)
    assert len(runs) == 1
    assert issubclass(runs[0], jax.core.Tracer)


def test_the_class_of_a_module_is_part_of_what_is_compiled():
    model, traces = Times(2), []
    run = nnx.jit(lambda model, x: (traces.append(1), model(x))[1])
    run(model, X)
    run(model, X)
    object.__setattr__(model, "__class__", type("Times", (Times,), {}))
    run(model, X)
    assert len(traces) == 2


def test_code_that_holds_the_model_itself_keeps_what_was_compiled():
    model = Chain()
    run = jax.jit(lambda x: model(x))
    run(X)
    with hookline.record(model) as rec:
        run(X)
    assert "jax.clear_caches()" in rec.audit()[""].why  # stale, and said so
    with hookline.record(model) as rec:
        jax.clear_caches()
        run(X)
    assert rec.names == ["first", "block.inner", "block", "last", ""]


def test_such_code_is_compiled_anew_when_a_hook_that_it_has_goes():
    model = Chain()
    run = jax.jit(lambda x: model(x))
    with hookline.edit(model, {"first": lambda output: output * 10}):
        np.testing.assert_array_equal(run(X), X * 300)
    np.testing.assert_array_equal(run(X), X * 30)


def test_a_cached_partial_keeps_what_was_compiled():
    model = Chain()
    run = nnx.cached_partial(nnx.jit(lambda model, x: model(x)), model)
    run(X)
    with hookline.record(model) as rec:
        run(X)
    assert "cached_partial" in rec.audit()[""].why


def test_a_graph_that_was_split_before_has_no_taps():
    model = Chain()
    graph, state = nnx.split(model)
    with hookline.record(model) as rec:
        nnx.merge(graph, state)(X)
    assert "split" in rec.audit()[""].why


def test_callbacks_under_vmap_scan_and_remat():
    log = []

    def noted(x):
        jax.debug.callback(lambda value: log.append(np.shape(value)), x)
        return x * 2

    def shapes(function, x):
        log.clear()
        jax.block_until_ready(function(x))
        jax.effects_barrier()
        return list(log)

    assert shapes(jax.jit(jax.vmap(noted)), X) == [()] * 4  # one by one; hookline sends a batch as one
    assert shapes(jax.jit(lambda x: jax.lax.scan(lambda c, _: (noted(c), None), x, length=3)[0]), X) == [(4,)] * 3
    assert shapes(jax.jit(jax.grad(jax.checkpoint(lambda x: noted(x).sum()))), X) == [(4,)] * 2


def test_an_error_in_a_callback_loses_its_type():
    def fails(value):
        raise KeyError("mine")

    @jax.jit
    def function(x):
        jax.debug.callback(fails, x)
        return x

    def run():
        function(X).block_until_ready()
        jax.effects_barrier()

    with pytest.raises(jax.errors.JaxRuntimeError, match="KeyError"):
        run()


def test_a_host_callback_with_a_result_has_no_derivative():
    def doubled(x):
        return jax.experimental.io_callback(lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    with pytest.raises(ValueError, match="JVP"):
        jax.grad(lambda x: doubled(x).sum())(X)


def test_iter_modules_lists_parts_before_their_owners():
    assert [".".join(map(str, path)) for path, _ in nnx.iter_modules(Chain())] == [
        "block.inner",
        "block",
        "first",
        "last",
        "",
    ]


def test_a_kernel_is_transposed_and_images_have_channels_last():
    assert nnx.Linear(4, 3, rngs=nnx.Rngs(0)).kernel.shape == (4, 3)
    conv = nnx.Conv(1, 2, kernel_size=(3, 3), rngs=nnx.Rngs(0))
    assert conv.kernel.shape == (3, 3, 1, 2)
    assert conv(jnp.ones((5, 8, 8, 1))).shape == (5, 8, 8, 2)


def test_copies_keep_the_class_of_their_parts():
    kind = type("Times", (Times,), {})
    model = Chain()
    object.__setattr__(model.first, "__class__", kind)
    assert type(nnx.clone(model).first) is kind
    assert type(copy.deepcopy(model).first) is kind
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(model)


def test_64_bit_integers_are_lost_on_the_way_through_a_program():
    """Why a row of statistics travels as 32-bit words."""
    seen = []

    @jax.jit
    def function(x):
        with jax.enable_x64(True):
            jax.debug.callback(lambda value: seen.append(value.dtype), jnp.int64(1) << 40)
        return x

    function(X)
    jax.effects_barrier()
    assert seen == [np.dtype("int32")]


def test_doubles_are_exact_in_a_program_without_64_bit_mode():
    @jax.jit
    def function(x):
        with jax.enable_x64(True):
            return jax.lax.bitcast_convert_type(x.astype(jnp.float64).sum() * 1e-200, jnp.uint32)

    found = np.asarray(function(X)).view(np.float64)[0]
    assert found == 10.0 * 1e-200


# Names that JAX and NNX may change


def test_compat_tells_whether_code_is_traced():
    told = []
    for transform in (jax.jit, jax.grad, jax.vmap, lambda f: lambda x: jax.eval_shape(f, x)):

        def function(x):  # a new one each time: eval_shape knows what jit has traced
            told.append(compat.tracing())
            return x.sum()

        transform(function)(X)
    assert told == [True] * 4
    assert not compat.tracing()
    assert get_opaque_trace_state(convention="nnx") == get_opaque_trace_state(convention="nnx")


def test_compat_finds_one_outermost_trace_for_a_program():
    found = []

    def inner(x):
        found.append(compat.outermost_trace())
        return x.sum()

    jax.jit(lambda x: (found.append(compat.outermost_trace()), jax.vmap(jax.grad(inner))(x))[1])(X[None])
    assert found[0] is found[1]
    jax.jit(inner)(X)
    assert found[2] is not found[0]


def test_compat_reads_and_swaps_a_variable():
    layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    before = layer.kernel.get_raw_value()
    restore = compat.swapped_value(layer.kernel, before * 0)
    assert not layer.kernel[...].any()
    restore()
    assert layer.kernel.get_raw_value() is before
    assert [name for name, _ in compat.attributes(layer)][:2] == ["kernel", "bias"]


def test_compat_knows_missing_gradients_and_opaque_arrays():
    zeros = []

    @jax.custom_vjp
    def identity(x, y):
        return x, y

    def backward(_, grads):
        zeros.append([compat.is_symbolic_zero(grad) for grad in grads])
        return tuple(jnp.zeros_like(X) for _ in grads)

    identity.defvjp(lambda x, y: ((x.value, y.value), None), backward, symbolic_zeros=True)
    jax.grad(lambda x: identity(x, x)[0].sum())(X)
    assert zeros == [[False, True]]
    assert compat.is_opaque(jax.random.key(0))
    assert not compat.is_opaque(X)
    assert Mlp().fc1.kernel.get_raw_value().shape == (4, 3)


def test_compat_takes_programs_apart():
    closed = jax.make_jaxpr(jax.jit(lambda x: jax.nn.relu(x) * 2))(X)
    (outer,) = closed.jaxpr.eqns
    inner = compat.inner_jaxpr(outer)
    product = inner.jaxpr.eqns[-1]
    assert product.primitive.name == "mul"
    assert compat.inner_jaxpr(product) is None
    (found,) = compat.bound(product, [X, np.float32(2)])
    np.testing.assert_array_equal(found, X * 2)
    assert compat.source_line(product).startswith("test_nnx_canaries.py:")
