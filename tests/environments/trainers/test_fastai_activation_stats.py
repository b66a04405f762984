"""Seed 002: HookCallback and ActivationStats in a real fastai Learner."""

import math
import pickle

import pytest
import torch
from fastai.callback.core import Callback, CancelFitException
from fastai.callback.hook import ActivationStats as Original
from fastai.callback.hook import layer_info as original_layer_info
from fastai.test_utils import synth_learner
from fastai.torch_core import set_seed
from torch import nn

import hookline
from hookline import ActivationStats, HookCallback, layer_info
from tests.environments.trainers.helpers import assert_nothing_left, same_weights


def layered():
    set_seed(2)
    return nn.Sequential(nn.Linear(1, 5), nn.ReLU(), nn.Linear(5, 1))


def fit(cbs, n_trn=5, model=None, epochs=1, **options):
    set_seed(3)
    learn = synth_learner(n_trn=n_trn, model=model or layered(), cbs=cbs, **options)
    with learn.no_logging():
        learn.fit(epochs)
    return learn


def test_a_subclass_sees_outputs():
    seen = []

    class TstCallback(HookCallback):
        def hook(self, m, i, o):
            return o

        def after_batch(self):
            seen.append(torch.equal(self.hooks.stored[0], self.pred))

    fit(TstCallback(), model=nn.Linear(1, 1))
    assert seen == [True] * 7  # five batches of training, two of validation


def test_a_subclass_sees_gradients():
    seen = []

    class TstCallback(HookCallback):
        def __init__(self, modules=None, remove_end=True, detach=True, cpu=False):
            super().__init__(modules, None, remove_end, False, detach, cpu)

        def hook(self, m, i, o):
            return o

        def after_batch(self):
            if self.training:
                expected = 2 * (self.pred - self.y) / self.pred.shape[0]
                seen.append(torch.allclose(self.hooks.stored[0][0], expected))

    fit(TstCallback(), model=nn.Linear(1, 1))
    assert seen == [True] * 5


def test_hook_as_an_argument():
    learn = fit(HookCallback(hook=lambda m, i, o: tuple(o.shape)))
    assert learn.hook.hooks.stored == [(16, 5), (16, 1)]


@pytest.mark.parametrize("n_trn", [11, 12, 13])
@pytest.mark.parametrize("every", [4, 1])
def test_every(n_trn, every):
    learn = synth_learner(n_trn=n_trn, cbs=ActivationStats(every=every))
    with learn.no_logging():
        learn.fit(1)
    assert len(learn.activation_stats.stats) == math.ceil(n_trn / every)


def test_without_every_each_training_batch_is_recorded():
    assert len(fit(ActivationStats(), n_trn=6).activation_stats.stats) == 6


def test_the_default_modules_of_the_seed_are_found_without_a_weight():
    learn = synth_learner(n_trn=5, cbs=ActivationStats(every=4))  # RegModel: parameters a and b
    with learn.no_logging():
        learn.fit(1)
    assert [len(batch) for batch in learn.activation_stats.stats] == [1, 1]


@pytest.mark.parametrize("include_paramless", [False, True])
@pytest.mark.parametrize("every", [None, 2])
def test_values_are_those_of_fastai(every, include_paramless):
    options = {"every": every, "with_hist": True, "include_paramless": include_paramless}
    theirs = fit(Original(**options)).activation_stats
    ours = fit(ActivationStats(**options)).activation_stats
    assert len(ours.stats) == len(theirs.stats)
    for mine, original in zip(ours.stats, theirs.stats, strict=True):
        for a, b in zip(mine, original, strict=True):
            assert {name: a[name] for name in ("mean", "std", "near_zero")} == {
                name: b[name] for name in ("mean", "std", "near_zero")
            }
            assert torch.equal(a["hist"], b["hist"])
    for idx in (0, 1):
        assert ours.layer_stats(idx) == [list(line) for line in theirs.layer_stats(idx)]
        assert torch.equal(ours.hist(idx), theirs.hist(idx))


