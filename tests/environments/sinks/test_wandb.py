"""What is in wandb's offline file, read with wandb's own messages."""

import json
import time

import pytest
import wandb
from wandb.proto import wandb_internal_pb2

from hookline import sinks
from hookline.sinks.buckets import buckets
from hookline.sinks.tags import scalars, tag
from tests.environments.sinks.helpers import STEPS, number, trained, written
from tests.support.rows import same

BLOCK, FRAME_HEADER, FILE_HEADER = 32768, 7, 7


def records(folder):
    """The records of the one run in a folder; the file is a log of the LevelDB kind: framed parts in blocks."""
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    data = path.read_bytes()
    at, parts = FILE_HEADER, []
    while at + FRAME_HEADER <= len(data):
        if BLOCK - at % BLOCK < FRAME_HEADER:
            at += BLOCK - at % BLOCK
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts.append(data[at + FRAME_HEADER : at + FRAME_HEADER + length])
        at += FRAME_HEADER + length
        if kind in (1, 4):  # whole, or the last part
            yield wandb_internal_pb2.Record.FromString(b"".join(parts))
            parts = []


def finished(folder):
    """All records of a run; wandb's service may still be writing when `finish` has returned."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found = list(records(folder))
        if found and found[-1].HasField("exit"):
            return found
        time.sleep(0.05)
    raise AssertionError("the file never got its last record")


def history(folder):
    """The entries that were logged, by name; a histogram is a dict."""
    found = []
    for record in finished(folder):
        if not record.HasField("history"):
            continue
        entry = {}
        for item in record.history.item:
            name, *rest = item.nested_key or [item.key]
            if rest:
                entry.setdefault(name, {})[rest[0]] = json.loads(item.value_json)
            else:
                entry[name] = json.loads(item.value_json)
        found.append(entry)
    return found


def test_every_number_is_logged_whatever_the_order_of_steps(tmp_path):
    rows = written(sinks.Wandb(mode="offline", project="p", dir=str(tmp_path)))
    entries = history(tmp_path)
    assert [entry["hookline/step"] for entry in entries] == list(STEPS)
    assert [entry["_step"] for entry in entries] == list(range(len(STEPS))), "wandb drops what goes backwards"
    for at, step in enumerate(STEPS):
        for row in rows[at * (len(rows) // len(STEPS)) : (at + 1) * (len(rows) // len(STEPS))]:
            assert row["step"] == step
            for name, expected in scalars(row).items():
                assert same(number(entries[at][name]), expected), name
            expected = buckets(row["hist"], 512)
            if expected is not None:
                got = entries[at][tag(row, "hist")]
                assert got["_type"] == "histogram" and got["values"] == expected.counts.tolist()
                assert got["bins"] == expected.edges.tolist()


def test_charts_go_along_hooklines_step(tmp_path):
    written(sinks.Wandb(mode="offline", project="p", dir=str(tmp_path)))
    metrics = [record.metric for record in finished(tmp_path) if record.HasField("metric")]
    by_glob = {metric.glob_name: metric for metric in metrics if metric.glob_name}
    assert by_glob["output/*"].step_metric == "hookline/step" and "grad_output/*" in by_glob


def test_a_run_of_the_users_own_is_used_and_left_open(tmp_path):
    with wandb.init(mode="offline", project="p", dir=str(tmp_path)) as run:
        trained(sinks.Wandb())
        run.log({"loss": 1.0})
        assert wandb.run is run
    entries = history(tmp_path)
    assert [entry["hookline/step"] for entry in entries[:3]] == [0, 1, 2] and entries[3]["loss"] == 1.0


@pytest.mark.parametrize("most", [2, 40, 512])
def test_a_histogram_of_all_magnitudes_fits_and_loses_no_value(most):
    import numpy as np

    from hookline.lines import Stats

    values = np.concatenate([sign * 2.0 ** np.arange(-140, 120) for sign in (-1, 1)])
    found = buckets(Stats.of(values).hist, most)
    assert len(found.counts) <= most and found.counts.sum() == len(values) and np.all(np.diff(found.edges) > 0)
    wandb.Histogram(np_histogram=(found.counts, found.edges))
