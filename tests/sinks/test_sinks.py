"""Sinks without the libraries that they are for; with them: `make test-sinks`."""

import io
import sys
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import hookline
from hookline import sinks
from hookline.background import Background
from hookline.lines import Stats
from hookline.sinks.buckets import buckets
from hookline.sinks.mlflow import allowed
from hookline.sinks.tags import scalars, tag
from tests.support.rows import row


def trained(to, steps=4):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hookline.watch(model, to=to) as w:
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(8, 3)).sum().backward()
            optimizer.step()
    return w


@pytest.mark.parametrize(
    ("sink", "package"),
    [
        (sinks.TensorBoard("logs"), "tensorboard"),
        (sinks.Wandb(), "wandb"),
        (sinks.MLflow(), "mlflow"),
        (sinks.Trackio(), "trackio"),
        (sinks.Parquet("memory://run"), "pyarrow"),
    ],
)
def test_a_missing_package_is_told_before_training_with_the_command_that_installs_it(sink, package, monkeypatch):
    class Absent:
        def find_spec(self, name, path, target=None):
            if name == package:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    ran = []
    model = nn.Linear(1, 1)
    model.register_forward_hook(lambda *_: ran.append(1))
    with pytest.raises(hookline.MissingExtra, match=f"needs {package}. Run: pip install {package}"):  # noqa: SIM117
        with hookline.watch(model, to=sink):
            model(torch.ones(1, 1))
    assert not ran and not hookline.installed(model)


class Failing:
    """A sink that fails where it is told to, and counts what it is asked."""

    def __init__(self, at):
        self.at, self.calls = at, []

    def _called(self, name):
        self.calls.append(name)
        if name == self.at:
            raise OSError(f"{name} failed")

    def open(self, meta):
        self._called("open")

    def write(self, rows):
        self._called("write")

    def close(self):
        self._called("close")


@pytest.mark.parametrize(("at", "says"), [("write", "gets no more rows: write failed"), ("close", "at the end")])
def test_one_sink_that_fails_is_told_once_and_the_others_get_everything(tmp_path, at, says):
    first, last, failing = Failing(None), Failing(None), Failing(at)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        w = trained([first, failing, tmp_path / "run", last])
    assert [str(one.message) for one in caught if says in str(one.message)] == [str(caught[0].message)]
    assert len(caught) == 1 and failing.calls.count("write") == (1 if at == "write" else 4)
    assert first.calls == last.calls == ["open", *["write"] * 4, "close"]
    assert len(hookline.open_run(tmp_path / "run").rows()) == len(w.rows())


def test_a_sink_that_cannot_begin_closes_those_that_have():
    first, failing, last = Failing(None), Failing("open"), Failing(None)
    with pytest.raises(OSError, match="open failed"):
        trained([first, failing, last])
    assert (first.calls, failing.calls, last.calls) == (["open", "close"], ["open"], [])


@pytest.mark.parametrize("wrong", [5, object(), {"a": 1}, [None]])
def test_what_is_no_sink_is_refused(wrong):
    with pytest.raises(hookline.InvalidArgument, match="is no sink"):
        hookline.watch(nn.Linear(1, 1), to=wrong)


def test_the_console_shows_the_last_step_and_marks_what_is_not_finite():
    out = io.StringIO()
    console = sinks.Console(seconds=3600, file=out)
    for step in range(3):
        console.write(
            [row(step=step), row("[red]x[/red]", step, values=(np.nan, 1.0)), row("w", step, kind="param")]
        )
    console.close()
    shown = out.getvalue()
    assert "output, step 0" in shown and "output, step 2" in shown and "output, step 1" not in shown
    assert "[red]x[/red]" in shown, "a name is no markup"
    assert "w" not in [line.split()[1] for line in shown.splitlines() if len(line.split()) > 2]


def test_names_and_numbers_for_trackers():
    one = row("fc", 3, call=1, ratio=0.5, own=2.0, channels={"mean": [1.0]})
    assert tag(one, "std") == "output/std/fc #1"
    assert set(scalars(one)) == {
        f"output/{name}/fc #1" for name in ("mean", "std", "absmax", "near_zero", "nan", "inf", "ratio", "own")
    }
    assert scalars(one, ["l2", "missing"]) == {"output/l2/fc #1": one["l2"]}


def test_names_for_mlflow_stay_apart():
    sites = [
        "",
        "model",
        ":model:",
        "(model)x",
        "a b",
        "a/b",
        "a_b",
        "é",
        "è",
        ".",
        "..",
        "a.",
        "a ",
        "#1",
        "x #1",
        "x :1",
    ]
    names = [tag(row(site), "std") for site in sites]
    made = [allowed(name) for name in names]
    assert len(set(made)) == len(sites)
    assert all(name.isascii() and not set(name) & set("()#@\n'") for name in made)


@pytest.mark.parametrize("seed", range(5))
def test_buckets_hold_every_finite_value_and_no_other(seed):
    rng = np.random.default_rng(seed)
    values = np.concatenate(
        [rng.normal(size=500) * 10.0 ** rng.integers(-300, 140), np.zeros(7), [np.nan, np.inf]]
    )
    for most in (None, 512, 30, 1):
        found = buckets(Stats.of(values).hist, most)
        assert found.counts.sum() == 507 and np.all(np.isfinite(found.edges))
        assert np.all(found.edges[1:] > found.edges[:-1])
        assert most is None or len(found.counts) <= most
    exact = buckets(Stats.of(values).hist)
    finite = values[np.isfinite(values)]
    for low, high, count in zip(exact.edges, exact.edges[1:], exact.counts, strict=False):
        negative = high <= 0  # a bin holds its edge on the side of zero
        inside = (finite > low) & (finite <= high) if negative else (finite >= low) & (finite < high)
        assert inside.sum() == count
    assert buckets(Stats.of([np.nan]).hist) is None and buckets(None) is None


def test_what_fails_in_the_background_is_kept_and_nothing_is_written_after_it():
    written = []

    def write(rows):
        written.append(len(rows))
        raise OSError("full")

    background = Background(write, seconds=60, rows=1)
    for _ in range(3):
        background.put([{}])
    background.close()
    assert written == [1] and str(background.error) == "full"
