"""The page's server: what it tells of runs is what is in them, and long runs lose no spike."""

import base64
import http.client
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import tracemalloc
from contextlib import closing
from functools import partial

import numpy as np
import pytest

import hookline
from hookline.page import judging, queries, viewed
from hookline.page.shrink import axis, marked, onto
from hookline.page.viewed import Health, ViewedRun
from hookline.runs import columns as columns_module
from hookline.runs import folder as folder_module
from hookline.runs.columns import Held
from hookline.runs.folder import RunFolder
from hookline.runs.growing import OpenRun
from tests.support.pages import NAN, Client, layers, store
from tests.support.paths import DATA, ROOT
from tests.support.rows import row


def decoded(text):
    return np.frombuffer(base64.b64decode(text), "<f4")


@pytest.fixture
def served(tmp_path):
    layers(tmp_path / "a")
    layers(tmp_path / "deep" / "b", steps=3)
    with hookline.serve(tmp_path) as server:
        yield Client(server.url)


def test_runs_below_the_folder_are_listed(served):
    status, answer = served.get("/api/runs")
    runs = {run["name"]: run for run in answer["runs"]}
    assert status == 200 and set(runs) == {"a", "deep/b"}
    assert runs["a"]["last"] == 11 and runs["a"]["state"] == "ended" and runs["a"]["modules"] == 6


def test_a_run_given_directly_is_listed_by_its_name(tmp_path):
    layers(tmp_path / "mine")
    with hookline.serve(tmp_path / "mine") as server:
        assert [run["name"] for run in Client(server.url).get("/api/runs")[1]["runs"]] == ["mine"]


