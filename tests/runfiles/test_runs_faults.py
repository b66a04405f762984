"""Runs where something is wrong: file systems that can't do what SQLite wants, and files that others left."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from importlib.metadata import version

import pytest
import torch
from torch import nn

import hookline
from tests.support.models import taking_no_hook
from tests.support.rows import row

WRITER = """
import sys, time, hookline
from hookline.lines import Stats
store = hookline.RunStore(sys.argv[1])
for step in range(int(sys.argv[2])):
    base = {"kind": "output", "step": step, "call": 0, "rank": 0, "mode": "train"}
    store.write([{"site": f"layer{n}", **base, **Stats.of([0.5, -2.0]).row()} for n in range(20)])
    print(step, flush=True)
    time.sleep(0.01)
store.close()
"""

NO_SHARED_MEMORY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
/* What a file system without shared memory answers: no mapping of SQLite's -shm file. */
static int refused(int flags, int fd) {
    char link[64], path[4096];
    if (!(flags & MAP_SHARED) || fd < 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    return length > 4 && !memcmp(path + length - 4, "-shm", 4);
}
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "mmap");
    if (refused(flags, fd)) { errno = ENODEV; return MAP_FAILED; }
    return real(at, size, protection, flags, fd, offset);
}
void *mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    return mmap(at, size, protection, flags, fd, offset);
}
"""


def stored(folder, steps=3):
    store = hookline.RunStore(folder)
    for step in range(steps):
        store.write([row(step=step)])
    store.close()


