"""Trackio's own reader finds what was logged."""

import trackio

from hookline import sinks
from hookline.sinks.buckets import buckets
from hookline.sinks.tags import scalars, tag
from tests.environments.sinks.helpers import STEPS, number, rows_of, trained, written
from tests.support.rows import same


def test_every_number_is_read_back():
    from trackio.sqlite_storage import SQLiteStorage

    written(sinks.Trackio(project="written", name="one"))
    entries = SQLiteStorage.get_logs("written", "one")
    assert sorted(entry["step"] for entry in entries) == sorted(STEPS)
    for entry in entries:
        for row in rows_of(entry["step"]):
            for name, expected in scalars(row).items():
                assert same(number(entry[name]), expected), name
            if (expected := buckets(row["hist"], 512)) is not None:
                got = entry[tag(row, "hist")]
                assert got["values"] == expected.counts.tolist() and got["bins"] == expected.edges.tolist()


def test_a_run_of_the_users_own_is_used_and_left_open():
    from trackio.sqlite_storage import SQLiteStorage

    run = trackio.init(project="users", name="own")
    trained(sinks.Trackio())
    run.log({"loss": 1.0})
    run.finish()
    entries = SQLiteStorage.get_logs("users", "own")
    assert [entry["step"] for entry in entries if "loss" not in entry] == [0, 1, 2]
    assert [entry["loss"] for entry in entries if "loss" in entry] == [1.0]
