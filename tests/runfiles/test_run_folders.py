"""A folder holds one run: what is there is refused, goes on where asked, or the next one gets a new name."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import hookline
from hookline.runfiles import clock, places
from hookline.runs.growing import OpenRun
from tests.support.paths import ROOT
from tests.support.rows import row

ONE_STEP = """
import sys, torch, hookline
from hookline.lines import Stats
options = eval(sys.argv[2])
with torch.no_grad(), hookline.watch(model := torch.nn.Linear(2, 1), to=sys.argv[1], **options) as w:
    for _ in range(int(sys.argv[3])):
        model(torch.ones(1, 2))
    if len(sys.argv) > 4:
        print("ready", flush=True)
        sys.stdin.readline()
"""


def stored(folder, steps, **options):
    store = hookline.RunStore(folder, **options)
    for step in steps:
        store.write([row(step=step)])
    store.close()
    return store.path


def script(folder, steps, wait=False, env=None, **options):
    command = [sys.executable, "-c", ONE_STEP, str(folder), repr(options), str(steps), *(["wait"] if wait else [])]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )


def ran(folder, steps, **options):
    """(exit code, what it told) of the script, which has come to its end."""
    process = script(folder, steps, **options)
    told = process.communicate()[1]
    return process.returncode, told


def trained(folder, steps, **options):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hookline.watch(model, to=folder, **options) as w:
        for _ in range(steps):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    return w


def test_a_script_that_is_started_twice_is_refused_before_it_trains(tmp_path):
    assert ran(tmp_path / "a", 3) == (0, "")
    code, told = ran(tmp_path / "a", 5)
    assert code == 1
    assert "RunError" in told and "holds a run that began" in told and "steps up to 2, and ended normally" in told
    assert "resume=True" in told and "a-*" in told
    assert hookline.open_run(tmp_path / "a").steps == [0, 1, 2]


@pytest.mark.parametrize("again", ["watch", "RunStore"])
def test_a_cell_that_is_run_twice_is_refused_as_well(tmp_path, again):
    trained(tmp_path, 3)
    with pytest.raises(hookline.RunError, match=r"holds a run that this process has written\. Two runs"):
        trained(tmp_path, 3) if again == "watch" else stored(tmp_path, [7])
    assert hookline.open_run(tmp_path).steps == [0, 1, 2]


def test_two_watches_at_once_do_not_share_a_folder(tmp_path):
    with (
        hookline.watch(nn.Linear(1, 1), to=tmp_path),
        pytest.raises(hookline.RunError, match="and that is not ended"),
    ):
        trained(tmp_path, 1)


@pytest.mark.parametrize("options", [{}, {"resume": True}])
def test_of_two_processes_at_once_one_gets_the_folder(tmp_path, options):
    both = [script(tmp_path / "a", 4, wait=True, **options) for _ in range(2)]
    first = next(process for process in both if process.stdout.readline())
    (second,) = [process for process in both if process is not first]
    assert "RunError" in second.communicate()[1] and second.returncode == 1
    assert first.communicate("\n")[1] == "" and first.returncode == 0
    assert hookline.open_run(tmp_path / "a").steps == [0, 1, 2, 3]
    assert len(list((tmp_path / "a").glob("*.sqlite"))) == 1


def test_a_file_that_another_process_is_just_making_is_left_to_it(tmp_path):
    """It was taken for one whose process had died, and removed: both wrote, and one of them into nothing."""
    (tmp_path / "a").mkdir()
    made = tmp_path / "a" / "rank0-0000.sqlite"
    made.touch()
    with pytest.raises(hookline.RunError, match="just beginning"):
        trained(tmp_path / "a", 1, resume=True)
    assert made.exists()
    minutes_ago = time.time() - 120
    os.utime(made, (minutes_ago, minutes_ago))
    trained(tmp_path / "a", 2, resume=True)
    assert hookline.open_run(tmp_path / "a").steps == [0, 1]


def test_a_star_gives_each_run_the_next_number(tmp_path):
    assert [trained(tmp_path / "a-*", n).path.name for n in (1, 2)] == ["a-1", "a-2"]
    assert ran(tmp_path / "a-*", 3) == (0, "")
    assert [hookline.open_run(tmp_path / f"a-{n}").steps for n in (1, 2, 3)] == [[0], [0, 1], [0, 1, 2]]
    three = [script(tmp_path / "b*", 1) for _ in range(3)]
    assert [process.communicate()[1] for process in three] == ["", "", ""]
    assert sorted(one.name for one in tmp_path.glob("b*")) == ["b1", "b2", "b3"]
    for wrong in ("*/a", "a-*-*"):
        with pytest.raises(hookline.InvalidArgument, match="in the last part"):
            hookline.RunStore(tmp_path / wrong)


def test_processes_that_train_together_need_one_name(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(hookline.InvalidArgument, match="need one name"):
        trained(tmp_path / "a-*", 1)


def test_a_run_goes_on_where_asked_after_its_last_step(tmp_path):
    assert ran(tmp_path, 3) == (0, "")
    for steps in (2, 1):
        assert ran(tmp_path, steps, resume=True) == (0, "")
    with hookline.open_run(tmp_path) as run:
        assert run.steps == [0, 1, 2, 3, 4, 5] and len(run.rows("", "output")) == 6
        assert run.meta["began"] == [0, 3, 5] and run.meta["end"] == "normally"
        assert run.meta["started"] <= run.meta["since"] <= run.meta["ended"]
    trained(tmp_path, 1, resume=True)
    assert hookline.open_run(tmp_path).steps[-1] == 6


def test_resuming_what_is_not_there_begins_it(tmp_path):
    w = trained(tmp_path / "a", 2, resume=True)
    assert hookline.open_run(w.path).steps == [0, 1]
    assert trained(tmp_path / "b-*", 1, resume=True).path == trained(tmp_path / "b-*", 1, resume=True).path
    assert hookline.open_run(tmp_path / "b-1").steps == [0, 1]


def test_resume_needs_a_folder():
    with pytest.raises(hookline.InvalidArgument, match="resume=True needs a folder"):
        hookline.watch(nn.Linear(1, 1), resume=True)


def test_a_run_that_was_killed_is_refused_or_goes_on(tmp_path):
    process = script(tmp_path, 4, wait=True)
    process.stdout.readline()
    deadline = time.monotonic() + 20
    while not hookline.open_run(tmp_path).steps and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(hookline.RunError, match=f"process {process.pid} is writing to it"):
        trained(tmp_path, 2, resume=True)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with pytest.raises(hookline.RunError, match="has no end: it is being written, or was killed"):
        trained(tmp_path, 2)
    trained(tmp_path, 2, resume=True)
    with hookline.open_run(tmp_path) as run:
        assert run.steps == [0, 1, 2, 3, 4, 5] and run.meta["end"] == "normally"


def test_the_same_watch_and_the_same_store_go_on_in_their_own_run(tmp_path):
    model = nn.Linear(2, 1)
    w = hookline.watch(model, to=tmp_path / "a")
    for _ in range(2):
        with torch.no_grad(), w:
            model(torch.ones(1, 2))
    assert hookline.open_run(tmp_path / "a").steps == [0, 1]
    store = hookline.RunStore(tmp_path / "b")
    for step in range(2):
        store.write([row(step=step)])
        store.close()
    assert hookline.open_run(tmp_path / "b").steps == [0, 1]


def test_a_run_of_which_nothing_came_leaves_its_folder_free(tmp_path):
    class Failing(nn.Module):
        def forward(self, x):
            raise ValueError("wrong shape")

    for model in (Failing(), Failing()):
        with pytest.raises(ValueError, match="wrong shape"), hookline.watch(model, to=tmp_path):
            model(torch.ones(1))
    code = f"import hookline; hookline.RunStore({str(tmp_path)!r}).write([]); "
    subprocess.run([sys.executable, "-c", code], check=True)
    trained(tmp_path, 2)
    assert hookline.open_run(tmp_path).steps == [0, 1]


RANKED = """
import os, sys, hookline
from hookline.lines import Stats
store = hookline.RunStore(sys.argv[1], resume=len(sys.argv) > 2)
store.open()
rank = int(os.environ["RANK"])
for step in range(store.first_step, store.first_step + 3 + rank):
    base = {"site": "fc", "kind": "output", "step": step, "call": 0, "rank": rank, "mode": "train"}
    store.write([{**base, **Stats.of([1.0]).row()}])
