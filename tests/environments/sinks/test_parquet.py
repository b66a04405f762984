"""Parts at fsspec URLs, and tables of stored runs, read by pyarrow, polars and pandas."""

import json
import math
import signal
import subprocess
import sys
import time

import fsspec
import pandas
import polars
import pyarrow.dataset as datasets
import pyarrow.parquet as parquet
import pytest
import torch

import hookline
from hookline import sinks
from hookline.rows import FIXED
from tests.environments.sinks.helpers import ODD, STEPS, rows_of, trained, written
from tests.support.rows import row


def dataset(url):
    files, path = fsspec.core.url_to_fs(url)
    return datasets.dataset(path, filesystem=files, partitioning="hive", format="parquet")


def compare(table, rows):
    """Arrow's rows against those that were written."""
    got = table.to_pylist()
    assert len(got) == len(rows)
    for found, one in zip(got, rows, strict=True):
        for name in one:
            if name == "hist":
                bins, counts = found["hist_bins"], found["hist_counts"]
                assert one["hist"][bins].tolist() == counts and sum(counts) == one["hist"].sum()
            elif isinstance(one[name], float) and math.isnan(one[name]):
                assert math.isnan(found[name])
            else:
                assert found[name] == one[name], name


@pytest.mark.parametrize("scheme", ["file", "memory"])
def test_parts_hold_every_row(tmp_path, scheme):
    url = f"{scheme}://{tmp_path}/run"
    rows = written(sinks.Parquet(url, seconds=3600, rows=15))
    found = dataset(url)
    assert len(found.files) > 1 and all("/rank=0/part-" in file for file in found.files)
    compare(found.to_table(), rows)
    assert ODD in found.to_table().column("site").to_pylist() and set(STEPS) == set(
        found.to_table().column("step").to_pylist()
    )
    files, _ = fsspec.core.url_to_fs(url)
    with files.open(found.files[0]) as first:
        assert json.loads(parquet.read_schema(first).metadata[b"hookline"])["model"] == "Net"


def test_a_url_is_enough_and_ranks_and_processes_do_not_meet(tmp_path, monkeypatch):
    url = f"file://{tmp_path}/run"
    first = trained(url)
    second = sinks.Parquet(url)
    second.open({"rank": 3})
    second.write([row("fc", values=[1.0], rank=3)])
    second.close()
    third = trained(url)
    table = dataset(url).to_table()
    assert table.num_rows == first.to_arrow().num_rows + 1 + third.to_arrow().num_rows
    assert sorted(set(table.column("rank").to_pylist())) == [0, 3]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["rank=0", "rank=3"]


def test_a_statistic_that_only_some_rows_have_is_kept(tmp_path):
    sink = sinks.Parquet(f"file://{tmp_path}")
    sink.open()
    sink.write([row("a", values=[1.0]), row("b", values=[1.0], p99=0.5, channels={"mean": [1.0, 2.0]})])
    sink.close()
    found = dataset(f"file://{tmp_path}").to_table().to_pylist()
    assert [one["p99"] for one in found] == [None, 0.5]
    assert json.loads(found[1]["channels"]) == {"mean": [1.0, 2.0]}


def test_a_place_that_can_be_none_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("here")
    with pytest.raises(hookline.RunError, match="can't be kept"):
        trained(f"file://{tmp_path}/file/run")
    with pytest.raises(hookline.RunError, match="can't be kept"):
        trained("nosuchscheme://bucket/run")


KILLED = """
import sys, time, numpy, hookline
from hookline import sinks
from hookline.lines import Stats
sink = sinks.Parquet(sys.argv[1], seconds=0.05, rows=200)
for step in range(100000):
    base = {"kind": "output", "step": step, "call": 0, "rank": 0, "mode": "train"}
    sink.write([{"site": f"l{n}", **base, **Stats.of([1.0, 2.0]).row()} for n in range(20)])
    time.sleep(0.002)
"""


def test_a_kill_leaves_whole_parts(tmp_path):
    command = [sys.executable, "-c", KILLED, f"file://{tmp_path}"]
    process = subprocess.Popen(command)
    while len(list(tmp_path.glob("rank=0/part-*"))) < 5:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    table = dataset(f"file://{tmp_path}").to_table()
    steps = sorted(set(table.column("step").to_pylist()))
    assert steps == list(range(len(steps))) and steps and table.num_rows == 20 * len(steps)


def test_a_stored_run_as_arrow_polars_parquet_and_csv(tmp_path):
    written(hookline.RunStore(tmp_path / "run"))
    rows = [
        one for step in sorted(set(STEPS)) for one in rows_of(step)
    ]  # a step that was written twice counts once
    with hookline.open_run(tmp_path / "run") as run:
        compare(run.to_arrow(), rows)
        frame = run.to_polars()
        assert frame.height == len(rows) and frame.schema["hist_counts"] == polars.List(polars.Int64)
        assert frame.schema["ratio"] == polars.Float64 and frame["step"].to_list() == [one["step"] for one in rows]
        means = zip(frame["mean"].to_list(), rows, strict=True)
        assert all(a == one["mean"] or math.isnan(one["mean"]) for a, one in means)
        compare(parquet.read_table(run.export(tmp_path / "a.parquet")), rows)
        run.export(tmp_path / "a.csv")
    table = pandas.read_csv(tmp_path / "a.csv")
    assert len(table) == len(rows) and set(table.columns) == {*FIXED, "ratio"} - {"hist"}
    assert table["mean"].isna().sum() == len(set(STEPS))


def test_an_empty_run_has_empty_tables(tmp_path):
    store = hookline.RunStore(tmp_path)
    store.open()
    store.close()
    run = hookline.open_run(tmp_path)
    assert run.to_arrow().num_rows == 0 and run.to_polars().height == 0
    assert parquet.read_table(run.export(tmp_path / "empty.parquet")).num_rows == 0


def test_a_watch_has_the_tables_of_its_run(tmp_path):
    model = torch.nn.Linear(2, 1)
    with hookline.watch(model, to=tmp_path / "run") as w:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            model(torch.ones(4, 2)).sum().backward()
            optimizer.step()
    with hookline.open_run(tmp_path / "run") as run:
        assert w.to_arrow().schema.names == run.to_arrow().schema.names
        assert w.to_polars().schema == run.to_polars().schema
        rows = len(w.rows()) + len(w.rows(kind="scalar"))
        assert w.to_arrow().num_rows == w.to_polars().height == run.to_arrow().num_rows == rows > 10
        wide = w.to_pandas(histograms=True)
        assert set(wide) == set(run.to_pandas(histograms=True))
        assert wide["hist_counts"].isna().equals(wide["kind"] == "scalar")  # one number has no histogram
        assert wide["hist_counts"].dropna().map(sum).sum() > 0
