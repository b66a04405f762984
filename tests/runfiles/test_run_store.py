"""The run store: what is written is there, whatever happens, and can be read meanwhile."""

import json
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from functools import partial

import pytest
import torch
from torch import nn

import hookline
from hookline.background import QUEUE
from hookline.lines import Stats
from hookline.rows import Rows
from hookline.runfiles import store as store_module
from hookline.runfiles.frames import pack, unpack
from hookline.runfiles.writer import Writer
from hookline.runs import export as export_module
from tests.support.paths import DATA
from tests.support.rows import differing
from tests.support.rows import row as plain_row

WRITER = """
import sys, time, numpy as np, hookline
from hookline.lines import Stats
store = hookline.RunStore(sys.argv[1])
hist = Stats.of([0.5, -2.0]).row()
for step in range(int(sys.argv[2])):
    fixed = {{"kind": "output", "step": step, "call": 0, "rank": 0, "mode": "train", **hist}}
    store.write([{{"site": f"layer{{n}}", **fixed}} for n in range(20)])
    print(step, flush=True)
    time.sleep({pause})
store.close()
"""
row = partial(plain_row, values=(0.25, -3.0, math.nan))


def test_blocks_hold_rows_with_all_they_have():
    rows = [
        row(ratio=0.5),
        row(hist=None),
        {**row(), "channels": {"mean": [1.0, 2.0]}, "own": "text"},
        {**row(), **Stats.of([math.inf]).row()},
    ]
    rows[2]["site"] = "another"
    columns = Rows.of(rows)
    first, other = columns.series[0], columns.series[2]
    unpacked = unpack(pack(columns, [3, 3, 4, 3]), {3: first, 4: other})
    assert unpacked.is_same(columns) and not unpacked.is_same(columns.at([0, 1, 2])) and first != other
    for got, expected in zip(unpacked, rows, strict=True):
        assert differing(got, expected) == []


def test_a_watched_training_run_is_stored_and_read(tmp_path):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hookline.watch(model, to=tmp_path / "runs" / "a") as w:
        for _ in range(5):
            model(torch.randn(4, 3)).sum().backward()
            optimizer.step()
    with hookline.open_run(tmp_path / "runs" / "a") as run:
        assert run.steps == [0, 1, 2, 3, 4] and set(run.sites) == {row["site"] for row in w.rows()}
        expected = sorted(w.rows(), key=lambda r: r["step"])
        key = lambda r: (r["step"], r["site"], r["kind"])  # noqa: E731
        for got, wanted in zip(sorted(run.rows(), key=key), sorted(expected, key=key), strict=True):
            assert differing(got, wanted) == []
        assert [r["step"] for r in run.rows("1", "output", steps=(1, 3))] == [1, 2, 3]
        assert run.rows("1", "output", stat="std")[0].keys() == {
            "site",
            "kind",
            "step",
            "call",
            "rank",
            "mode",
            "std",
        }
        meta = run.meta
        assert (
            meta["model"] == "Sequential"
            and meta["end"] == "normally"
            and meta["hookline"] == hookline.__version__
        )
        assert meta["sites"] == [["", "Sequential"], ["0", "Linear"], ["1", "ReLU"]]
        frame = run.to_pandas()
        assert len(frame) == len(w.rows()) + len(w.rows(kind="scalar"))
        run.export(tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text().startswith("site,kind")


def test_a_run_that_ends_by_an_exception_says_so(tmp_path):
    model = nn.Linear(3, 1)

    def fail():
        with torch.no_grad(), hookline.watch(model, to=tmp_path):
            model(torch.ones(1, 3))
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        fail()
    assert hookline.open_run(tmp_path).meta["end"] == "by an exception"


def test_kill_at_any_moment_keeps_all_that_was_flushed(tmp_path, monkeypatch):
    """Ten times: each flushed step is there whole, and the file opens."""
    seed = random.Random(0)
    for attempt in range(10):
        folder = tmp_path / str(attempt)
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER.format(pause=0.02), str(folder), "100000"],
            stdout=subprocess.PIPE,
            text=True,
        )
        process.stdout.readline()
        time.sleep(1.2 + seed.random())
        process.send_signal(signal.SIGKILL)
        told = [int(line) for line in process.communicate()[0].split()]
        with hookline.open_run(folder) as run:
            steps = run.steps
            assert steps == list(range(len(steps))) and steps, "flushed steps have no gaps"
            # Whatever is older than the flush interval at the kill must be there.
            assert len(told) + 1 - len(steps) <= 1.6 / 0.02, (len(told), len(steps))
            assert len(run.rows()) == 20 * len(steps)
            assert "end" not in run.meta