@contextmanager
def mounted(folder, options):
    """`folder` with a small file system of its own."""
    folder.mkdir()
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=False).returncode:
        pytest.skip("this machine lets nobody mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def killed(folder, env=None):
    """How many steps a writer had told of when it was killed."""
    command = [sys.executable, "-c", WRITER, str(folder), "100000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    process.stdout.readline()
    while not flushed(folder):
        time.sleep(0.05)
    time.sleep(0.7)  # somewhere before the next flush
    process.send_signal(signal.SIGKILL)
    return len(process.communicate()[0].split()) + 1


def flushed(folder):
    with hookline.open_run(folder) as run:
        return run.steps


def test_where_the_log_has_no_place_the_rollback_journal_is_used(tmp_path):
    """Five files fit: SQLite's write-ahead log wants one more than that, the rollback journal fewer."""
    with mounted(tmp_path / "few", "size=4m,nr_inodes=5") as folder:
        run = folder / "run"
        stored(run)
        with hookline.open_run(run) as opened:
            assert opened.steps == [0, 1, 2] and opened.meta["end"] == "normally"
            assert opened.meta["journal"].startswith("rollback, since WAL does not work here:")
        assert [file.name for file in run.iterdir()] == ["rank0-0000.sqlite"]


@pytest.fixture(scope="module")
def no_shared_memory(tmp_path_factory):
    """The environment of a process whose file systems have no shared memory, as on many networks."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("a C compiler and Linux are needed to take shared memory away from a process")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(NO_SHARED_MEMORY)
    library = str(folder / "shim.so")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, str(folder / "shim.c"), "-ldl"], check=True)
    return {**os.environ, "LD_PRELOAD": library}


def test_without_shared_memory_a_run_is_written_and_read_all_the_same(tmp_path, no_shared_memory):
    command = [sys.executable, "-c", WRITER, str(tmp_path), "30"]
    subprocess.run(command, env=no_shared_memory, stdout=subprocess.DEVNULL, check=True)
    code = (
        "import sys, hookline; run = hookline.open_run(sys.argv[1])\n"
        "print(len(run.steps), len(run.rows()), run.meta['journal'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=no_shared_memory,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("30 600 rollback, since WAL does not work here: OperationalError")


def test_without_shared_memory_a_reader_may_poll_and_a_kill_loses_a_second(tmp_path, no_shared_memory):
    command = [sys.executable, "-c", WRITER, str(tmp_path / "polled"), "250"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=no_shared_memory)
    process.stdout.readline()
    seen = []
    while process.poll() is None:
        with hookline.open_run(tmp_path / "polled") as run:
            seen.append(len(run.steps))
        time.sleep(0.05)
    process.communicate()
    assert seen == sorted(seen) and hookline.open_run(tmp_path / "polled").steps == list(range(250))
    told = killed(tmp_path / "killed", no_shared_memory)
    steps = hookline.open_run(tmp_path / "killed").steps
    assert steps == list(range(len(steps))) and told - len(steps) <= 1.6 / 0.01


def test_a_folder_that_can_only_be_read_is_read_whole(tmp_path):
    """Also what a killed process left in the log, which SQLite wants to write to the file first."""
    with mounted(tmp_path / "small", "size=16m") as folder:
        stored(folder / "ended")
        killed(folder / "killed")
        assert (folder / "killed" / "rank0-0000.sqlite-wal").stat().st_size
        with hookline.open_run(folder / "killed") as run:
            before = len(run.rows())
        killed(folder / "again")
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        assert hookline.open_run(folder / "ended").steps == [0, 1, 2]
        with hookline.open_run(folder / "killed") as run:
            assert len(run.rows()) == before > 0
        with hookline.open_run(folder / "again") as run:
            assert run.steps == list(range(len(run.steps))) and run.steps
        with pytest.raises(hookline.RunError, match="can't be kept"):
            hookline.watch(nn.Linear(1, 1), to=folder / "new").__enter__()


def test_a_recording_that_does_not_fit_the_disk_stays_in_memory_and_the_run_readable(tmp_path):
    with mounted(tmp_path / "small", "size=1m") as folder:
        model = nn.Linear(400, 400)
        with hookline.record(model, to=folder / "run"):
            model(torch.zeros(4, 400))
        told = pytest.warns(
            UserWarning, match=r"could not be kept, and is in memory only: RunError: .*No space left"
        )
        with told, hookline.record(model, to=folder / "run") as rec:
            model(torch.ones(1000, 400))
        assert rec[""].output.shape == (1000, 400)
        with hookline.open_run(folder / "run") as run:
            assert len(run.recordings) == 1 and run.recordings[0][""].output.shape == (4, 400)
        assert not list((folder / "run").glob(".*")), "nothing half-written is left"


def test_a_process_that_died_while_it_began_hides_nobody_elses_rows(tmp_path):
    stored(tmp_path)
    (tmp_path / "rank0-0001.sqlite").touch()
    assert hookline.open_run(tmp_path).steps == [0, 1, 2]


def test_a_run_that_is_interrupted_says_so(tmp_path):
    def interrupted():
        with torch.no_grad(), hookline.watch(model, to=tmp_path):
            model(torch.ones(1, 3))
            raise KeyboardInterrupt

    model = nn.Linear(3, 1)
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    meta = hookline.open_run(tmp_path).meta
    assert meta["end"] == "interrupted" and meta["started"] <= meta["ended"]


@pytest.mark.parametrize("verb", [hookline.watch, hookline.record])
def test_a_model_that_cannot_be_hooked_leaves_no_run_open(tmp_path, verb):
    refused = hookline.Unsupported(backend="torch", feature="this", why="of a test", instead="nothing")
    model = taking_no_hook(nn.Linear(3, 1), refused)
    before = threading.active_count()
    with pytest.raises(hookline.Unsupported):
        verb(model, to=tmp_path).__enter__()
    assert threading.active_count() == before
    assert hookline.open_run(tmp_path).meta["end"] == "by an exception"


def test_the_facts_of_a_run(tmp_path):
    model = nn.Sequential(nn.Linear(3, 1))
    with torch.no_grad(), hookline.watch(model, to=tmp_path):
        model(torch.ones(1, 3))
    meta = hookline.open_run(tmp_path).meta
    assert meta["model"] == "Sequential" and meta["sites"] == [["", "Sequential"], ["0", "Linear"]]
    assert meta["versions"] == {"numpy": version("numpy"), "torch": version("torch")}
    assert meta["command"] == sys.argv and meta["process"] == os.getpid() and meta["journal"] == "wal"
