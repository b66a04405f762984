"""Scalars and settings in a run: written, read, exported."""

import csv

import numpy as np
import pytest
import torch
from torch import nn

import hookline
from hookline.runfiles.store import RunStore
from hookline.runs.growing import OpenRun

X = torch.ones(2, 3)


def trained(folder, steps=4, every=2, resume=False, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with hookline.watch(model, every=every, to=folder, resume=resume, **options) as w:
        for step in range(steps):
            optimizer.zero_grad()
            loss = model(X).square().mean()
            losses.append(loss.item())
            loss.backward()
            optimizer.step()
            w.log(mine=step)
    return w, losses


def test_a_run_has_the_scalars_of_its_watch(tmp_path):
    w, losses = trained(tmp_path / "a")
    with hookline.open_run(tmp_path / "a") as run:
        mine, found = w.scalars(), run.scalars()
        assert found.keys() == mine.keys() and found["loss"].values.tolist() == losses[::2]
        for name, one in found.items():
            assert np.array_equal(one.steps, mine[name].steps) and np.array_equal(one.values, mine[name].values)
        assert found["mine"].steps.tolist() == [0, 1, 2, 3]


def test_rows_columns_sites_and_steps_of_a_run_leave_them_out(tmp_path):
    trained(tmp_path / "a")
    with hookline.open_run(tmp_path / "a") as run:
        assert run.steps == [0, 2] and run.sites[0] == "0" and "loss" not in run.sites
        assert {row["kind"] for row in run.rows()}.isdisjoint({"scalar"})
        assert "scalar" not in set(run.columns()["kind"])
        assert {row["site"] for row in run.rows(kind="scalar", steps=(1, 1))} == {"mine"}
        assert run.columns("loss", "scalar", "mean")["step"].tolist() == [0, 2]
        every = len(run.rows()) + len(run.rows(kind="scalar"))
        assert run.count() == every == sum(len(part["step"]) for part in run.chunks(10)) == len(run.to_pandas())
        assert len(run.all_rows()) == every and run.all_steps() == [0, 1, 2, 3]


def test_a_scalar_is_no_site_of_its_own(tmp_path):
    trained(tmp_path / "a")
    with hookline.open_run(tmp_path / "a") as run:
        for kind in (None, "output"):
            with pytest.raises(hookline.NoSuchSite):
                run.rows("loss", kind)
        with pytest.raises(hookline.NoSuchSite, match="loss"):
            run.rows("los", "scalar")
    opened = OpenRun(tmp_path / "a", "a")
    opened.catch_up()
    assert {name for name, _ in opened.modules()} == {"", "0", "1"}
    assert ("loss", "scalar") in {(one.site, one.kind) for one in opened.series}
    opened.close()


def test_exports_have_them(tmp_path):
    trained(tmp_path / "a")
    with hookline.open_run(tmp_path / "a") as run:
        run.export(tmp_path / "a.csv")
        count = run.count()
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == count
    assert [row["step"] for row in rows if row["site"] == "mine"] == ["0", "1", "2", "3"]


def test_settings_are_kept_and_those_of_the_last_watch_count(tmp_path):
    trained(tmp_path / "a", config={"lr": 0.1, "layers": [3, 1]})
    with hookline.open_run(tmp_path / "a") as run:
        assert run.meta["config"] == {"lr": 0.1, "layers": [3, 1]}
    trained(tmp_path / "a", resume=True, config={"lr": 0.2})
    with hookline.open_run(tmp_path / "a") as run:
        assert run.meta["config"] == {"lr": 0.2} and run.scalars()["mine"].steps.tolist() == list(range(8))


@pytest.mark.filterwarnings("ignore:a part of the run can't be read")
def test_settings_of_a_file_that_are_none_are_left_out(tmp_path):
    store = RunStore(tmp_path / "a")
    store.open({"config": [1, 2]})
    store.close()
    with hookline.open_run(tmp_path / "a") as run:
        assert "config" not in run.meta and any("config" in told for told in run.damage)


def test_a_run_without_scalars_has_none(tmp_path):
    store = RunStore(tmp_path / "a")
    store.write([{"site": "fc", "kind": "output", "call": 0, "mode": "train", "step": 0, "mean": 0.5}])
    store.close()
    with hookline.open_run(tmp_path / "a") as run:
        assert run.scalars() == {} and run.steps == [0]


def test_of_many_processes_the_lowest_rank_is_told(tmp_path, monkeypatch):
    row = {"site": "loss", "kind": "scalar", "call": 0, "mode": "train", "step": 0, "count": 1}
    for rank in (1, 0):
        monkeypatch.setenv("RANK", str(rank))
        store = RunStore(tmp_path / "a", resume=rank == 0)
        store.write([{**row, "mean": float(rank), "rank": rank}])
        store.close()
    with hookline.open_run(tmp_path / "a") as run:
        assert run.scalars()["loss"].values.tolist() == [0.0] and len(run.rows(kind="scalar")) == 2
