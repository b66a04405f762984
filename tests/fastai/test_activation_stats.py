"""HookCallback and ActivationStats in a loop of one's own; with fastai they are in tests/environments/trainers."""

import importlib
import math
import sys

import pytest
import torch
from torch import nn

import hookline
from hookline import ActivationStats, HookCallback
from hookline.testing import untouched


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(4, 2))


def train(model, steps, accumulate=1, validate=0, stop=None, optimizer=None):
    torch.manual_seed(2)
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        for _ in range(accumulate):
            model(torch.randn(6, 3, generator=generator)).square().mean().backward()
        if step == stop:
            raise KeyError(step)
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        for _ in range(validate):
            model(torch.full((6, 3), 100.0))
        model.train()
    return model


@pytest.mark.parametrize("n", [11, 12, 13])
@pytest.mark.parametrize("every", [4, 1, None])
def test_every(n, every):
    model = small()
    with ActivationStats(every=every).attach(model) as stats:
        train(model, n)
    assert len(stats.stats) == math.ceil(n / (every or 1))
    assert all(len(batch) == 2 for batch in stats.stats)


def test_values_are_fastais():
    model = small().eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    x = torch.linspace(-3, 30, 21).reshape(7, 3)
    with ActivationStats(with_hist=True).attach(model) as stats:
        model(x).sum().backward()
        optimizer.step()
    with torch.no_grad():
        y = model[0](x)
    (entry, _last) = stats.stats[0]
    assert (entry["mean"], entry["std"]) == (y.mean().item(), y.std().item())
    assert entry["near_zero"] == (y <= 0.05).long().sum().item() / y.numel()
    assert torch.equal(entry["hist"], y.histc(40, 0, 10))
    assert stats.layer_stats(0) == [[entry["mean"]], [entry["std"]], [entry["near_zero"]]]
    assert torch.equal(stats.hist(0), y.histc(40, 0, 10)[:, None].log1p())


def test_validation_between_steps_is_not_recorded():
    plain, validated = small(), small()
    with ActivationStats().attach(plain) as one:
        train(plain, 4)
    with ActivationStats().attach(validated) as other:
        train(validated, 4, validate=2)
    assert other.stats == one.stats


def test_training_gives_the_same_weights():
    plain = train(small(), 5, accumulate=2)
    model = small()
    with ActivationStats(with_hist=True, every=2).attach(model) as stats:
        train(model, 5, accumulate=2)
    assert len(stats.stats) == 3
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize("every", [None, 1, 2])
@pytest.mark.parametrize("is_forward", [True, False])
def test_an_exception_leaves_nothing(every, is_forward):
    model = small()
    callback = HookCallback(every=every, is_forward=is_forward, hook=lambda m, i, o: None, remove_end=False)
    with untouched(model, parameters=False, rng=False), pytest.raises(KeyError), callback.attach(model):
        train(model, 5, stop=2)


def test_it_can_be_used_again():
    model = small()
    stats = ActivationStats()
    for steps in (3, 2):
        with stats.attach(model):
            train(model, steps)
        assert len(stats.stats) == steps


def test_a_subclass_with_events_of_its_own():
    told = []

    class Mine(HookCallback):
        def hook(self, m, i, o):
            return tuple(g.shape for g in o)

        def before_fit(self):
            super().before_fit()
            told.append("fit")

        def after_batch(self):
            told.append((self.train_iter, self.training, self.hooks.stored))
            super().after_batch()

    model = small()
    with Mine(modules=[model[3]], is_forward=False).attach(model):
        train(model, 2)
    assert told == ["fit", (0, True, [((6, 2),)]), (1, True, [((6, 2),)])]


def test_outputs_that_are_no_tensor_or_never_come():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.unused, self.scale = nn.LSTM(3, 2), nn.Linear(1, 1), nn.Parameter(torch.ones(()))

        def forward(self, x):
            return {"out": self.lstm(x)[0] * self.scale}

    model = Two()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ActivationStats().attach(model) as stats:
        model(torch.ones(4, 3))["out"].sum().backward()
        optimizer.step()
    own, lstm, unused = stats.stats[0]
    assert own["mean"] == lstm["mean"]
    assert unused is None
    assert all(math.isnan(value) for (value,) in stats.layer_stats(2))


def test_only_steps_of_this_model_count():
    model, other = small(), small()
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, other)]
    with ActivationStats().attach(model) as stats:
        train(other, 3, optimizer=optimizers[1])
        train(model, 2, optimizer=optimizers[0])
    assert len(stats.stats) == 2


def test_a_loop_without_optimizer_is_told_so():
    model = small()
    with (
        pytest.warns(UserWarning, match="no optimizer of this model has stepped"),
        ActivationStats().attach(model),
    ):
        model(torch.ones(1, 3))


def test_wrong_use_says_what_to_do():
    with pytest.raises(hookline.InvalidArgument, match=r"HookCallback has no hook: give hook=function"):
        HookCallback()
    with pytest.raises(hookline.InvalidArgument, match=r"every\(0\)"):
        ActivationStats(every=0)
    with pytest.raises(hookline.InvalidArgument, match=r"callback.attach\(model\)"), ActivationStats():
        pass
    model = small()
    with ActivationStats().attach(model) as stats:
        train(model, 1)
    with pytest.raises(hookline.InvalidArgument, match="with_hist=True"):
        stats.hist(0)


class NotInstalled:
    """Stands first among the finders of modules and says that a package is not there."""

    def __init__(self, *packages):
        self.packages = packages

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])


@pytest.mark.parametrize("host", ["lightning", "keras", "fastai", "accelerate", "transformers"])
def test_a_missing_host_is_named_with_the_command(host, monkeypatch):
    packages = (host, "pytorch_lightning")
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"hookline.integrations.{host}", raising=False)
    monkeypatch.setattr(sys, "meta_path", [NotInstalled(*packages), *sys.meta_path])
    with pytest.raises(hookline.MissingExtra, match=f"Run: pip install {host}"):
        importlib.import_module(f"hookline.integrations.{host}").WatchCallback()