store.close()
"""


def test_ranks_share_a_folder_and_a_second_training_with_more_of_them_does_not(tmp_path):
    def launched(world, *options):
        env = {**os.environ, "WORLD_SIZE": str(world), "MASTER_PORT": "29500"}
        return [
            subprocess.run(
                [sys.executable, "-c", RANKED, str(tmp_path), *options],
                env={**env, "RANK": str(rank)},
                capture_output=True,
                check=False,
            ).returncode
            for rank in range(world)
        ]

    assert launched(2) == [0, 0]
    assert launched(4) == [1, 1, 1, 1] and launched(2) == [1, 1]
    assert sorted({(r["rank"], r["step"]) for r in hookline.open_run(tmp_path).rows()})[-1] == (1, 3)
    assert launched(2, "resume") == [0, 0]
    rows = hookline.open_run(tmp_path).rows()
    assert [r["step"] for r in rows if r["rank"] == 0] == [0, 1, 2, 4, 5, 6]
    assert [r["step"] for r in rows if r["rank"] == 1] == [0, 1, 2, 3, 4, 5, 6, 7], "both began at step 4"


def test_recordings_of_a_process_go_to_its_runs_and_not_to_those_of_others(tmp_path):
    model = nn.Linear(2, 1)
    for _ in range(2):
        with hookline.record(model, to=tmp_path / "mine"):
            model(torch.ones(1, 2))
    trained(tmp_path / "mine", 2)
    with hookline.record(model, to=tmp_path / "mine"):
        model(torch.ones(1, 2))
    with hookline.open_run(tmp_path / "mine") as run:
        assert len(run.recordings) == 3 and run.steps == [0, 1] and "by" not in run.meta
        assert run.meta["end"] == "normally"
    assert len(list((tmp_path / "mine").glob("*.sqlite"))) == 1
    assert ran(tmp_path / "other", 2) == (0, "")
    with pytest.raises(hookline.RunError, match="Two runs are not mixed"):
        hookline.record(model, to=tmp_path / "other").__enter__()
    store = hookline.RunStore(tmp_path / "other", resume=True)
    with hookline.record(model, to=store):
        model(torch.ones(1, 2))
    store.close()
    with hookline.open_run(tmp_path / "other") as run:
        assert len(run.recordings) == 1 and run.steps == [0, 1]


def test_threads_that_record_at_once_lose_nothing(tmp_path):
    models = [nn.Linear(8, 8) for _ in range(4)]
    failed = []

    def record(number):
        try:
            for _ in range(10):
                with hookline.record(models[number], to=tmp_path / "run"):
                    models[number](torch.full((2, 8), float(number)))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=record, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    with hookline.open_run(tmp_path / "run") as run:
        kept = [float(rec[""].output.sum()) for rec in run.recordings]
    expected = [float(model(torch.full((2, 8), float(n))).detach().sum()) for n, model in enumerate(models)]
    assert sorted(kept) == pytest.approx(sorted(expected * 10))


def test_a_name_is_resolved_when_it_is_given(tmp_path, monkeypatch):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "first")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    model = nn.Linear(2, 1)
    block, store = hookline.watch(model, to="runs/a"), hookline.RunStore("~/b")
    recorder = hookline.record(model, to="c")
    monkeypatch.chdir(tmp_path / "second")
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    with torch.no_grad(), block, recorder:
        model(torch.ones(1, 2))
        monkeypatch.chdir(tmp_path)
        model(torch.ones(1, 2))
    store.write([row()])
    store.close()
    assert hookline.open_run(tmp_path / "first" / "runs" / "a").steps == [0, 1]
    assert len(hookline.open_run(tmp_path / "first" / "c").recordings) == 1
    assert hookline.open_run(tmp_path / "home" / "b").steps == [0]
    assert not any((tmp_path / "second").iterdir()) and not (tmp_path / "elsewhere").exists()


def test_a_clock_that_is_set_back_changes_no_order(tmp_path, monkeypatch):
    model = nn.Linear(2, 1)
    clock.now()
    days = iter(range(1, 100))

    class SetBack(clock.datetime):
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) - clock.timedelta(days=next(days))

    monkeypatch.setattr(clock, "datetime", SetBack)
    for number in range(3):
        with hookline.record(model, to=tmp_path):
            model(torch.full((1, 2), float(number)))
    # Another process goes on, whose clock is behind.
    code = f"""