def test_an_unreadable_run_is_listed_with_the_reason(tmp_path):
    layers(tmp_path / "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "rank0-0000.sqlite").write_bytes(b"garbage" * 500)
    with hookline.serve(tmp_path) as server:
        client = Client(server.url)
        runs = {run["name"]: run for run in client.get("/api/runs")[1]["runs"]}
        assert "not a file of a hookline run" in runs["bad"]["error"] and "error" not in runs["good"]
        status, answer = client.get("/api/run?run=bad")
        assert status == 404 and "not a file of a hookline run" in answer["error"]


def test_a_run_that_is_just_being_made_is_no_error(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "rank0-0000.sqlite").touch()
    with hookline.serve(tmp_path) as server:
        assert Client(server.url).get("/api/runs")[1]["runs"] == []
        os.utime(tmp_path / "new" / "rank0-0000.sqlite", (1, 1))
        assert "error" in Client(server.url).get("/api/runs")[1]["runs"][0], "an old empty file is one"


def test_a_run_is_described(served):
    status, about = served.get("/api/run?run=a")
    assert status == 200 and about["steps"] == list(range(12)) and about["progress"] == 1
    assert ["a.fc", "Linear"] in about["modules"] and about["meta"]["model"] == "Net"
    assert {series[1] for series in about["series"]} == {"output", "grad_output", "param_grad", "update"}
    assert "ratio" in about["stats"] and all(found == [] for found in about["health"].values())


def test_curves_are_the_statistics_of_the_run(served, tmp_path):
    about = served.get("/api/run?run=a")[1]
    with hookline.open_run(tmp_path / "a") as run:
        for number, (site, kind, *_) in enumerate(about["series"]):
            status, answer = served.ask("curves", run="a", series=[number], stat="std")
            rows = run.rows(site, kind)
            assert status == 200 and answer["x"] == [one["step"] for one in rows] and not answer["spans"]
            np.testing.assert_array_equal(decoded(answer["values"][0]), np.float32([one["std"] for one in rows]))


def test_images_hold_the_histograms(served, tmp_path):
    _, answer = served.ask("heat", run="a", series=[0], columns=50)
    (image,) = answer["images"]
    assert image["starts"] == list(range(12)) and len(image["edges"]) == image["rows"] and image["bad"] == []
    pixels = np.frombuffer(base64.b64decode(image["pixels"]), np.uint8).reshape(image["rows"], 12)
    assert image["edges"] == sorted(image["edges"], reverse=True) and (pixels.max(axis=0) > 100).all()
    share = np.where(pixels > 0, 1e-4 ** (1 - (pixels - 1.0) / 254), 0).sum(axis=0)
    assert (abs(share - 1) < 0.1).all(), "all values of a step are in its column"


def test_a_step_has_its_rows_and_quantiles(served, tmp_path):
    about = served.get("/api/run?run=a")[1]
    _, answer = served.ask("at", run="a", series=list(range(len(about["series"]))), step=5)
    with hookline.open_run(tmp_path / "a") as run:
        for (site, kind, *_), got in zip(about["series"], answer["rows"], strict=True):
            (expected,) = run.rows(site, kind, steps=(5, 5))
            assert got["step"] == 5 and got["std"] == pytest.approx(expected["std"], rel=1e-5)
            assert sorted(got["quantiles"]) == got["quantiles"]
            assert expected["min"] <= got["quantiles"][2] <= expected["max"]
    _, later = served.ask("at", run="a", series=[0], step=999)
    assert later["rows"][0]["step"] == 11, "the last step there is"


def test_no_spike_is_lost_and_nothing_is_made_up():
    steps = np.arange(0, 5000, 2)
    random = np.random.default_rng(1)
    for _ in range(50):
        values = random.standard_normal(len(steps))
        values[random.integers(0, len(steps), 3)] *= 1e6
        values[random.integers(0, len(steps), 40)] = NAN
        x, starts = axis(steps, 300)
        shown = onto(x, starts, steps, values)
        assert len(shown) == len(x) <= 300 and (np.diff(x) >= 0).all()
        assert np.nanmax(shown) == np.nanmax(values) and np.nanmin(shown) == np.nanmin(values)
        assert set(shown[~np.isnan(shown)]) <= set(values[~np.isnan(values)])


def test_few_steps_are_shown_as_they_are():
    x, starts = axis(np.asarray([1, 5, 9]), 10)
    assert starts is None and onto(x, starts, np.asarray([5]), np.asarray([2.0])).tolist()[1] == 2.0
    assert marked(x, starts, np.asarray([9])) == [2]
    x, starts = axis(np.arange(100), 10)
    assert marked(x, starts, np.asarray([3, 99])) == [0, 8]


def test_not_a_number_is_told_apart_from_not_recorded(tmp_path):
    rows = [row("fc", step, values=(NAN, 1.0) if step == 3 else (0.5, 1.0)) for step in range(6)]
    store(tmp_path / "a", [*rows, *(row("other", step) for step in range(0, 6, 2))])
    with hookline.serve(tmp_path) as server:
        _, answer = Client(server.url).ask("curves", run="a", series=[0, 1], stat="mean")
    assert answer["bad"] == [[3], []] and answer["x"] == list(range(6))
    assert np.isnan(decoded(answer["values"][1])).tolist() == [False, True] * 3


def test_a_step_that_was_written_twice_counts_as_it_was_written_last(tmp_path):
    for value in (1.0, 2.0):  # two processes, one after the other, in one folder
        store(tmp_path / "a", [row(step=step, values=(value, value)) for step in range(3)], resume=value > 1)
    run = OpenRun(tmp_path / "a", "a")
    run.catch_up()
    steps, stats = run.columns(0)
    assert steps.tolist() == [0, 1, 2] and stats["mean"].tolist() == [2.0, 2.0, 2.0] and len(run.series) == 1
    run.close()


def test_ranks_are_series_of_their_own(tmp_path):
    store(tmp_path / "a", [row(values=(1.0,))])
    store(tmp_path / "a", [row(values=(3.0,))], rank=1)
    run = OpenRun(tmp_path / "a", "a")
    run.catch_up()
    assert {(one.rank, run.columns(n).stats["mean"][0]) for n, one in enumerate(run.series)} == {
        (0, 1.0),
        (1, 3.0),
    }
    run.close()


def test_a_run_of_the_older_format_is_shown(tmp_path):
    (tmp_path / "old").mkdir()
    shutil.copy(DATA / "run-format-1.sqlite", tmp_path / "old" / "rank0-0000.sqlite")
    with hookline.serve(tmp_path) as server:
        client = Client(server.url)
        assert client.get("/api/run?run=old")[1]["steps"] == [0, 1, 2]
        (image,) = client.ask("heat", run="old", series=[0])[1]["images"]
        assert image["starts"] == [0, 1, 2] and image["bad"] == [0, 1, 2]


# Live


def test_new_steps_are_told_by_the_stream(tmp_path):
    kept = hookline.RunStore(tmp_path / "live")
    kept.open({"model": "Net", "sites": [["fc", "Linear"]]})
    kept.write([row(step=0)])
    with hookline.serve(tmp_path) as server:
        client = Client(server.url)
        connection = http.client.HTTPConnection(client.host, client.port, timeout=20)
        connection.request("GET", "/api/events?run=live", headers={"Cookie": client.cookie})
        stream = connection.getresponse()
        assert stream.headers["Content-Type"].startswith("text/event-stream")

        def news():
            while True:
                line = stream.readline().decode()
                if line.startswith("data: "):
                    return json.loads(line[6:])[0]

        while (first := news())["revision"] == 0:
            pass
        assert first["state"]["state"] == "running"
        kept.write([row(step=1)])
        kept.close()
        while (told := news())["state"]["state"] != "ended":
            pass
        assert told["revision"] > first["revision"]
        assert client.get("/api/run?run=live")[1]["steps"] == [0, 1]
        stream.close()
        connection.close()


def _opens(folder):
    try:
        hookline.open_run(folder).close()
    except hookline.RunError:
        return False
    return True


def test_a_run_nobody_writes_to_any_more_is_not_called_running(tmp_path):
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[2]); import hookline; from tests.support.rows import row\n"
        "kept = hookline.RunStore(sys.argv[1]); kept.write([row()]); time.sleep(60)"
    )
    arguments = [str(tmp_path / "a"), str(ROOT)]
    process = subprocess.Popen([sys.executable, "-c", code, *arguments])
    while not (tmp_path / "a").is_dir() or not _opens(tmp_path / "a"):
        time.sleep(0.05)
    process.kill()
    process.wait()
    for file in (tmp_path / "a").iterdir():
        os.utime(file, (time.time() - 3600, time.time() - 3600))
    with hookline.serve(tmp_path) as server:
        (run,) = Client(server.url).get("/api/runs")[1]["runs"]
    assert run["state"] == "silent"


