"""watch on NNX: statistics from compiled train steps are numpy's, and steps are those of nnx.Optimizer."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import hookline
from hookline import lines
from hookline.backends import arrays
from hookline.backends.nnx import statistics
from hookline.backends.nnx.events import MANY
from hookline.testing.conformance.descriptions import same_statistics

from .models import Mlp, Times

X = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)


def loss(model, x):
    return (model(x) ** 2).mean()


def trainer(model, rate=0.1):
    optimizer = nnx.Optimizer(model, optax.sgd(rate), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, x):
        value, grads = nnx.value_and_grad(loss)(model, x)
        optimizer.update(model, grads)
        return value

    return lambda x: step(model, optimizer, jnp.asarray(x))


def special(dtype):
    rng = np.random.default_rng(3)
    values = (rng.normal(size=400) * np.exp(rng.normal(size=400) * 8)).astype(np.float32)
    values[:8] = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-41, 0.05, -0.05]
    with np.errstate(over="ignore"):
        return jnp.asarray(values).astype(dtype).reshape(20, 20)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "bool"])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_reduction_in_jax_is_numpys(dtype, compiled):
    values = special("float32")
    values = jnp.nan_to_num(values, posinf=9, neginf=-9).clip(-1e6, 1e6) if dtype in ("int32", "bool") else values
    values = values.astype(dtype)
    reduce = jax.jit(statistics.packed, static_argnums=(1, 2)) if compiled else statistics.packed
    found = statistics.unpacked(np.asarray(reduce(values, True, None)))
    with np.errstate(invalid="ignore"):
        wanted = arrays.words(arrays.reducible(np.asarray(values)), True)
    np.testing.assert_allclose(found[:4].view(np.float64), wanted[:4].view(np.float64), rtol=1e-12)
    np.testing.assert_array_equal(found[4:], wanted[4:])


def test_channels_and_functions_are_reduced_in_jax():
    values = special("float32")
    rows = statistics.unpacked(np.asarray(jax.jit(statistics.packed, static_argnums=(1, 2))(values, False, 1)))
    with np.errstate(invalid="ignore"):
        wanted = arrays.words(np.asarray(values), False, 1)
    np.testing.assert_allclose(
        rows[:, :4].copy().view(np.float64), wanted[:, :4].copy().view(np.float64), rtol=1e-12
    )
    np.testing.assert_array_equal(rows[:, 4:], wanted[:, 4:])
    numbers = statistics.unpacked(np.asarray(statistics.scalars([lambda a, xp: xp.abs(a[0, 10:]).max()], values)))
    assert numbers.view(np.float64)[0] == np.abs(np.asarray(values)[0, 10:]).max()


@pytest.mark.parametrize("way", ["avx2", "torch"])
def test_a_compiled_train_step_is_watched(way):
    """By the C kernel in callbacks, and in the program itself, as on devices."""
    model, twin = Mlp(), Mlp()
    train, plain = trainer(model), trainer(twin)
    with (
        lines.kernel.using(way),
        hookline.watch(model, inputs=True, every=2, stats=["p99"], channels=1, progress=False) as w,
    ):
        losses = [float(train(X)) for _ in range(4)]
    assert losses == [float(plain(X)) for _ in range(4)]
    rows = w.rows()
    assert sorted({row["step"] for row in rows}) == [0, 2]
    kinds = {"input", "output", "grad_input", "grad_output", "param", "param_grad", "update"}
    assert {row["kind"] for row in rows} == kinds

    reference = Mlp()
    with hookline.record(reference, inputs=True, grads=True) as rec:
        nnx.grad(loss)(reference, jnp.asarray(X))
    for site in ("fc1", "act", "fc2", ""):
        (row,) = w.rows(site, kind="output", step=0)
        same_statistics(row, np.asarray(rec[site].output))
        assert row["mode"] == "train" and row["call"] == 0
        assert row["hist"].sum() == row["count"]
        assert row["p99"] > row["mean"]
        assert len(row["channels"]["mean"]) == rec[site].output.shape[1]
        (row,) = w.rows(site, kind="grad_output", step=0)
        same_statistics(row, np.asarray(rec[site].grad_output))
    (kernel,) = w.rows("fc1.kernel", kind="param", step=0)
    same_statistics(kernel, np.asarray(reference.fc1.kernel[...]))
    (grad,) = w.rows("fc1.kernel", kind="param_grad", step=0)
    same_statistics(grad, np.asarray(rec["fc1"].param_grads["kernel"]))
    (update,) = w.rows("fc1.kernel", kind="update", step=0)
    np.testing.assert_allclose(update["l2"], 0.1 * grad["l2"], rtol=1e-4)
    (later,) = w.rows("fc1.kernel", kind="param", step=2)
    assert later["l2"] != kernel["l2"]


def test_statistics_are_rows_and_no_tensors_leave_the_program():
    model = Times(2)
    seen = []

    def bytes_sent(model, x):
        jaxpr = jax.make_jaxpr(lambda x: model(x))(x)
        return [
            variable.aval.shape
            for text in [jaxpr.jaxpr]
            for equation in _all(text)
            if equation.primitive.name == "debug_callback"
            for variable in equation.invars
        ]

    with lines.kernel.using("torch"), hookline.watch(model, grads=False, progress=False):
        seen += bytes_sent(model, jnp.ones((300, 300)))
    assert seen
    assert all(np.prod(shape) < 2000 for shape in seen)


def _all(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _all(inner)


def test_watching_every_other_step_compiles_twice_and_no_more():
    model, traces = Mlp(), []
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)

    @nnx.jit
    def forward(model, x):
        traces.append(1)
        return nnx.grad(loss)(model, x)

    with hookline.watch(model, every=2, progress=False) as w:
        for _ in range(6):
            optimizer.update(model, forward(model, jnp.asarray(X)))  # the update runs outside of jit
    assert len(traces) == 2
    assert sorted({row["step"] for row in w.rows()}) == [0, 2, 4]


def test_rows_can_be_read_while_training_goes_on():
    model = Mlp()
    train = trainer(model)
    with hookline.watch(model, progress=False) as w:
        for done in range(1, 4):
            train(X)
            assert sorted({row["step"] for row in w.rows(kind="output")}) == list(range(done))


def test_a_long_compiled_loop_does_not_pile_up_events():
    model = Times(2)
    run = nnx.jit(lambda model, x: jax.lax.scan(lambda c, _: (model(c) * 0.5, None), x, length=MANY)[0])
    with hookline.watch(model, grads=False, histogram=False, progress=False, history=10 * MANY) as w:
        for _ in range(2):
            run(model, jnp.ones(3))
        rows = w.rows("", kind="output")
    assert len(rows) == 2 * MANY
    assert [row["step"] for row in rows] == list(range(2 * MANY))


def test_calls_without_an_optimizer_are_steps():
    model, run = Mlp(), nnx.jit(lambda model, x: model(x))
    with hookline.watch(model, progress=False) as w:
        for _ in range(3):
            run(model, jnp.asarray(X))
    assert [row["step"] for row in w.rows("fc1", kind="output")] == [0, 1, 2]


def test_steps_of_plain_optax_are_told_by_hand():
    model = Mlp()
    graph, params = nnx.split(model)
    tx = optax.sgd(0.1)
    state = tx.init(params)

    @jax.jit
    def step(params, state, x):
        grads = jax.grad(lambda params: loss(nnx.merge(graph, params), x))(params)
        updates, state = tx.update(grads, state)
        return optax.apply_updates(params, updates), state

    with hookline.watch(model, progress=False) as w:
        graph, params = nnx.split(model)  # a graph that was split before has no taps
        for number in range(1, 3):
            params, state = step(params, state, jnp.asarray(X))
            w.step(number)
    assert sorted({row["step"] for row in w.rows(kind="grad_output")}) == [0, 1]


def test_half_precision_tells_what_a_step_lost():
    class Half(nnx.Module):
        def __init__(self):
            self.weight = nnx.Param(jnp.full((4,), 256.0, jnp.bfloat16))

        def __call__(self, x):
            return (self.weight[...] * x.astype(jnp.bfloat16)).astype(jnp.float32)

    model = Half()
    train = trainer(model, rate=1e-6)
    with hookline.watch(model, progress=False) as w:
        train(X)
    (update,) = w.rows("weight", kind="update")
    assert update["lost"] == 1.0


def test_modes_are_told():
    model = nnx.Sequential(nnx.Linear(4, 3, rngs=nnx.Rngs(0)), nnx.Dropout(0.5, rngs=nnx.Rngs(1)))
    run = nnx.jit(lambda model, x: model(x))
    with hookline.watch(model, "layers.0", grads=False, progress=False) as w:
        run(model, jnp.asarray(X))
        model.eval()
        run(model, jnp.asarray(X))
        model.train()
    assert [row["mode"] for row in w.rows("layers.0", kind="output")] == ["train", "eval"]


def test_nothing_is_left_of_a_watch():
    model, before = Mlp(), nnx.Optimizer.update
    with hookline.watch(model, progress=False):
        assert nnx.Optimizer.update is not before
        trainer(model)(X)
    assert nnx.Optimizer.update is before
    assert [type(module) for module in (model, model.fc1, model.act)] == [Mlp, nnx.Linear, type(Mlp().act)]
    assert hookline.installed(model) == []


def test_lines_reduce_arrays_of_jax():
    values = special("float32")
    for way in ("avx2", "torch"):
        with lines.kernel.using(way):
            (found,) = lines.collect([lines.reduce(values)])
            (channels,) = lines.collect_channels([lines.reduce_channels(values, dim=1)])
        wanted = lines.Stats.of(np.asarray(values))
        assert (found.count, found.nan, found.inf, found.zeros) == (400, 1, 2, 2)
        assert found.mean == pytest.approx(wanted.mean, rel=1e-12)
        assert (found.hist == wanted.hist).all()
        assert len(channels) == 20