def test_the_fifth_entry_of_layer_info_is_that_of_fastai():
    model = nn.Sequential(
        *[nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 8, 1)],
        *[nn.Flatten(), nn.Dropout(), nn.Linear(128, 128), nn.Linear(128, 1)],
    )
    learn, x = synth_learner(model=model), torch.randn(16, 3, 8, 8)
    theirs, ours = original_layer_info(learn, x), layer_info(learn, x, same=True)
    assert [(info[0], info[1] or 0, info[2] or False, list(info[3]), info[4]) for info in theirs] == ours
    assert {info[4] for info in ours} == {True, False}


def test_training_gives_the_same_weights():
    plain, watched = layered(), layered()
    fit([], model=plain)
    fit([ActivationStats(with_hist=True)], model=watched)
    assert same_weights(plain, watched) and not same_weights(plain, layered())


def test_nothing_is_left_after_a_fit():
    learn = fit(ActivationStats())
    assert_nothing_left(learn.model)
    assert "_with_events" not in vars(learn)


def test_remove_end_false_leaves_the_hooks():
    learn = fit(HookCallback(hook=lambda m, i, o: None, remove_end=False))
    assert len(hookline.installed(learn.model)) == 2
    learn.hook.hooks.remove()
    assert_nothing_left(learn.model)


class Failing(Callback):
    def __init__(self, event, error):
        self.event, self.error = event, error

    def __call__(self, event_name):
        if event_name == self.event and getattr(self.learn, "train_iter", 0) >= 1:
            raise self.error


@pytest.mark.parametrize("event", ["before_batch", "after_pred", "after_backward", "after_batch", "after_train"])
@pytest.mark.parametrize("every", [None, 1])
def test_an_exception_leaves_nothing(event, every):
    model = layered()
    learn = synth_learner(n_trn=3, model=model, cbs=[ActivationStats(every=every), Failing(event, KeyError("x"))])
    with learn.no_logging(), pytest.raises(KeyError):
        learn.fit(1)
    assert_nothing_left(model)
    assert "_with_events" not in vars(learn)


def test_a_cancelled_fit_keeps_what_was_recorded():
    learn = fit([ActivationStats(), Failing("after_pred", CancelFitException())])
    assert len(learn.activation_stats.stats) == 1
    assert_nothing_left(learn.model)


def test_two_epochs_and_a_validation_after_them():
    learn = fit(ActivationStats(), epochs=2)
    with learn.no_logging():
        learn.validate()
    assert len(learn.activation_stats.stats) == 10  # fastai's own would be empty now


def test_a_second_fit_begins_anew():
    learn = fit(ActivationStats(), n_trn=5)
    with learn.no_logging():
        learn.fit(1)
    assert len(learn.activation_stats.stats) == 5


def test_for_one_fit_only():
    stats = ActivationStats()
    learn = synth_learner(n_trn=4)
    with learn.no_logging():
        learn.fit(1, cbs=stats)
    assert len(stats.stats) == 4
    assert_nothing_left(learn.model)


def test_a_learner_with_it_can_be_pickled():
    learn = pickle.loads(pickle.dumps(fit(ActivationStats())))
    assert len(learn.activation_stats.stats) == 5
    assert learn.activation_stats.hooks is None
    with learn.no_logging():
        learn.fit(1)
    assert len(learn.activation_stats.stats) == 5
    assert_nothing_left(learn.model)


def test_plots():
    import matplotlib as mpl

    mpl.use("Agg")
    stats = fit(ActivationStats(with_hist=True)).activation_stats
    ax = stats.color_dim(0)
    assert ax.images[0].get_array().shape == (40, 5)
    assert stats.color_dim(1, ax=ax) is ax
    mean, std, near = stats.plot_layer_stats(1)
    assert [a.get_title() for a in (mean, std, near)] == ["mean", "std", "% near zero"]
    assert mean.lines[0].get_ydata().tolist() == stats.layer_stats(1)[0]


def test_a_summary_names_it():
    assert "ActivationStats" in str([str(cb) for cb in fit(ActivationStats()).cbs])