@pytest.mark.parametrize(
    ("error", "state", "why"),
    [(ValueError("too deep"), "failed", "ValueError: too deep"), (KeyboardInterrupt(), "interrupted", None)],
)
def test_how_a_run_ended_is_told(tmp_path, error, state, why):
    kept = hookline.RunStore(tmp_path / "a")
    kept.write([row()])
    try:
        raise error
    except BaseException:
        kept.close()
    with hookline.serve(tmp_path) as server:
        now = Client(server.url).get("/api/run?run=a")[1]["state"]
        (listed,) = Client(server.url).get("/api/runs")[1]["runs"]
    assert (now["state"], now["why"]) == (listed["state"], listed["why"]) == (state, why)


def test_a_revision_is_never_ahead_of_what_is_told_of_it(tmp_path):
    """Else a page that got the one without the other would wait for news that has been told already."""
    store(tmp_path / "a", [row("early")])

    class Raced(ViewedRun):
        @property
        def steps(self):
            store(tmp_path / "a", [row("late", 1)], resume=True)
            self.catch_up()  # what the stream's thread does meanwhile
            return super().steps

    run = Raced(tmp_path / "a", "a")
    about = queries.describe(run, 0)
    assert (about["revision"], run.revision) == (1, 2)
    assert queries.describe(run)["revision"] == 2
    run.close()


def test_closing_ends_streams_at_once_and_twice_is_fine(tmp_path):
    layers(tmp_path / "a")
    server = hookline.serve(tmp_path)
    client = Client(server.url)
    connection = http.client.HTTPConnection(client.host, client.port, timeout=20)
    connection.request("GET", "/api/events?run=a", headers={"Cookie": client.cookie})
    with connection.getresponse() as stream:
        assert stream.readline()
        server.close()
        server.close()
    connection.close()
    assert not any(thread.name == "hookline-page" for thread in threading.enumerate())
    with pytest.raises(OSError, match="refused"):
        http.client.HTTPConnection(client.host, client.port, timeout=5).request("GET", "/")


def test_closing_waits_for_no_long_answer_and_logs_nothing(tmp_path, monkeypatch, caplog):
    long_run(tmp_path / "a", steps=40, at_once=1)
    began = threading.Event()
    frames = columns_module.Reader.frames

    def slowly(self, after, limit, *more, **options):
        began.set()
        time.sleep(0.1)
        return frames(self, after, min(limit, 1), *more, **options)

    monkeypatch.setattr(ViewedRun, "health", lambda run, seconds=0.0: Health(-1, []))  # it would read all
    server = hookline.serve(tmp_path)
    client = Client(server.url)
    client.get("/api/run?run=a")
    monkeypatch.setattr(columns_module.Reader, "frames", slowly)
    asked = threading.Thread(target=partial(client.ask, "curves", run="a", series=[0], stat="mean"))
    asked.start()
    assert began.wait(10)
    start = time.monotonic()
    server.close()
    took = time.monotonic() - start
    asked.join()
    assert took < 2, "the answer would have taken four seconds, and a server waits for three"
    assert not caplog.records