def test_a_reader_may_poll_during_the_whole_write(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER.format(pause=0.01), str(tmp_path), "300"], stdout=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    seen = []
    while process.poll() is None:
        try:
            with hookline.open_run(tmp_path) as run:
                seen.append(len(run.steps))
        except hookline.RunError:
            assert not seen, "once readable, always readable"
        time.sleep(0.05)
    process.communicate()
    assert seen == sorted(seen) and len(set(seen)) >= 3
    assert hookline.open_run(tmp_path).steps == list(range(300))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_full_disk_is_told_once_and_training_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(store_module, "FLUSH_ROWS", 400)  # so that some blocks fit before the disk is full
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(small)], check=False).returncode:
        pytest.skip("this machine lets nobody mount a tmpfs")
    try:
        model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(30)])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        full = pytest.warns(UserWarning, match="RunStore failed and gets no more rows")
        with full as caught, hookline.watch(model, to=small / "run") as w:
            for _ in range(60):
                model(torch.randn(4, 8)).sum().backward()
                optimizer.step()
                time.sleep(0.05)
        assert len(caught) == 1 and max(r["step"] for r in w.rows()) == 59
        with hookline.open_run(small / "run") as run:
            steps = run.steps
            assert steps == list(range(len(steps))) and 0 < len(steps) < 60
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_a_queue_that_is_full_waits_or_drops_and_counts(tmp_path, monkeypatch):
    started, release = threading.Event(), threading.Event()

    def slow(self, rows):
        started.set()
        release.wait()

    monkeypatch.setattr(Writer, "write", slow)
    monkeypatch.setattr(store_module, "FLUSH_ROWS", 1)
    store = hookline.RunStore(tmp_path / "drop", full="drop")
    store.write([row()])
    started.wait()
    for step in range(QUEUE + 5):
        store.write([row(step=step)])
    assert store.dropped == 5
    release.set()
    store.close()
    assert hookline.open_run(tmp_path / "drop").meta["dropped"] == 5


def test_steps_out_of_order_are_kept_and_a_repeated_one_counts_as_it_was_written_last(tmp_path):
    store = hookline.RunStore(tmp_path)
    for number, step in enumerate((5, 3, 9, 3)):
        store.write([row(step=step, own=float(number))])
    store.close()
    run = hookline.open_run(tmp_path)
    assert [(r["step"], r["own"]) for r in run.rows()] == [(3, 3.0), (5, 0.0), (9, 2.0)]
    assert run.steps == [3, 5, 9] and len(run.to_pandas()) == 3
    run.export(tmp_path / "rows.csv")
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 1 + 3


def _written(folder, rows):
    """A file with these rows in one transaction, so that each group of series has one frame."""
    (folder / "run").mkdir()
    with closing(Writer(folder / "run" / "rank0-0000.sqlite", {"rank": 0})) as writer:
        writer.write(rows)
    return folder / "run"


