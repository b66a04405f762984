"""WatchCallback in a real `fit` of Keras 3 on torch."""

import keras
import numpy as np
import pytest
import torch

import hookline
from hookline.integrations.keras import WatchCallback, named_layers
from tests.environments.trainers.helpers import VALIDATED_TWICE, as_found, assert_nothing_left, data, steps_of
from tests.support.rows import same_rows


def small_keras(dropout=0.1, **optimizer):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.Sequential([keras.layers.Dense(8, activation="relu", name="first")], name="inner"),
            keras.layers.Dropout(dropout, name="drop"),
            keras.layers.Dense(1, name="last"),
        ]
    )
    model.compile(optimizer=keras.optimizers.Adam(0.05, **optimizer), loss="mse")
    return model


def fit(callbacks, model=None, batches=6, **options):
    keras.utils.set_random_seed(5)
    model = model or small_keras()
    x, y = (part.numpy() for part in data(batches))
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=callbacks, **options)
    return model


def left(model):
    """Whatever of hookline's is still on the model, its layers or its optimizer."""
    for _, layer in named_layers(model):
        assert_nothing_left(layer)
    inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    return [*vars(inner).keys() & {"_backend_update_step"}, *vars(model).keys() & {"evaluate"}]


def same_weights(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one.get_weights(), other.get_weights(), strict=True))


def test_rows_of_each_step():
    model, callback = small_keras(), WatchCallback()
    with as_found(model.get_layer("inner").get_layer("first")):
        fit([callback], model)
    rows = callback.rows()
    assert steps_of(rows) == steps_of(rows, "param_grad") == steps_of(rows, "update") == [0, 1, 2, 3, 4, 5]
    assert {row["site"] for row in rows if row["kind"] == "output"} == {"", "inner", "inner.first", "drop", "last"}
    assert {row["site"] for row in rows if row["kind"] == "param"} == {
        *["inner.first.kernel", "inner.first.bias", "last.kernel", "last.bias"]
    }
    assert {row["call"] for row in rows} == {0}
    assert same_rows(callback.watch.rows(), rows)
    assert left(model) == []


def test_training_gives_the_same_weights():
    options = {"clipnorm": 0.1, "gradient_accumulation_steps": 2}
    plain = fit([], small_keras(**options))
    callback = WatchCallback(every=2, inputs=True)
    watched = fit([callback], small_keras(**options))
    assert steps_of(callback.rows()) == [0, 2]
    assert same_weights(plain, watched) and not same_weights(plain, small_keras())


def test_accumulation_merges_micro_batches():
    callback = WatchCallback("last")
    fit([callback], small_keras(gradient_accumulation_steps=3))
    assert [(row["step"], row["count"]) for row in callback.rows(kind="output")] == [(0, 24), (1, 24)]
    assert steps_of(callback.rows(), "update") == [0, 1]


def norm(callback):
    return sum(row["l2"] ** 2 for row in callback.rows(kind="param_grad")) ** 0.5


def test_gradients_are_those_after_clipping():
    free, clipped = WatchCallback(), WatchCallback()
    fit([free], batches=1)
    fit([clipped], small_keras(global_clipnorm=0.01), batches=1)
    assert norm(free) > 0.1
    assert norm(clipped) == pytest.approx(0.01, rel=1e-3)


def test_validation_is_told_apart():
    callback = WatchCallback("last")
    x, y = (part.numpy() for part in data(3))
    fit([callback], batches=2, epochs=2, validation_data=(x, y))
    assert [(row["step"], row["mode"], row["count"]) for row in callback.rows(kind="output")] == VALIDATED_TWICE


@pytest.fixture
def policy(request):
    keras.mixed_precision.set_global_policy(request.param)
    yield request.param
    keras.mixed_precision.set_global_policy("float32")


@pytest.mark.parametrize("policy", ["mixed_bfloat16"], indirect=True)
def test_bf16(policy):
    callback = WatchCallback()
    fit([callback], batches=3)
    assert steps_of(callback.rows()) == steps_of(callback.rows(), "param_grad") == [0, 1, 2]


@pytest.mark.parametrize("policy", ["mixed_float16"], indirect=True)
def test_gradients_are_unscaled(policy):
    callback, reference = WatchCallback(), WatchCallback()
    model = small_keras(dropout=0.0)  # its random mask would depend on the dtype
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.05), initial_scale=256.0)
    model.compile(optimizer=scaled, loss="mse")
    fit([callback], model, batches=1)
    keras.mixed_precision.set_global_policy("float32")
    fit([reference], small_keras(dropout=0.0), batches=1)
    assert norm(callback) == pytest.approx(norm(reference), rel=0.05)

    def at_last(some):
        return some.rows("last", kind="grad_output")[0]["l2"]

    assert at_last(callback) == pytest.approx(at_last(reference), rel=0.05)
    assert left(model) == []


class Breaking(keras.layers.Layer):
    calls = 0

    def call(self, x):
        self.calls += 1
        if self.calls == 5:  # two of them are when the model is built
            raise KeyError("broken")
        return x


def test_an_exception_leaves_nothing():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1), Breaking()])
    model.compile(optimizer="sgd", loss="mse")
    callback = WatchCallback()
    with pytest.raises(KeyError):
        fit([callback], model)
    assert 1 <= len(steps_of(callback.rows(), "update")) < 6
    assert left(model) == []


class Failing(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        raise KeyError("broken")


def test_with_a_block_other_exceptions_leave_nothing_either():
    model = small_keras()
    with pytest.raises(KeyError), WatchCallback() as callback:
        fit([callback, Failing()], model)
    assert left(model) == []


def test_an_early_stop():
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch >= 1

    callback = WatchCallback()
    model = fit([callback, Stop()])
    assert steps_of(callback.rows()) == [0, 1]
    assert left(model) == []


def test_a_second_fit_goes_on_counting():
    callback, model = WatchCallback(), small_keras()
    fit([callback], model, batches=2)
    fit([callback], model, batches=2)
    assert steps_of(callback.rows()) == [2, 3]


def test_a_layer_that_is_not_there():
    with pytest.raises(hookline.NoSuchSite, match=r"Did you mean 'inner.first'"):
        fit([WatchCallback("inner.frist")])


def test_a_compiled_model_is_refused():
    model = small_keras()
    model.compile(optimizer="sgd", loss="mse", jit_compile=True)
    with pytest.raises(hookline.Unsupported, match="jit_compile=False"):
        fit([WatchCallback()], model)


def test_it_is_torch():
    assert keras.backend.backend() == "torch"
    assert isinstance(small_keras(), torch.nn.Module)