# Health that is not known


def test_health_is_not_told_before_it_is_known(tmp_path, monkeypatch):
    """A run with NaN was called healthy until somebody had looked."""
    store(tmp_path / "a", [row("fc", step, values=(NAN, 1.0)) for step in range(4)], [("fc", "Linear")])
    go = threading.Event()

    def slowly(*args):
        go.wait(30)
        return judging.judge(*args)

    monkeypatch.setattr(viewed, "judge", slowly)
    with hookline.serve(tmp_path) as server:
        client = Client(server.url)
        about = client.get("/api/run?run=a")[1]
        assert about["health"] is None and about["looked"] == -1 and about["progress"] == 1
        go.set()
        while (about := client.get("/api/run?run=a")[1])["health"] is None:
            time.sleep(0.02)
    assert about["health"]["fc"][0][0] == "nan_origin"
    assert (about["looked"], about["until"]) == (about["revision"], 3)


def test_health_that_can_not_be_found_out_is_told_and_not_called_healthy(tmp_path, monkeypatch):
    def fails(*args):
        raise ValueError("no numbers")

    monkeypatch.setattr(viewed, "judge", fails)
    layers(tmp_path / "a")
    with hookline.serve(tmp_path) as server:
        client = Client(server.url)
        while not (about := client.get("/api/run?run=a")[1])["no_health"]:
            time.sleep(0.02)
    assert about["health"] is None and about["no_health"] == "ValueError: no numbers"
    with pytest.raises(ValueError, match="no numbers"):
        hookline.report(tmp_path / "a", tmp_path / "a.html")


# Long runs, and reports


def long_run(folder, layers=40, steps=60, at_once=3):
    """As a watch writes it: a frame for each 16 series and each few steps."""
    kept = hookline.RunStore(folder)
    kept.open({"model": "Net", "sites": [[f"layer{n}", "Linear"] for n in range(layers)]})
    one = row()
    rows = []
    for step in range(steps):
        for n in range(layers):
            mine = {**one, "site": f"layer{n}", "step": 2 * step, "mean": float(n * steps + step)}
            rows.append(mine if n < layers - 1 else {**mine, "ratio": 0.5})
        if step % at_once == at_once - 1:
            kept._opened().write(rows)
            rows = []
    kept.close()
    return folder


def test_only_what_is_asked_for_is_read(tmp_path, monkeypatch):
    long_run(tmp_path / "a")  # 20 writes of 3 groups
    read = []
    decoded = columns_module._decoded
    counted = lambda *args: (read.append(1) or frame for frame in decoded(*args))  # noqa: E731
    monkeypatch.setattr(columns_module, "_decoded", counted)
    run = ViewedRun(tmp_path / "a", "a")
    monkeypatch.setattr(run, "health", lambda seconds=0.0: Health(-1, []))
    about = queries.describe(run, 5.0)
    assert about["steps"] == list(range(0, 120, 2)) and len(about["series"]) == 40 and about["progress"] == 1
    assert len(read) <= 20 + 2 * 3, "a frame for each stretch of steps, and two for each group"
    assert "ratio" in about["stats"], "also what only the last series has"
    read.clear()
    queries.curves(run, {"series": [0, 1, 15], "stat": "mean"})
    assert len(read) == 20, "one group of three"
    queries.curves(run, {"series": [3], "stat": "std"})
    assert len(read) == 20, "and only once"
    run.close()


def test_memory_has_a_bound_and_the_numbers_are_the_same(tmp_path):
    long_run(tmp_path / "a", layers=160)
    held = Held(60_000)  # a group takes 92,160 bytes or more
    small, large = ViewedRun(tmp_path / "a", "a", held), ViewedRun(tmp_path / "a", "a")
    for run in (small, large):
        run.catch_up()
    for number in (*range(0, 160, 7), *range(0, 160, 11)):
        few, many = small.columns(number), large.columns(number)
        np.testing.assert_array_equal(few.steps, many.steps)
        for name in many.stats:
            np.testing.assert_array_equal(few.stats[name], many.stats[name])
        assert many.stats["mean"].tolist() == [number * 60 + step for step in range(60)]
        few, many = small.histograms(number), large.histograms(number)
        np.testing.assert_array_equal(few.counts, many.counts)
        assert sum(len(f._groups) + len(f._histograms) for f in small._files.values()) <= 1, "the last one alone"
    assert held.bytes < 200_000 and small.look().findings == large.look().findings
    for run in (small, large):
        run.close()
    assert held.bytes == 0


