"""A run that comes from somebody else: reading it does no harm, ends, and says what is wrong."""

import os
import resource
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import warnings
import zlib
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import hookline
from hookline.page.app import Pages
from hookline.page.viewed import ViewedRun
from hookline.runfiles.writer import Writer
from hookline.runs.folder import RunFolder
from tests.support.hostile import (
    SCHEMAS,
    attack,
    bomb,
    columns,
    fact,
    frame,
    histograms,
    rebuilt,
    row,
    stored,
    super_journal,
)
from tests.support.paths import ROOT

SECONDS, MEGABYTES = 60, 400


@contextmanager
def bounded():
    """Ends the test where reading takes too long, and fails it where it takes too much memory."""

    def late(number, stack):
        raise AssertionError("reading does not end")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEGABYTES * 1024


def opened(folder):
    with hookline.open_run(folder) as run:
        _ = run.meta, run.sites, run.steps, run.rows(), run.columns(histograms=True), run.recordings, run.more()
        return run.damage


def exported(folder):
    with hookline.open_run(folder) as run:
        run.export(folder.parent / "rows.csv")


def recorded(folder):
    with hookline.open_run(folder) as run:
        for recording in run.recordings:
            _ = [recording[name].output for name in recording.names]


def viewed(folder):
    shelf = RunFolder(folder.parent, ViewedRun)
    try:
        client = TestClient(Pages(shelf).app())
        assert client.get("/api/runs").status_code == 200
        answer = client.get("/api/run", params={"run": folder.name})
        assert answer.status_code in (200, 404)
        if answer.status_code == 200:
            number = list(range(len(answer.json()["series"])))
            for question in ("curves", "heat", "at"):
                ask = {"run": folder.name, "series": number[:10], "stat": "mean"}
                assert client.post(f"/api/{question}", json=ask).status_code in (200, 404)
    finally:
        shelf.close()


def compared(folder):
    """Its diff with an honest run, on the page."""
    if not (folder.parent / "honest").exists():
        stored(folder.parent / "honest")
    shelf = RunFolder(folder.parent, ViewedRun)
    pages = Pages(shelf)
    try:
        client, of = TestClient(pages.app()), None
        while True:
            answer = client.post("/api/diff", json={"a": folder.name, "b": "honest", "of": of})
            assert answer.status_code in (200, 404)
            if answer.status_code == 404 or answer.json()["state"] != "working":
                break
            of = answer.json()["of"]
        told = answer.json().get("error", "")
        assert "could not be compared" not in told, told
        assert "\x1b" not in told
    finally:
        pages.comparisons.stop()
        shelf.close()


def reported(folder):
    hookline.report(folder, folder.parent / "report.html")


def healthy(folder):
    hookline.health(folder)