def test_groups_of_series_with_the_same_ends_may_have_different_steps(tmp_path):
    first = [row(site=f"a{n}", step=step) for step in (0, 4, 8) for n in range(16)]
    other = [row(site=f"b{n}", step=step) for step in (0, 3, 5, 8) for n in range(16)]
    whole = [row(site=f"c{n}", step=step) for step in range(20, 24) for n in range(20)]
    with hookline.open_run(_written(tmp_path, first + other + whole)) as run:
        assert run.steps == [0, 3, 4, 5, 8, 20, 21, 22, 23] and run.damage == []


def test_the_steps_of_a_damaged_frame_are_those_that_others_have(tmp_path):
    several = [row(site=f"a{n}", step=step) for step in range(3) for n in range(32)]
    folder = _written(tmp_path, [*several, *(row(site=f"b{n}", step=7) for n in range(16))])
    with closing(sqlite3.connect(folder / "rank0-0000.sqlite")) as file:
        for number in (1, 3):
            file.execute("UPDATE block SET stats = zeroblob(100) WHERE number = ?", (number,))
        file.commit()
    with hookline.open_run(folder) as run, pytest.warns(UserWarning, match="can't be read"):
        assert run.steps == [0, 1, 2] and len(run.damage) == 2


def test_damaged_histograms_leave_the_statistics(tmp_path):
    folder = _written(tmp_path, [row(step=step) for step in range(3)])
    with closing(sqlite3.connect(folder / "rank0-0000.sqlite")) as file:
        file.execute("UPDATE block SET hists = zeroblob(100)")
        file.commit()
    with hookline.open_run(folder) as run:
        assert run.columns(stat="max")["max"].tolist() == [0.25] * 3 and run.damage == []
        with pytest.warns(UserWarning, match="can't be read"):
            assert run.rows() == []


def test_ten_thousand_sites(tmp_path):
    store = hookline.RunStore(tmp_path)
    for step in range(2):
        store.write([row(site=f"block.{n}", step=step) for n in range(10_000)])
    store.close()
    run = hookline.open_run(tmp_path)
    assert len(run.sites) == 10_000
    assert [r["step"] for r in run.rows("block.7777")] == [0, 1]


def test_names_are_only_data(tmp_path):
    odd = "a'; DROP TABLE frame; --<script>é\n"
    store = hookline.RunStore(tmp_path)
    store.write([row(site=odd)])
    store.close()
    assert hookline.open_run(tmp_path).sites == [odd]


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: None,
        lambda folder: (folder / "rank0-0000.sqlite").write_bytes(b"garbage" * 1000),
        lambda folder: (folder / "rank0-0000.sqlite").write_bytes(b""),
    ],
    ids=["empty folder", "garbage", "empty file"],
)
def test_what_is_no_run_is_refused_clearly(tmp_path, damage):
    damage(tmp_path)
    with pytest.raises(hookline.RunError, match=r"no run|not a file of a hookline run"):
        hookline.open_run(tmp_path)
    with pytest.raises(hookline.RunError):
        hookline.open_run(tmp_path / "missing")


def test_a_truncated_file_never_gives_wrong_rows(tmp_path):
    store = hookline.RunStore(tmp_path)
    for step in range(50):
        store.write([row(site=f"s{n}", step=step) for n in range(100)])
    store.close()
    (file,) = tmp_path.glob("*.sqlite")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(hookline.RunError):
        hookline.open_run(tmp_path).rows()


def test_a_newer_format_is_refused_with_what_to_do(tmp_path):
    store = hookline.RunStore(tmp_path)
    store.write([row()])
    store.close()
    (file,) = tmp_path.glob("*.sqlite")
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE name = 'version'")
    with pytest.raises(hookline.RunError, match="Upgrade hookline"):
        hookline.open_run(tmp_path)


def test_a_folder_that_is_a_file_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("here")
    with pytest.raises(hookline.RunError, match="can't be kept"):
        hookline.watch(nn.Linear(1, 1), to=tmp_path / "file").__enter__()


