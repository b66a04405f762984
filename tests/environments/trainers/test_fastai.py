"""WatchCallback in a real fastai Learner."""

from contextlib import nullcontext

import pytest
import torch
from fastai.callback.core import Callback, CancelFitException, CancelStepException
from fastai.callback.training import GradientAccumulation, GradientClip
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from fastai.losses import MSELossFlat
from fastai.optimizer import Adam, OptimWrapper
from fastai.torch_core import set_seed
from torch.utils.data import TensorDataset

from hookline import ActivationStats
from hookline.integrations.fastai import WatchCallback
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


def torch_adam(params, **options):
    return OptimWrapper(params, opt=torch.optim.Adam, **options)


@pytest.fixture(params=[Adam, torch_adam], ids=["fastai's Adam", "torch's Adam"])
def opt_func(request):
    return request.param


def learner(cbs, opt_func, batches=6, model=None):
    set_seed(5)
    loaders = [DataLoader(TensorDataset(*data(n)), bs=8, num_workers=0) for n in (batches, 3)]
    return Learner(
        DataLoaders(*loaders, device="cpu"),
        model or small_model(),
        loss_func=MSELossFlat(),
        opt_func=opt_func,
        lr=0.05,
        cbs=cbs,
    )


def fit(cbs, opt_func, epochs=1, **options):
    learn = learner(cbs, opt_func, **options)
    with learn.no_logging():
        learn.fit(epochs)
    return learn


def test_rows_of_each_step(opt_func):
    model = small_model()
    learn = learner([WatchCallback()], opt_func, model=model)
    with learn.no_logging():
        learn.fit(1)
    rows = learn.watch.rows()
    assert steps_of(rows) == steps_of(rows, "param_grad") == steps_of(rows, "update") == [0, 1, 2, 3, 4, 5]
    assert {row["call"] for row in rows} == {0}
    assert same_rows(learn.watch.watch.rows(), rows)
    assert "_with_events" not in vars(learn)
    assert_nothing_left(model)


def test_training_gives_the_same_weights(opt_func):
    plain, watched = small_model(), small_model()
    cbs = [GradientClip(0.1), GradientAccumulation(16)]
    fit(cbs, opt_func, model=plain)
    learn = fit([*cbs, WatchCallback(every=2, inputs=True)], opt_func, model=watched)
    assert steps_of(learn.watch.rows()) == [0, 2]
    assert same_weights(plain, watched) and not same_weights(plain, small_model())


def test_accumulation_merges_micro_batches(opt_func):
    learn = fit([GradientAccumulation(24), WatchCallback("0")], opt_func)
    outputs = [row for row in learn.watch.rows(kind="output") if row["mode"] == "train"]
    assert [(row["step"], row["count"]) for row in outputs] == [(0, 192), (1, 192)]


def test_gradients_are_those_after_clipping(opt_func):
    def norm(*cbs):
        learn = fit([*cbs, WatchCallback()], opt_func, batches=1)
        return sum(row["l2"] ** 2 for row in learn.watch.rows(kind="param_grad")) ** 0.5

    assert norm() > 0.1
    assert norm(GradientClip(0.01)) == pytest.approx(0.01, rel=1e-3)


def test_validation_is_told_apart(opt_func):
    learn = fit([WatchCallback("3")], opt_func, batches=2, epochs=2)
    outputs = learn.watch.rows(kind="output")
    assert [(row["step"], row["mode"], row["count"]) for row in outputs] == VALIDATED_TWICE


class At(Callback):
    """Raises at an event of training batch 2."""

    order = 20

    def __init__(self, event, error):
        self.event, self.error = event, error

    def __call__(self, event_name):
        if event_name == self.event and self.learn.training and self.learn.train_iter == 2:
            raise self.error


@pytest.mark.parametrize("event", ["before_batch", "after_backward", "before_step", "after_batch"])
def test_an_exception_leaves_nothing(event, opt_func):
    model = small_model()
    learn = learner([WatchCallback(), At(event, KeyError("broken"))], opt_func, model=model)
    with as_found(model), pytest.raises(KeyError), learn.no_logging():
        learn.fit(1)
    assert steps_of(learn.watch.rows(), "update")[:2] == [0, 1]
    assert "_with_events" not in vars(learn)
    assert_nothing_left(model)


def test_a_cancelled_fit(opt_func):
    learn = fit([WatchCallback(), At("after_pred", CancelFitException())], opt_func)
    assert steps_of(learn.watch.rows(), "update") == [0, 1]
    assert_nothing_left(learn.model)


def test_a_cancelled_step_is_none(opt_func):
    learn = fit([WatchCallback(), At("before_step", CancelStepException())], opt_func)
    assert steps_of(learn.watch.rows(), "update") == [0, 1, 2, 3, 4]  # of six batches


def test_a_validation_alone_is_not_watched(opt_func):
    learn = fit([WatchCallback()], opt_func)
    rows = learn.watch.rows()
    with learn.no_logging():
        learn.validate()
    assert same_rows(learn.watch.rows(), rows)


@pytest.mark.parametrize("event", [None, "after_backward"])
def test_beside_activation_stats(event, opt_func):
    cbs = [ActivationStats(), WatchCallback(), *([At(event, KeyError("broken"))] if event else [])]
    learn = learner(cbs, opt_func)
    with learn.no_logging(), pytest.raises(KeyError) if event else nullcontext():
        learn.fit(1)
    assert len(learn.activation_stats.stats) == len(steps_of(learn.watch.rows(), "update")) == (2 if event else 6)
    assert "_with_events" not in vars(learn)
    assert_nothing_left(learn.model)
