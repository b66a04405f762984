"""WatchCallback in a loop with a real Accelerator."""

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hookline
from hookline.integrations.accelerate import WatchCallback
from tests.environments.trainers.helpers import (
    as_found,
    assert_nothing_left,
    data,
    same_weights,
    small_model,
    steps_of,
)


@pytest.fixture(autouse=True)
def _own_state():
    AcceleratorState._reset_state(reset_partial_state=True)  # one precision for all would be kept otherwise


def train(callback=None, model=None, batches=6, clip=None, accumulate=1, fail_at=None, precision="no"):
    torch.manual_seed(5)
    original = model or small_model()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate, mixed_precision=precision)
    optimizer = torch.optim.Adam(original.parameters(), lr=0.05)
    loader = DataLoader(TensorDataset(*data(batches)), batch_size=8)
    model, optimizer, loader = accelerator.prepare(original, optimizer, loader)

    def loop():
        for number, (x, y) in enumerate(loader):
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.mse_loss(model(x), y))
                if number == fail_at:
                    raise KeyError("broken")
                if accelerator.sync_gradients and clip:
                    accelerator.clip_grad_norm_(model.parameters(), clip)
                optimizer.step()
                optimizer.zero_grad()

    if callback is None:
        loop()
    else:
        with as_found(original), callback.attach(accelerator, model):
            loop()
    return original


def test_rows_of_each_step():
    callback = WatchCallback()
    model = train(callback)
    rows = callback.rows()
    assert steps_of(rows) == steps_of(rows, "param_grad") == steps_of(rows, "update") == [0, 1, 2, 3, 4, 5]
    assert_nothing_left(model)


def test_training_gives_the_same_weights():
    plain = train(clip=0.1, accumulate=2)
    callback = WatchCallback(every=2, inputs=True)
    assert same_weights(plain, train(callback, clip=0.1, accumulate=2)) and not same_weights(plain, small_model())
    assert steps_of(callback.rows()) == [0, 2]


def test_accumulation_merges_micro_batches():
    callback = WatchCallback("0")
    train(callback, accumulate=3)
    assert [(row["step"], row["count"]) for row in callback.rows(kind="output")] == [(0, 192), (1, 192)]


def test_gradients_are_those_after_clipping():
    free, clipped = WatchCallback(), WatchCallback()
    train(free, batches=1)
    train(clipped, batches=1, clip=0.01)

    def norm(callback):
        return sum(row["l2"] ** 2 for row in callback.rows(kind="param_grad")) ** 0.5

    assert norm(free) > 0.1
    assert norm(clipped) == pytest.approx(0.01, rel=1e-3)


def test_bf16():
    callback = WatchCallback()
    train(callback, batches=3, precision="bf16")
    assert steps_of(callback.rows()) == steps_of(callback.rows(), "param_grad") == [0, 1, 2]


def test_an_exception_leaves_nothing():
    callback, model = WatchCallback(), small_model()
    with pytest.raises(KeyError):
        train(callback, model, fail_at=3)
    assert steps_of(callback.rows(), "update") == [0, 1, 2]
    assert_nothing_left(model)


def test_unattached_it_says_what_to_do():
    with pytest.raises(hookline.InvalidArgument, match=r"attach\(accelerator, model\)"), WatchCallback():
        pass