def examined(folder):
    command = [sys.executable, "-m", "hookline", "doctor"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


READERS = {one.__name__: one for one in (opened, exported, recorded, viewed, compared, reported, healthy)}


def read(reader, folder):
    """Reads; a RunError is a right answer. What was told, if it came that far."""
    with warnings.catch_warnings(record=True) as told, bounded():
        warnings.simplefilter("always")
        try:
            reader(folder)
        except hookline.RunError as error:
            told = [error]
            where = str(error)
        else:
            where = str(folder)
    assert str(folder) in where
    return [str(getattr(one, "message", one)) for one in told]


@pytest.mark.parametrize("reader", [*READERS, "examined"])
@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_super_journal_removes_no_file_elsewhere(tmp_path, reader, mode):
    victim = tmp_path / "precious.txt"
    attack(tmp_path / "run", victim)
    if mode == "wal":  # the file says that it has a log, and there is a journal all the same
        file = tmp_path / "run" / "rank0-0000.sqlite"
        data = bytearray(file.read_bytes())
        data[18:20] = b"\2\2"
        file.write_bytes(data)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    read({**READERS, "examined": examined}[reader], tmp_path / "run")
    assert victim.read_text() == "precious"
    after = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert {name: after.get(name) for name in before} == before


def test_the_attack_is_a_real_one(tmp_path):
    """SQLite itself, without hookline's care, removes the file: the tests above test something."""
    victim = tmp_path / "precious.txt"
    attack(tmp_path / "run", victim)
    with sqlite3.connect(tmp_path / "run" / "rank0-0000.sqlite") as connection:
        connection.execute("SELECT * FROM meta").fetchall()
    connection.close()
    assert not victim.exists()


def test_a_journal_that_waits_for_a_new_run_is_not_played_back(tmp_path):
    """Whoever writes into a folder of somebody else's makes files whose journals may lie there already."""
    victim, folder = tmp_path / "precious.txt", tmp_path / "run"
    folder.mkdir()
    victim.write_text("precious")
    for name in ("rank0-0000.sqlite-journal", ".rank0-0000.sqlite.part-journal"):
        (folder / name).write_bytes(super_journal(victim, 1))
    (folder / ".rank0-0000.sqlite.part").write_bytes(bytes(4096))
    stored(folder)
    assert victim.exists() and hookline.open_run(folder).steps == [0, 1, 2]
    Path(f"{folder}/rank0-0000.sqlite-journal").write_bytes(super_journal(victim, 1))
    with pytest.raises(hookline.RunError, match="super-journal"):
        Writer(folder / "rank0-0000.sqlite", None)
    assert victim.exists()


HOT = """
import sys, os, hookline
from hookline.runfiles import writer
from tests.support.hostile import row
writer.why_no_wal = lambda folder: "it is not wanted"
store = hookline.RunStore(sys.argv[1]); store.open({})
writer = store._opened()._writer
for step in range(3): writer.write([row(step)])
writer._connection.execute("PRAGMA cache_size=1")
writer._connection.execute("BEGIN IMMEDIATE")
for number in range(400):
    values = (number + 1, "x" * 500)
    writer._connection.execute("INSERT INTO series VALUES (?, ?, 'output', 0, 'train', 0)", values)
writer._connection.execute("UPDATE meta SET value = '\\"changed\\"'")
writer._connection.execute("UPDATE frame SET first = 77")
os._exit(0)
"""


def test_what_a_killed_process_had_half_written_is_undone_by_the_reader(tmp_path):
    """With a real hot journal of SQLite's, whose pages have reached the file."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    subprocess.run([sys.executable, "-c", HOT, str(tmp_path)], check=True, env=env)
    file = tmp_path / "rank0-0000.sqlite"
    journal = Path(f"{file}-journal")
    assert journal.stat().st_size > 512 and b"x" * 400 in file.read_bytes()
    before = file.read_bytes(), journal.read_bytes()
    with hookline.open_run(tmp_path) as run:
        assert run.steps == [0, 1, 2] and run.sites == ["fc"] and not run.damage
        assert [one["step"] for one in run.rows("fc")] == [0, 1, 2]
    assert (file.read_bytes(), journal.read_bytes()) == before, "a reader changes nothing"
    with sqlite3.connect(file) as connection:  # what SQLite makes of it is the same
        (count,) = connection.execute("SELECT COUNT(*) FROM series").fetchone()
    connection.close()
    assert count == 1 and hookline.open_run(tmp_path).steps == [0, 1, 2]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_tables_that_are_none_are_refused_at_once(tmp_path, schema):
    file = stored(tmp_path / "run")
    rebuilt(file, *SCHEMAS[schema])
    for reader in READERS.values():
        read(reader, tmp_path / "run")
    with bounded(), pytest.raises(hookline.RunError, match=r"rank0-0000.sqlite is not a file of a hookline run"):
        hookline.open_run(tmp_path / "run")


LIES = {
    "10^12 rows": {"stats": columns(1, announced=10**12)},
    "-1 rows": {"stats": columns(1, announced=-1)},
    "no rows": {"stats": columns(0), "rows": 0},
    "no bytes": {"stats": b""},
    "no zlib": {"stats": b"PK\x03\x04 not zipped"},
    "an empty archive": {"stats": zlib.compress(b"PK\x03\x04")},
    "cut off": {"stats": columns(1)[:-4]},
    "something behind": {"stats": columns(1) + b"more"},
    "half a float": {"stats": columns(1, floats=6)},
    "a bomb": {"stats": bomb},
    "another step": {"stats": columns(1, step=99)},
    "a step beyond all": {"stats": columns(1, step=2**62), "last": 2**53},
    "a step that no number tells": {"stats": columns(1, step=2**62), "last": 2**62},
    "another series": {"stats": columns(1, series=1 << 40)},
    "a negative series": {"stats": columns(1, series=-1), "group": -1},
    "a series that is not there": {"stats": columns(1, series=7)},
    "no JSON": {"stats": columns(1, extra=b"[{]")},
    "JSON of one entry too many": {"stats": columns(1, extra=b"[{}, {}]")},
    "JSON that is no list": {"stats": columns(1, extra=b'{"a": 1}')},
    "JSON of texts": {"stats": columns(1, extra=b'["a"]')},
    "JSON nested without end": {"stats": columns(1, extra=b"[" * 100_000)},
    "a column of its own": {"stats": columns(1, extra=b'[{"step": "now"}]')},
    "a ratio that is a text": {"stats": columns(1, extra=b'[{"ratio": "big"}]')},
    "a number of 4,000 digits": {"stats": columns(1, extra=b'[{"a": ' + b"9" * 4000 + b"}]")},
    "a number of 5,000 digits": {"stats": columns(1, extra=b'[{"a": ' + b"9" * 5000 + b"}]")},
    "NaN and Infinity": {"stats": columns(1, extra=b'[{"a": NaN, "b": -Infinity}]')},
    "text and numbers": {"stats": columns(2, extra=b'[{"a": 1}, {"a": {"b": [1]}}]'), "rows": 2},
    "a wrong number of rows": {"stats": columns(1), "rows": 5},
    "histograms of 10^12 bins": {"stats": columns(1), "hists": histograms([1], 1, 10**12, [1], [1])},
    "histograms of 3 bins": {"stats": columns(1), "hists": histograms([1], 1, 3, [1], [1])},
    "10^12 entries": {"stats": columns(1), "hists": histograms([1], 10**12, 1113, [1], [1])},
    "a bin that is not there": {"stats": columns(1), "hists": histograms([1], 1, 1113, [60_000], [1])},
    "a histogram longer than its entries": {"stats": columns(1), "hists": histograms([9], 1, 1113, [1], [1])},
    "histograms of more rows": {"stats": columns(1), "hists": histograms([1, 1], 2, 1113, [1, 2], [1, 1])},
    "a bomb of histograms": {"stats": columns(1), "hists": bomb},
    "histograms that are none": {"stats": columns(1), "hists": b"no"},
}


TRUE = {"NaN and Infinity", "text and numbers"}
"""These are odd, and fit together all the same."""


@pytest.mark.parametrize("lie", LIES)
def test_a_frame_that_lies_costs_that_frame(tmp_path, lie):
    file = stored(tmp_path / "run")
    frame(file, **LIES[lie])
    told = read(opened, tmp_path / "run")
    if lie not in TRUE:
        assert "frame 1" in " ".join(told) and "left out" in " ".join(told)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert hookline.open_run(tmp_path / "run").columns(steps=(1, 2))["step"].tolist() == [1, 2]


@pytest.mark.parametrize("reader", READERS)
def test_frames_that_lie_in_every_way_end_no_reader(tmp_path, reader):
    file = stored(tmp_path / "run", steps=1)
    for number, lie in enumerate(LIES.values(), 2):
        frame(file, number=number, **lie)
    read(READERS[reader], tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            (name, value)
            for name in ("rank", "version", "dropped", "process")
            for value in ("x", -1, 1.5, [], None)
        ),
        *(("sites", value) for value in ("x", 3, [1], [["a"]], [["a", 1]], {"a": 1}, [["x" * 20_000, "y"]])),
        *(
            (name, value)
            for name in ("started", "ended", "end", "error", "by", "hookline")
            for value in (1, [], {})
        ),
        ("model", {"<script>": "\x1b[2J"}),
        ("rank", 10**30),
        ("\x1b[2J<script>", "\x1b[2J"),
    ],
)
def test_facts_of_another_kind_are_left_out(tmp_path, name, value):
    fact(stored(tmp_path / "run"), name, value)
    for reader in (opened, viewed, compared, reported, exported):
        for told in read(reader, tmp_path / "run"):
            assert "\x1b" not in told


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "NaN", '{"a": [Infinity]}', "9" * 5000, "\x00"])
def test_facts_that_are_no_json(tmp_path, text):
    fact(stored(tmp_path / "run"), "model", None, text)
    for reader in (opened, viewed, compared, reported):
        read(reader, tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(hookline.open_run(tmp_path / "run").rows()) == 3


@pytest.mark.parametrize(
    "site", ["../../etc/passwd", "\x1b[2J\x07", "<script>alert(1)</script>", "x" * 9000, "\x00", "‮"]
)
def test_names_are_only_data(tmp_path, site):
    stored(tmp_path / "run", sites=(site, "fc"))
    for reader in READERS.values():
        assert read(reader, tmp_path / "run") == []
    assert hookline.open_run(tmp_path / "run").sites == [site, "fc"]
    assert "<script>alert" not in (tmp_path / "report.html").read_text()


def test_other_types_in_the_tables(tmp_path):
    changes = [
        "UPDATE series SET site = x'ff'",
        "UPDATE series SET site = 5",
        "UPDATE series SET call = 'x'",
        "UPDATE frame SET first = 'x'",
        "UPDATE frame SET series_group = NULL",
        "UPDATE frame SET number = 9000000000000000000 WHERE number = 3",
        "UPDATE frame SET number = 90000 WHERE number = 2",
        "UPDATE series SET number = 1 << 40",
        "UPDATE block SET stats = 'text'",
        "UPDATE block SET stats = NULL",
        "UPDATE block SET hists = 1.5",
        "UPDATE meta SET value = x'ff00'",
        "UPDATE meta SET name = x'ff' WHERE name = 'rank'",
        "UPDATE seal SET crc = 'x'",
        "UPDATE seal SET crc = NULL",
        "DELETE FROM series",
        "DELETE FROM meta",
        "DELETE FROM block",
        "DELETE FROM frame WHERE number = 2",
        "INSERT INTO recording VALUES (1, '../x.safetensors', 0, 'now', '[]', 0)",
    ]
    for number, change in enumerate(changes):
        folder = tmp_path / str(number) / "run"
        rebuilt(stored(folder), change)
        for reader in READERS.values():
            told = read(reader, folder)
            if reader is opened and " frame " not in change:
                assert told, change  # what is noted of a frame is also found in the frame itself


@pytest.mark.parametrize("suffix", ["", "-wal", "-journal", "-shm"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder"])
def test_what_is_no_plain_file_is_not_opened(tmp_path, suffix, kind):
    file = stored(tmp_path / "run")
    elsewhere = tmp_path / "elsewhere"
    if kind != "dangling link":
        elsewhere.write_bytes(file.read_bytes())
    path = Path(f"{file}{suffix}")
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(elsewhere)
    before = elsewhere.read_bytes() if elsewhere.exists() else None
    for reader in READERS.values():
        read(reader, tmp_path / "run")
    with pytest.raises(hookline.RunError, match=r"is a link|is not a file"):
        hookline.open_run(tmp_path / "run")
    assert (elsewhere.read_bytes() if elsewhere.exists() else None) == before


def test_shared_memory_that_is_also_a_file_elsewhere_is_not_written_to(tmp_path):
    file = stored(tmp_path / "run")
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    victim = tmp_path / "precious.txt"
    victim.write_text("precious")
    Path(f"{file}-shm").hardlink_to(victim)
    assert hookline.open_run(tmp_path / "run").steps == [0, 1, 2]
    assert victim.read_text() == "precious"


def test_names_that_hookline_gives_nobody_are_no_files_of_a_run(tmp_path):
    file = stored(tmp_path / "run")
    for name in ("rank0-\x1b[2J.sqlite", "rankx-0.sqlite", "rank0-0000.sqlite.sqlite", "rank-1-1.sqlite"):
        file.with_name(name).write_bytes(b"garbage")
    assert hookline.open_run(tmp_path / "run").steps == [0, 1, 2]


def test_a_file_that_cannot_be_read_costs_that_process_only(tmp_path):
    folder = tmp_path / "run"
    shutil.copy(stored(folder), folder / "rank1-0000.sqlite")  # as another process would have written it
    (folder / "rank0-0000.sqlite").write_bytes(b"garbage" * 1000)
    with pytest.warns(UserWarning, match=r"can't be read, the rest is.*rank0-0000.sqlite is not a file"):
        run = hookline.open_run(folder)
    assert run.steps == [0, 1, 2] and len(run.damage) == 1
    viewed(folder)
    reported(folder)


def test_a_tree_of_pages_that_goes_in_circles_ends(tmp_path):
    """Inner pages all of whose children are one page: SQLite would go through them for years."""
    file = stored(tmp_path / "run")
    connection = sqlite3.connect(file)
    roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_master").fetchall())
    connection.close()
    pages = [bytearray(file.read_bytes()[at : at + 4096]) for at in range(0, file.stat().st_size, 4096)]
    for name in ("frame", "series", "block", "recording"):
        leaf, count = len(pages) + 1, 500
        pages.append(pages[roots[name] - 1])
        for depth in range(15):
            below = leaf if depth == 0 else len(pages)
            inner = bytearray(4096)
            inner[:12] = struct.pack(">BHHHBI", 5, 0, count, 4096 - 5 * count, 0, below)
            for cell in range(count):
                at = 4096 - 5 * (cell + 1)
                inner[at : at + 5] = struct.pack(">IB", below, 1)
                inner[12 + 2 * cell : 14 + 2 * cell] = struct.pack(">H", at)
            pages.append(inner)
        pages[roots[name] - 1] = pages.pop()
    pages[0][28:32] = struct.pack(">I", len(pages))
    file.write_bytes(b"".join(pages))
    for reader in READERS.values():
        read(reader, tmp_path / "run")


def test_a_sparse_file_that_announces_huge_rows_takes_no_memory(tmp_path):
    file = stored(tmp_path / "run")
    with file.open("r+b") as sparse:
        sparse.truncate(1 << 40)
        sparse.seek(28)
        sparse.write(struct.pack(">I", (1 << 40) // 4096))
    for reader in READERS.values():
        read(reader, tmp_path / "run")


def test_a_hundred_thousand_rows_of_one_site_as_columns(tmp_path):
    store = hookline.RunStore(tmp_path / "run")
    store.write([{**row(), "step": step, "hist": None} for step in range(100_000)])
    store.close()
    with bounded(), hookline.open_run(tmp_path / "run") as run:
        found = run.columns("fc", "output", "mean")
    assert found["mean"].nbytes == 800_000 and sorted(found) == sorted(
        ["site", "kind", "step", "call", "rank", "mode", "mean"]
    )
