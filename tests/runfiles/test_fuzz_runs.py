"""Random damage and random lies in a run's files: every reader answers, or says in a RunError what is wrong.

HOOKLINE_FUZZ=50 tries fifty times as many cases as a usual run of the tests.
"""

import json
import os
import shutil
import sqlite3
import struct
import warnings
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hookline
from hookline.page import queries
from hookline.page.viewed import ViewedRun
from hookline.rows import Rows
from hookline.runfiles.frames import (
    Block,
    Damaged,
    pack,
    seal,
    unpack,
    unpack_columns,
    unpack_histograms,
    unpack_places,
)
from hookline.runfiles.schema import checksum
from tests.support.hostile import row, stored
from tests.support.paths import DATA

TIMES = max(1, int(os.environ.get("HOOKLINE_FUZZ", "1")))


def fuzz(examples):
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=examples * TIMES, deadline=None, suppress_health_check=checks, database=None)


def read(folder):
    """Reads all there is, as users and as the page do; RunError is a right answer, any other error is not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with hookline.open_run(folder) as run:
                _ = run.meta, run.sites, run.steps, run.recordings, run.columns(histograms=True), run.count()
                rows = run.rows()
        except hookline.RunError:
            rows = []
        try:
            opened = ViewedRun(folder, "run")
        except hookline.RunError:
            return rows
        try:
            json.dumps(queries.describe(opened), allow_nan=False)
            numbers = list(range(min(len(opened.series), 20)))
            for ask in (queries.curves, queries.heat, queries.at):
                json.dumps(ask(opened, {"series": numbers, "stat": "mean"}), allow_nan=False)
        except hookline.RunError:
            pass
        finally:
            opened.close()
    return rows


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """Files of a run in every format."""
    file = stored(tmp_path_factory.mktemp("honest") / "run", steps=12, sites=[f"layer{n}" for n in range(20)])
    return [file.read_bytes(), *((DATA / f"run-format-{n}.sqlite").read_bytes() for n in (1, 2))]


def placed(tmp_path, data, suffix=""):
    folder = tmp_path / "run"
    if not suffix:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    (folder / f"rank0-0000.sqlite{suffix}").write_bytes(data)
    return folder


EDITS = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=8)), max_size=5)


@fuzz(60)
@given(which=st.integers(0, 2), edits=EDITS, cut=st.one_of(st.none(), st.floats(0, 1)))
def test_random_bytes_in_the_file(tmp_path, honest, which, edits, cut):
    data = bytearray(honest[which])
    for place, new in edits:
        at = int(place * len(data))
        data[at : at + len(new)] = new
    read(placed(tmp_path, bytes(data if cut is None else data[: int(cut * len(data))])))


@pytest.mark.parametrize("seed", range(4))
def test_single_bits_that_flip_give_no_wrong_row_and_no_raw_error(tmp_path, honest, seed):
    """Of today's format every row that is read is the one that was written, and what is missing is told."""
    data = honest[0]
    expected = {(one["site"], one["step"]): one for one in read(placed(tmp_path, data))}
    assert len(expected) == 240
    for bit in range(seed * 1009, len(data) * 8, len(data) * 8 // (6 * TIMES)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        for one in read(placed(tmp_path, bytes(flipped))):
            wanted = expected[one["site"], one["step"]]
            assert one.pop("hist").tolist() == wanted["hist"].tolist()
            assert one == {name: value for name, value in wanted.items() if name != "hist"}


@fuzz(40)
@given(suffix=st.sampled_from(["-wal", "-journal"]), junk=st.binary(max_size=600), pages=st.integers(0, 2**32 - 1))
def test_random_journals_beside_the_file(tmp_path, honest, suffix, junk, pages):
    folder = placed(tmp_path, honest[0])
    header = bytes.fromhex("d9d505f920a163d7") + struct.pack(">IIIII", pages, pages, pages, 512, 4096)
    placed(tmp_path, header.ljust(512, b"\0") + junk * 20 if suffix == "-journal" else junk, suffix)
    read(folder)
    assert (folder / "rank0-0000.sqlite").read_bytes() == honest[0]


VALUES = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=20), st.binary(max_size=50)
)
COLUMNS = {
    "series": ("number", "site", "kind", "call", "mode"),
    "frame": ("number", "series_group", "first", "last", "rows"),
    "recording": ("number", "file", "step", "made", "sites"),
}


@fuzz(60)
@given(table=st.sampled_from(sorted(COLUMNS)), place=st.integers(1, 4), value=VALUES, number=st.integers(1, 3))
def test_random_values_in_the_tables(tmp_path, honest, table, place, value, number):
    """With checksums that agree, as somebody would write who means harm."""
    folder = placed(tmp_path, honest[0])
    connection = sqlite3.connect(folder / "rank0-0000.sqlite")
    connection.execute("INSERT INTO recording VALUES (1, 'a.safetensors', 0, 'now', '[]', 0)")
    found = connection.execute(f"SELECT * FROM {table} WHERE number = ?", (number,)).fetchone()
    if found is not None:
        values = [*found[:-1]]
        values[place] = value
        crc = 0 if isinstance(value, bytes) or value != value else checksum(*values)
        names = ", ".join(f"{name} = ?" for name in (*COLUMNS[table], "crc"))
        connection.execute(f"UPDATE {table} SET {names} WHERE number = ?", (*values, crc, number))
    connection.commit()
    connection.close()
    read(folder)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=8,
)
FACTS = ["version", "rank", "sites", "started", "ended", "end", "error", "dropped", "by", "model", "odd"]


