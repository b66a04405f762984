"""Blocks that are never left, and sinks that are never closed: what they have is kept when the process ends."""

import signal
import sqlite3
import subprocess
import sys
import threading
import time

import pytest
import torch

import hookline

HEAD = """
import os, sys, time, warnings, torch, hookline
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
def train(steps):
    for _ in range(steps):
        step()
folder = sys.argv[1]
"""


def ran(code, *arguments, head=HEAD):
    return subprocess.run(
        [sys.executable, "-c", head + code, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def seen(folder):
    with hookline.open_run(folder) as run:
        return run.steps, run.meta.get("end"), run.meta.get("error")


@pytest.mark.parametrize(
    ("how", "code", "end", "error"),
    [
        ("", 0, "normally", None),
        ("sys.exit()", 0, "normally", None),
        ("sys.exit(3)", 3, "normally", None),
        ("raise ValueError('mine')", 1, "by an exception", "ValueError: mine"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "interrupted", None),
        ("del w, model, optimizer", 0, "normally", None),
    ],
)
@pytest.mark.parametrize("entered", ["w.start()", "w.__enter__()"])
def test_a_watch_that_is_never_left_keeps_every_step(tmp_path, how, code, end, error, entered):
    done = ran(f"w = hookline.watch(model, to=folder)\n{entered}\ntrain(30)\n{how}", tmp_path)
    assert done.returncode == code, done.stderr
    assert seen(tmp_path) == (list(range(30)), end, error)
    assert "Warning" not in done.stderr


def test_a_watch_that_is_never_left_and_has_no_name(tmp_path):
    done = ran("hookline.watch(model, to=folder).start()\ntrain(30)", tmp_path)
    assert done.returncode == 0 and done.stderr == "" and seen(tmp_path)[0] == list(range(30))


def test_a_generator_that_is_never_exhausted(tmp_path):
    code = """
def steps():
    with hookline.watch(model, to=folder):
        while True:
            yield step()
forever = steps()
for _ in range(30): next(forever)
"""
    assert ran(code, tmp_path).returncode == 0
    assert seen(tmp_path)[0] == list(range(30))


def test_sinks_that_nobody_closes_are_closed(tmp_path):
    code = """
class Mine:
    def write(self, rows): self.rows = len(rows)
    def close(self): print("closed", self.rows > 0)
w = hookline.watch(model, to=[folder + "/a", Mine()]).start()
train(3)
"""
    assert ran(code, tmp_path).stdout == "closed True\n" and seen(tmp_path / "a")[0] == [0, 1, 2]
    code = """
from hookline.lines import Stats
store = hookline.RunStore(folder)
for n in range(30):
    base = {"site": "fc", "kind": "output", "step": n, "call": 0, "rank": 0, "mode": "train"}
    store.write([{**base, **Stats.of([1.0]).row()}])
"""
    for end in ("", "del store", "store = None; sys.exit(1)"):
        folder = tmp_path / f"store{len(end)}"
        ran(code + end, folder)
        assert seen(folder)[:2] == (list(range(30)), "normally")


def test_a_recording_that_is_never_left_is_kept(tmp_path):
    done = ran("hookline.record(model, to=folder).start()\nstep()", tmp_path)
    assert done.returncode == 0, done.stderr
    with hookline.open_run(tmp_path) as run:
        assert run.recordings[0].names == ["0", "1", "2", ""]


@pytest.mark.parametrize("how", ["os._exit(0)", "os.kill(os.getpid(), 15)", "os.kill(os.getpid(), 9)"])
def test_what_ends_a_process_without_a_word_loses_a_second_at_most(tmp_path, how):
    """Nothing of Python runs then: what is older than a second is there, the last steps may be missing."""
    code = f"w = hookline.watch(model, to=folder).start()\ntrain(20)\ntime.sleep(3)\ntrain(5)\n{how}"
    ran(code, tmp_path)
    steps, end, _ = seen(tmp_path)
    assert steps[:20] == list(range(20)) and end is None


def test_sigterm_that_the_script_takes_for_an_exit_loses_nothing(tmp_path):
    code = """
import signal
signal.signal(signal.SIGTERM, lambda *told: sys.exit(9))
w = hookline.watch(model, to=folder).start()
train(7)
print("ready", flush=True)
while True: time.sleep(0.01)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 9 and seen(tmp_path)[0] == list(range(7))


def test_killed_some_seconds_after_an_optimizer_step_that_step_is_stored(tmp_path):
    code = """
w = hookline.watch(model, to=folder).start()
train(5)
print("ready", flush=True)
time.sleep(60)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    time.sleep(5)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with hookline.open_run(tmp_path) as run:
        assert run.steps == [0, 1, 2, 3, 4]
        kinds = {row["kind"] for row in run.rows(steps=(4, 4))}
        assert kinds == {"output", "grad_output", "param", "param_grad", "update"}


@pytest.mark.parametrize("pause", [0.0, 0.3, 0.7, 1.3, 2.2])
def test_a_step_is_on_the_disk_soon_after_it_ended_whatever_the_pace(tmp_path, pause):
    """Asked two seconds after the last step, since the machine may be busy; it was never there before."""
    code = """
pause = float(sys.argv[2])
w = hookline.watch(model, to=folder).start()
for _ in range(4):
    step()
    print("stepped", flush=True)
    time.sleep(pause)
time.sleep(60)
"""
    command = [sys.executable, "-c", HEAD + code, str(tmp_path), str(pause)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for _ in range(4):
        process.stdout.readline()
    time.sleep(2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert seen(tmp_path)[0] == [0, 1, 2, 3]


def test_a_second_optimizer_that_steps_late_is_part_of_the_step(tmp_path):
    """What was handed over meanwhile is written again, and counts once."""
    code = """
first, second = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (model[0], model[2])]
mine = []
class Mine:
    def write(self, rows): mine.append({(row["site"], row["kind"]) for row in rows})
    def close(self): pass
with hookline.watch(model, to=[folder, Mine()]) as w:
    for _ in range(2):
        model(torch.ones(2, 3)).sum().backward()
        first.step()
        time.sleep(1.5)
        run = hookline.open_run(folder)
        early = {row["site"] for row in run.rows(kind="update", steps=(w.now, w.now))}
        assert early == {"0.weight", "0.bias"}, early
        assert len(mine) == w.now, "a sink of another kind gets a step once"
        second.step()
assert len(mine) == 2 and all(("2.weight", "update") in rows and ("0.weight", "update") in rows for rows in mine)
rows = hookline.open_run(folder).rows()
assert len(rows) == len({(row["site"], row["kind"], row["step"]) for row in rows}) == len(w.rows())
assert sorted(row["step"] for row in rows if (row["site"], row["kind"]) == ("2.weight", "update")) == [0, 1]
assert all(a["mean"] == b["mean"] for a, b in zip(
    sorted(rows, key=lambda r: (r["step"], r["site"], r["kind"])),
    sorted(w.rows(), key=lambda r: (r["step"], r["site"], r["kind"]))))
"""
    done = ran(code, tmp_path)
    assert done.returncode == 0, done.stderr


def test_nothing_more_is_written_of_a_step_that_was_handed_over_whole(tmp_path):
    code = """
with hookline.watch(model, to=folder) as w:
    for _ in range(3):
        step()
        time.sleep(1.2)
"""
    assert ran(code, tmp_path).returncode == 0
    with sqlite3.connect(tmp_path / "rank0-0000.sqlite") as connection:
        (frames,) = connection.execute("SELECT COUNT(*) FROM frame WHERE series_group = 0").fetchone()
    assert frames == 3


def test_a_forked_child_that_exits_leaves_its_parents_run_alone(tmp_path):
    code = """
w = hookline.watch(model, to=folder).start()
train(3)
if not os.fork():
    sys.exit(0)
os.wait()
time.sleep(0.5)
train(3)
"""
    done = ran("warnings.simplefilter('ignore')\n" + code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert seen(tmp_path)[:2] == (list(range(6)), "normally")


def test_no_thread_is_left_after_a_watch():
    before = threading.active_count()
    for _ in range(3):
        with hookline.watch(torch.nn.Linear(1, 1)):
            pass
    assert threading.active_count() == before


IN_ITS_OWN_THREAD = """
import sys, time
from hookline.sinks import RunStore
from hookline.runfiles.writer import Writer

store = [RunStore(sys.argv[1])]
store[0].open({"rank": 0})
write = Writer._write

def writes_while_the_collector_runs(self, rows):
    store.clear()
    time.sleep(0.2)  # the main thread may be done by then
    write(self, rows)

Writer._write = writes_while_the_collector_runs
row = {"site": "fc", "kind": "output", "call": 0, "mode": "train", "rank": 0}
for step in range(3):
    store[0].write([{**row, "step": step}], at_once=step == 2)
while store:
    time.sleep(0.01)
"""


def test_a_run_that_dies_in_the_thread_that_writes_it_is_whole(tmp_path):
    """The collector may come by in any thread, also between two statements of a transaction."""
    code = [sys.executable, "-c", IN_ITS_OWN_THREAD, str(tmp_path / "run")]
    done = subprocess.run(code, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr
    with hookline.open_run(tmp_path / "run") as run:
        assert [row["step"] for row in run.rows()] == [0, 1, 2]
