"""WatchCallback and ActivationStats in a real Trainer, of `lightning` and of `pytorch_lightning`."""

import importlib
import sys

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hookline import ActivationStats
from tests.environments.trainers.helpers import (
    VALIDATED_TWICE,
    as_found,
    assert_nothing_left,
    data,
    same_weights,
    small_model,
    steps_of,
)
from tests.support.rows import same_rows


@pytest.fixture(params=["lightning.pytorch", "pytorch_lightning"])
def pl(request):
    return importlib.import_module(request.param)


@pytest.fixture
def watch_callback(pl, monkeypatch):
    """The WatchCallback as a user of just one of the twin packages gets it."""
    other = {"lightning.pytorch": "pytorch_lightning", "pytorch_lightning": "lightning.pytorch"}[pl.__name__]
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, other, raising=False)
        patch.delitem(sys.modules, "hookline.integrations.lightning", raising=False)
        found = importlib.import_module("hookline.integrations.lightning").WatchCallback
    assert issubclass(found, pl.Callback)
    return found


def module(pl, fail_at=None, fail_in="training_step", lr=0.05):
    class Small(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = small_model()
            self.seen = 0

        def loss(self, batch):
            x, y = batch
            return nn.functional.mse_loss(self.net(x), y)

        def training_step(self, batch, batch_idx):
            self.seen += 1
            if fail_in == "training_step" and self.seen == fail_at:
                raise KeyError("broken")
            return self.loss(batch)

        def validation_step(self, batch, batch_idx):
            self.log("val", self.loss(batch))

        def on_before_optimizer_step(self, optimizer):
            if fail_in == "step" and self.seen == fail_at:
                raise KeyError("broken")
            self.norm = nn.utils.clip_grad_norm_(self.parameters(), 1e9)  # what it is before clipping

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=lr)

    return Small()


def fit(pl, callbacks, tmp_path, batches=6, given=None, validate=False, sanity=0, **options):
    pl.seed_everything(5, verbose=False)
    given = given or module(pl)
    trainer = pl.Trainer(
        callbacks=callbacks,
        default_root_dir=tmp_path,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=sanity,
        **{"max_epochs": 1} | options,
    )
    train = DataLoader(TensorDataset(*data(batches)), batch_size=8)
    valid = DataLoader(TensorDataset(*data(3)), batch_size=8)
    trainer.fit(given, train, valid if validate else None)
    return given


def test_rows_of_each_step(pl, watch_callback, tmp_path):
    callback = watch_callback("net.*")
    given = module(pl)
    with as_found(given.net):
        fit(pl, [callback], tmp_path, given=given)
    rows = callback.rows()
    assert steps_of(rows) == steps_of(rows, "param_grad") == steps_of(rows, "update") == [0, 1, 2, 3, 4, 5]
    assert {row["call"] for row in rows} == {0}
    assert {row["site"] for row in rows if row["kind"] == "output"} == {"net.0", "net.1", "net.2", "net.3"}
    assert same_rows(callback.watch.rows(), rows)
    assert_nothing_left(given)


def test_training_gives_the_same_weights(pl, watch_callback, tmp_path):
    plain = fit(pl, [], tmp_path, gradient_clip_val=0.1, accumulate_grad_batches=2)
    callback = watch_callback(every=2, inputs=True)
    watched = fit(pl, [callback], tmp_path, gradient_clip_val=0.1, accumulate_grad_batches=2)
    assert steps_of(callback.rows()) == [0, 2]
    assert same_weights(plain, watched) and not same_weights(plain, module(pl))


def test_accumulation_merges_micro_batches(pl, watch_callback, tmp_path):
    callback = watch_callback("net.0")
    fit(pl, [callback], tmp_path, batches=6, accumulate_grad_batches=3)
    outputs = callback.rows("net.0", kind="output")
    assert [(row["step"], row["count"]) for row in outputs] == [(0, 3 * 8 * 8), (1, 3 * 8 * 8)]


def test_gradients_are_those_after_clipping(pl, watch_callback, tmp_path):
    free, clipped = watch_callback("net.*"), watch_callback("net.*")
    given = fit(pl, [free], tmp_path, batches=1)
    fit(pl, [clipped], tmp_path, batches=1, gradient_clip_val=0.01)

    def norm(callback):
        return sum(row["l2"] ** 2 for row in callback.rows(kind="param_grad")) ** 0.5

    assert norm(free) == pytest.approx(float(given.norm), rel=1e-5)
    assert norm(free) > 0.1
    assert norm(clipped) == pytest.approx(0.01, rel=1e-3)


def test_validation_and_sanity_check_are_told_apart(pl, watch_callback, tmp_path):
    callback = watch_callback("net.3")
    fit(pl, [callback], tmp_path, batches=2, validate=True, sanity=2, max_epochs=2)
    outputs = callback.rows("net.3", kind="output")
    assert [(row["step"], row["mode"], row["count"]) for row in outputs] == VALIDATED_TWICE


def test_bf16(pl, watch_callback, tmp_path):
    callback = watch_callback("net.0")
    fit(pl, [callback], tmp_path, precision="bf16-mixed", batches=3)
    assert steps_of(callback.rows()) == steps_of(callback.rows(), "param_grad") == [0, 1, 2]


@pytest.mark.parametrize("fail_in", ["training_step", "step"])
def test_an_exception_leaves_nothing(pl, watch_callback, tmp_path, fail_in):
    callback = watch_callback()
    given = module(pl, fail_at=3, fail_in=fail_in)
    with as_found(given.net), pytest.raises(KeyError):
        fit(pl, [callback], tmp_path, given=given)
    assert steps_of(callback.rows(), "update") == [0, 1]
    assert not given.trainer.optimizers[0]._optimizer_step_pre_hooks
    assert_nothing_left(given)


def test_an_early_stop(pl, watch_callback, tmp_path):
    class Stop(pl.Callback):
        def on_train_batch_end(self, trainer, *rest):
            trainer.should_stop = trainer.global_step >= 2

    callback = watch_callback()
    given = fit(pl, [callback, Stop()], tmp_path)
    assert steps_of(callback.rows()) == [0, 1]
    assert_nothing_left(given)


def test_manual_optimization(pl, watch_callback, tmp_path):
    given = module(pl)
    given.automatic_optimization = False

    def training_step(batch, batch_idx):
        optimizer = given.optimizers()
        optimizer.zero_grad()
        given.manual_backward(given.loss(batch))
        optimizer.step()

    given.training_step = training_step
    callback = watch_callback("net.0")
    fit(pl, [callback], tmp_path, batches=3, given=given)
    assert steps_of(callback.rows()) == steps_of(callback.rows(), "param_grad") == [0, 1, 2]


def test_activation_stats_around_a_fit(pl, tmp_path):
    given = module(pl)
    with ActivationStats(every=2).attach(given) as stats:
        fit(pl, [], tmp_path, batches=5, given=given)
    assert len(stats.stats) == 3
    assert_nothing_left(given)