@fuzz(40)
@given(name=st.sampled_from(FACTS), value=JSON)
def test_random_facts(tmp_path, honest, name, value):
    folder = placed(tmp_path, honest[0])
    connection = sqlite3.connect(folder / "rank0-0000.sqlite")
    text = json.dumps(value)
    connection.execute("REPLACE INTO meta VALUES (?, ?)", (name, text))
    connection.execute("REPLACE INTO seal VALUES (?, ?)", (name, checksum(name, text)))
    connection.commit()
    connection.close()
    read(folder)


@fuzz(60)
@given(rows=st.lists(st.dictionaries(st.text(max_size=6), JSON, max_size=3), min_size=1, max_size=4))
def test_random_things_that_rows_have_besides(tmp_path, honest, rows):
    folder = placed(tmp_path, honest[0])
    block = pack(Rows.of([row(0, "layer0")] * len(rows)), [0] * len(rows))
    plain = zlib.decompress(block.stats)
    stats = zlib.compress(plain[: 8 + 13 * 8 * len(rows)] + json.dumps(rows).encode())
    values = (1, 0, 0, 0, len(rows))
    connection = sqlite3.connect(folder / "rank0-0000.sqlite")
    connection.execute("REPLACE INTO frame VALUES (?, ?, ?, ?, ?, ?)", (*values, checksum(*values)))
    connection.execute("UPDATE block SET stats = ?, hists = NULL WHERE number = 1", (seal(stats, "1 stats"),))
    connection.commit()
    connection.close()
    read(folder)


WHOLE = pack(Rows.of([row(step, own=[1.5]) for step in range(3)]), [0, 1, 2])


class AnySeries(dict):
    """Has a series for every number, as if the file had noted it."""

    def __missing__(self, number):
        return f"layer{number}", "output", 0, "train"


@fuzz(200)
@given(edits=EDITS, cut=st.integers(0, 2000), hists=st.booleans())
def test_random_bytes_in_a_block(edits, cut, hists):
    data = bytearray(zlib.decompress(WHOLE.hists if hists else WHOLE.stats))
    for place, new in edits:
        at = int(place * len(data))
        data[at : at + len(new)] = new
    packed = zlib.compress(bytes(data[: len(data) - cut] if cut < len(data) and edits else data))
    try:
        if hists:
            unpack_histograms(Block(WHOLE.stats, packed))
        else:
            places, columns = unpack_places(packed), unpack_columns(packed)[0]
            assert all(values.tolist() == columns[name].tolist() for name, values in places.items())
            assert all(row["site"].startswith("layer") for row in unpack(Block(packed, None), AnySeries()))
    except Damaged:
        pass


HEADER = st.fixed_dictionaries({"version": JSON, "backend": JSON, "names": JSON, "sites": JSON})
SITE = st.fixed_dictionaries({"name": JSON, "aliases": JSON, "why": JSON, "calls": JSON, "param_grads": JSON})
TREE = st.recursive(
    JSON,
    lambda inner: st.dictionaries(
        st.sampled_from(
            ["tensor", "value", "complex", "slot", "opaque", "tuple", "dict", "namedtuple", "keys", "items"]
        ),
        st.one_of(inner, st.lists(inner, max_size=3)),
        max_size=3,
    ),
    max_leaves=6,
)


@fuzz(150)
@given(header=HEADER, site=SITE, tree=TREE, real=st.booleans())
def test_random_headers_of_recordings(tmp_path, header, site, tree, real):
    if real:
        calls = [{"order": 0, "_output": tree}]
        site = {**site, "name": "fc", "aliases": [], "calls": calls, "why": None, "param_grads": None}
        header = {"version": 1, "backend": "numpy", "names": ["fc"], "sites": [site]}
    text = json.dumps({"__metadata__": {"hookline": json.dumps(header)}}).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    try:
        recording = hookline.load_recording(path)
        _ = [recording[name].output for name in recording.names]
    except (hookline.RunError, hookline.NotRecorded):
        pass


@pytest.mark.parametrize("word", [b"CREATE TABLE meta", b"CREATE TABLE series"])
def test_a_file_that_sqlite_quotes_in_bytes_that_are_no_text_is_told_as_damaged(tmp_path, honest, word):
    """Found by random bytes: Python can't make SQLite's error of it, and raises one of its own."""
    folder = placed(tmp_path, honest[0].replace(word, word.replace(b"TABLE", b"T\x80BLE")))
    with pytest.raises(hookline.RunError, match="damaged"):
        hookline.open_run(folder)
    assert read(folder) == []