def test_a_run_that_grows_is_read_on_from_where_it_was(tmp_path):
    kept = hookline.RunStore(tmp_path / "a")
    kept.open({"sites": [["fc", "Linear"]]})
    run = None
    for step in range(5):
        kept._opened().write([row("fc", step, values=(float(step),), **({"late": 1.0} if step > 2 else {}))])
        run = run or ViewedRun(tmp_path / "a", "a")
        run.catch_up()
        assert run.columns(0).stats["mean"].tolist() == list(range(step + 1)) and run.steps == list(
            range(step + 1)
        )
        assert run.look().until == step
    assert np.isnan(run.columns(0).stats["late"]).tolist() == [True, True, True, False, False]
    run.close()
    kept.close()


def test_the_list_opens_files_only_when_they_have_changed(tmp_path, monkeypatch):
    layers(tmp_path / "a")
    shelf = RunFolder(tmp_path, ViewedRun)
    first = shelf.overview()
    monkeypatch.setattr(folder_module, "facts", lambda files: pytest.fail("opened again"))
    assert shelf.overview() == first
    monkeypatch.undo()
    layers(tmp_path / "a", steps=20, resume=True)
    assert shelf.overview()[0]["last"] == 19
    shelf.close()


def test_the_list_tells_the_largest_step_also_of_a_damaged_run(tmp_path):
    layers(tmp_path / "a")
    file = tmp_path / "a" / "rank0-0000.sqlite"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE frame SET last = 5000 WHERE number = 1")  # its checksum is that of 11
    assert RunFolder(tmp_path, ViewedRun).overview()[0]["last"] == 11
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM frame")
    assert RunFolder(tmp_path, ViewedRun).overview()[0]["last"] is None


def test_a_step_without_finite_values_is_left_for_one_that_has_them(tmp_path):
    rows = [row("fc", step, values=(NAN, NAN) if step > 2 else (0.5, 1.0)) for step in range(6)]
    store(tmp_path / "a", [*rows, *(row("ok", step) for step in range(6))])
    with hookline.serve(tmp_path) as server:
        client = Client(server.url)
        at = lambda **ask: [one["step"] for one in client.ask("at", run="a", series=[0, 1], **ask)[1]["rows"]]  # noqa: E731
        assert at() == [5, 5] and at(finite=True) == [2, 5] and at(step=4) == [4, 4]


def test_a_million_rows_take_arrays_not_dicts(tmp_path):
    """A tenth of it here: 40 series over 2,500 steps; as dicts these rows would be a gigabyte."""
    kept = hookline.RunStore(tmp_path / "a")
    one = row()
    for step in range(2500):
        kept.write([{**one, "site": f"layer{n}", "step": step} for n in range(40)])
    kept.close()
    run = ViewedRun(tmp_path / "a", "a")
    tracemalloc.start()
    run.catch_up()
    run.columns(0)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(run.steps) == 2500 and len(run.series) == 40
    assert used < 2.5 * 100_000 * 14 * 8, f"{used / 1e6:.0f} MB"
    run.close()


def test_a_report_is_one_file_with_everything_in_it(tmp_path):
    layers(tmp_path / "a")
    told = []
    path = hookline.report(tmp_path / "a", tmp_path / "a.html", progress=told.append)
    text = path.read_text()
    assert told == sorted(told) and told[-1] == 1
    assert not re.search(r"(src|href)=[\"'](?!data:|#)", text.split('id="data"')[0]), "nothing is fetched"
    assert "default-src 'none'" in text and len(text) < 300_000
    with hookline.open_run(tmp_path / "a") as run:
        assert hookline.report(run, tmp_path / "again.html").read_text() == text


@pytest.mark.parametrize(
    ("run", "path", "says"),
    [
        ("missing", "a.html", "no run in"),
        ("a", "a.pdf", "ends in .html"),
        ("a", "nowhere/a.html", "can't be written"),
    ],
)
def test_what_can_not_be_reported_is_said(tmp_path, run, path, says):
    layers(tmp_path / "a")
    with pytest.raises(hookline.HooklineError, match=says):
        hookline.report(tmp_path / run, tmp_path / path)


def test_without_its_packages_the_page_says_what_to_install(tmp_path, monkeypatch):
    for name in ("starlette", "uvicorn", "hookline.page.app", "hookline.page.guard"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    layers(tmp_path / "a")
    with pytest.raises(hookline.MissingExtra, match=r"hookline\[page\]"):
        hookline.serve(tmp_path)
    assert hookline.report(tmp_path / "a", tmp_path / "a.html").exists(), "a report needs no server"