def test_a_stored_run_opens_without_any_framework(tmp_path):
    store = hookline.RunStore(tmp_path)
    store.write([row()])
    store.close()
    code = (
        "import sys, hookline; run = hookline.open_run(sys.argv[1]); assert run.rows()\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_export_from_the_command_line(tmp_path):
    store = hookline.RunStore(tmp_path / "run")
    store.write([row()])
    store.close()
    command = [sys.executable, "-m", "hookline", "export", str(tmp_path / "run")]
    done = subprocess.run([*command, str(tmp_path / "rows.csv")], capture_output=True, text=True, check=True)
    assert "wrote" in done.stdout and len((tmp_path / "rows.csv").read_text().splitlines()) == 2
    wrong = subprocess.run([*command, str(tmp_path / "rows.xyz")], capture_output=True, text=True, check=False)
    assert wrong.returncode == 1 and ".parquet or .csv" in wrong.stderr
    told = subprocess.run(
        [*command, str(tmp_path / "b.csv"), "--json"], capture_output=True, text=True, check=True
    )
    size = (tmp_path / "b.csv").stat().st_size
    assert json.loads(told.stdout) == {"path": str(tmp_path / "b.csv"), "bytes": size}


def test_an_export_of_many_steps_goes_piece_by_piece_and_tells_how_far_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(export_module, "ROWS", 100)
    store = hookline.RunStore(tmp_path / "run")
    for step in (*range(0, 300, 2), 7, 7):
        store.write([row(site, step) for site in ("a", "b")])
    store.write([row("late", 1000, own=1.5)])  # a column that no earlier row has
    store.close()
    shares = []
    with hookline.open_run(tmp_path / "run") as run:
        assert max(len(some) for some in export_module.pieces(run)) <= 100
        run.export(tmp_path / "rows.csv", progress=shares.append)
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 151 + 1 and lines[0].endswith(",own") and lines[-1].endswith(",1.5")
    assert len(shares) > 3 and shares == sorted(shares) and shares[-1] == 1.0


@pytest.mark.parametrize("where", ["folder/that/is/not/there/x.csv", "taken/x.csv"])
def test_an_export_that_cannot_be_written_says_so(tmp_path, where):
    (tmp_path / "taken").write_text("a file")
    store = hookline.RunStore(tmp_path / "run")
    store.write([row()])
    store.close()
    with pytest.raises(hookline.RunError, match="can't be written"):
        hookline.open_run(tmp_path / "run").export(tmp_path / where)


@pytest.mark.parametrize("number", [1, 2])
def test_a_run_of_an_older_format_still_opens(tmp_path, number):
    """Written by the code of then: format 1 had histograms in the blocks of statistics, format 2 no checksums."""
    shutil.copy(DATA / f"run-format-{number}.sqlite", tmp_path / "rank0-0000.sqlite")
    with hookline.open_run(tmp_path) as run:
        assert (
            run.meta["version"] == number
            and run.count() == 6
            and run.damage == []
            and not run.recordings
            and run.sites == ["fc", "fc.weight"]
            and run.steps == [0, 1, 2]
        )
        outputs, updates = run.rows("fc", "output"), run.rows("fc.weight", "update")
    fixed = {"site": "fc", "kind": "output", "call": 0, "rank": 0, "mode": "train"}
    for step, got in enumerate(outputs):
        wanted = {**fixed, "step": step, **Stats.of([0.25 * step, -3.0, math.nan]).row()}
        assert differing(got, wanted) == []
    assert [(got["ratio"], got["hist"]) for got in updates] == [(0.5, None)] * 3


def test_a_row_that_comes_twice_at_once_is_counted_once(tmp_path):
    with closing(hookline.RunStore(tmp_path / "run")) as store:
        store.write([row(own=1.0), row(step=1), row(own=2.0)])
    with hookline.open_run(tmp_path / "run") as run:
        assert run.count() == 2 == len(run.rows()) and run.rows(steps=(0, 0))[0]["own"] == 2.0