import torch, hookline
from hookline.runfiles import clock
class SetBack(clock.datetime):
    @classmethod
    def now(cls, tz=None):
        return super().now(tz) - clock.timedelta(days=400)
clock.datetime = SetBack
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
store = hookline.RunStore({str(tmp_path)!r}, resume=True)
with hookline.record(model, inputs=True, to=store):
    model(torch.full((1, 2), 3.0))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    with hookline.open_run(tmp_path) as run:
        assert len(run.recordings) == 4
        assert [rec[""].output.shape for rec in run.recordings] == [(1, 1)] * 4
        assert float(run.recordings[-1][""].input[0][0, 0]) == 3.0
        assert run.meta["started"] <= run.meta["ended"]


def test_the_page_counts_a_step_that_was_written_twice_once(tmp_path):
    store = hookline.RunStore(tmp_path)
    for values in ([1.0, 2.0], [1.0, 2.0, 4.0]):
        store.write([row(step=0, values=values), row(step=1, values=[8.0])], at_once=True)
        time.sleep(0.2)
    store.close()
    run = OpenRun(tmp_path, "a")
    run.catch_up()
    counted = run.histograms(0)
    assert [int(counted.counts[counted.steps == step].sum()) for step in (0, 1)] == [3, 1]
    assert run.columns(0).stats["count"].tolist() == [3, 1] and np.array_equal(run.columns(0).steps, [0, 1])
    run.close()


