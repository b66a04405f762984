"""Op hooks on NNX: every primitive of a forward and of its backward, by module, in jit and outside of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import hookline

from .models import Chain, Mlp, Shared

X = jnp.arange(20.0).reshape(5, 4) / 8


class Noisy(nnx.Module):
    def __init__(self):
        self.norm = nnx.BatchNorm(4, rngs=nnx.Rngs(0))
        self.drop = nnx.Dropout(0.5, rngs=nnx.Rngs(1))

    def __call__(self, x):
        return self.drop(self.norm(x))


@nnx.jit
def run(model, x):
    return model(x)


def total(model, x):
    return (model(x) ** 2).sum()


def listening(model, *args, **kwargs):
    seen = []
    return seen, hookline.register_op_hook(model, lambda *told: seen.append(told), *args, **kwargs)


FORWARD = ["fc1/dot_general", "fc1/reshape", "fc1/add", "act/max", "fc2/dot_general", "fc2/reshape", "fc2/add"]


@pytest.mark.parametrize("call", [lambda model, x: model(x), run])
def test_every_primitive_of_a_forward_is_told(call):
    model = Mlp()
    wanted = call(model, X)
    seen, handle = listening(model)
    np.testing.assert_allclose(call(model, X), wanted, rtol=1e-6)
    handle.remove()
    call(model, X)
    assert [name for name, _, _ in seen] == [f"{site}.output" for site in FORWARD]
    assert [op for _, op, _ in seen][:2] == ["lax.dot_general", "lax.reshape"]
    np.testing.assert_allclose(seen[3][2], jax.nn.relu(model.fc1(X)), rtol=1e-6)
    assert hookline.installed(model) == []
    assert type(model) is Mlp


@pytest.mark.parametrize("compiled", [False, True])
def test_a_backward_is_told_with_its_modules(compiled):
    model = Mlp()
    grad = nnx.grad(total, argnums=(0, 1))
    grad = nnx.jit(grad) if compiled else grad
    wanted, to_x = grad(model, X)
    with hookline.register_op_hook(model, (events := []).append, "fc2", events=True):
        found, again = grad(model, X)
    np.testing.assert_allclose(again, to_x, rtol=1e-5)
    for layer in ("fc1", "fc2"):
        np.testing.assert_allclose(found[layer]["kernel"][...], wanted[layer]["kernel"][...], rtol=1e-5)
    assert {event.module for event in events} == {"fc2"}
    assert [event.phase for event in events] == ["forward"] * 3 + ["backward"] * (len(events) - 3)
    products = [event for event in events if event.op == "lax.dot_general"]
    assert [event.site for event in products] == [
        "fc2/dot_general",
        "fc2/dot_general_backward",
        "fc2/dot_general_backward_1",
    ]
    assert sorted(event.array.shape for event in products) == [(2, 3), (5, 2), (5, 3)]
    assert all(event.source.startswith("linear.py:") for event in products)


def test_inputs_are_told_before_and_operators_chosen():
    model = Mlp()
    seen, handle = listening(model, "fc1", monitor_all=True, ops="dot_*")
    model(X)
    handle.remove()
    assert [name for name, _, _ in seen] == [
        "fc1/dot_general.input0",
        "fc1/dot_general.input1",
        "fc1/dot_general.output",
    ]
    np.testing.assert_array_equal(seen[0][2], X)


def test_calls_are_numbered():
    model = Shared()
    seen, handle = listening(model)
    run(model, X)
    handle.remove()
    assert [name for name, _, _ in seen] == ["a/mul.output", "a#1/mul.output"]


def test_state_and_random_numbers_are_as_without():
    model, twin = Noisy(), Noisy()
    for call in (lambda model, x: model(x), run):
        with hookline.register_op_hook(model, lambda name, op, array: None):
            found = call(model, X)
        np.testing.assert_array_equal(found, call(twin, X))
        np.testing.assert_array_equal(model.norm.mean[...], twin.norm.mean[...])
        assert model.drop.rngs.count[...] == twin.drop.rngs.count[...]


def test_an_edit_and_a_recording_work_beside_an_op_hook():
    model = Chain()
    seen, handle = listening(model, "last")
    with handle, hookline.record(model) as rec, hookline.edit(model, {"first": lambda output: output * 10}):
        np.testing.assert_array_equal(run(model, X), X * 300)
        np.testing.assert_array_equal(model(X), X * 300)
    assert [len(rec[name].calls) for name in ("first", "block.inner", "")] == [2, 2, 2]
    np.testing.assert_array_equal(rec["first"].output, X * 20)
    assert [name for name, _, _ in seen] == ["last/mul.output"] * 2


def test_an_error_in_the_callback_names_the_operator():
    model = Mlp()
    with (
        pytest.raises(hookline.HookError, match=r"'fc1/dot_general.output'.*ZeroDivisionError"),
        hookline.register_op_hook(model, lambda name, op, array: 1 / 0),
    ):
        model(X)
    assert type(model) is Mlp


def test_in_compiled_code_that_error_comes_when_the_hook_is_removed():
    model = Mlp()
    handle = hookline.register_op_hook(model, lambda name, op, array: 1 / 0)
    run(model, X).block_until_ready()
    with pytest.raises(hookline.HookError, match=r"'fc1/dot_general.output'.*ZeroDivisionError"):
        handle.remove()
    assert hookline.installed(model) == []
    assert type(model) is Mlp


def test_operators_are_recorded_and_watched():
    model = Mlp()
    with hookline.record(model, ops=True) as rec:
        run(model, X)
    np.testing.assert_allclose(rec["act/max"].output, jax.nn.relu(model.fc1(X)), rtol=1e-6)
    with hookline.watch(model, "act", ops=["max"], grads=False, progress=False) as w:
        run(model, X)
    (row,) = w.rows("act/max", kind="output")
    assert row["count"] == 15


def test_a_loop_is_one_operator():
    class Loop(nnx.Module):
        def __call__(self, x):
            return jax.lax.fori_loop(0, 3, lambda i, c: c * 2, x)

    model = Loop()
    seen, handle = listening(model, ops=["scan", "while"])
    np.testing.assert_array_equal(model(X), X * 8)
    handle.remove()
    assert {op for _, op, _ in seen} == {"lax.scan"}