@pytest.mark.parametrize("how", ["deleted", "replaced", "folder", "moved", "another", "log"])
def test_a_file_that_is_taken_away_while_it_is_written_is_told_once_and_nothing_is_lost(tmp_path, how):
    folder = tmp_path / "run"
    store = hookline.RunStore(folder)
    file = folder / "rank0-0000.sqlite"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(60):
            if step == 20:
                time.sleep(0.3)
                taken_away(how, folder, file)
            store.write([row(step=step)], at_once=True)
            time.sleep(0.01)
        store.close()
    told = [str(one.message) for one in caught]
    assert len(told) == 1 and "while it was written" in told[0], told
    assert str(store.path) in told[0]
    assert hookline.open_run(store.path).steps == list(range(60))
    assert (store.path == folder) == (how not in ("replaced", "another"))
    if how == "another":
        assert hookline.open_run(folder).steps == [500]
    assert not list(store.path.glob(".*"))


def taken_away(how, folder, file):
    if how == "deleted":
        file.unlink()
    elif how == "replaced":
        (folder / "new").write_bytes(b"something else")
        (folder / "new").replace(file)
    elif how == "folder":
        shutil.rmtree(folder)
    elif how == "moved":
        folder.rename(folder.with_name("kept"))
    elif how == "log":
        Path(f"{file}-wal").unlink()
    else:
        shutil.rmtree(folder)
        code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import tests.runfiles.test_run_folders as t; "
        subprocess.run([sys.executable, "-c", f"{code} t.stored({str(folder)!r}, [500])"], check=True)


FORKED = """
import os, sys, time, warnings, torch, hookline
model = torch.nn.Linear(2, 1)
with torch.no_grad(), hookline.watch(model, to=hookline.RunStore(sys.argv[1], full="wait")) as w:
    for _ in range(5):
        model(torch.ones(1, 2))
    child = os.fork()
    if not child:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(300):
                model(torch.ones(1, 2))
        told = [str(one.message) for one in told]
        assert len(told) == 1 and "forked" in told[0], told
        assert len({row["step"] for row in w.rows()}) == 305
        with hookline.watch(model, to=sys.argv[1] + "-child") as mine:
            model(torch.ones(1, 2))
        sys.exit(7)
    done = os.waitpid(child, 0)[1]
    for _ in range(5):
        model(torch.ones(1, 2))
print(os.waitstatus_to_exitcode(done))
"""


def test_a_forked_child_that_goes_on_training_neither_hangs_nor_writes_to_its_parents_run(tmp_path):
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "7", done.stderr
    with hookline.open_run(tmp_path / "run") as run:
        assert run.steps == list(range(10)) and run.meta["end"] == "normally"
    assert hookline.open_run(tmp_path / "run-child").steps == [0]


def test_a_folder_of_a_living_process_with_another_number_is_not_taken_for_written():
    assert not places.is_being_written({"process": 2**22 + 5, "started": clock.now()})
    assert not places.is_being_written({"process": os.getppid(), "started": "2001-01-01T00:00:00+00:00"})
    assert places.is_being_written({"process": os.getppid(), "started": clock.now()})
