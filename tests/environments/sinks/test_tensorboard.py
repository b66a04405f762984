"""TensorBoard's own reader finds every number, and every histogram bin by bin."""

import math

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hookline import sinks
from hookline.sinks.buckets import buckets
from hookline.sinks.tags import scalars, tag
from tests.environments.sinks.helpers import STEPS, rows_of, trained, written
from tests.support.rows import same


def read(folder):
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
    found.Reload()
    return found


def numbers(found, name):
    """[(step, number)] of a tag."""
    if name in found.Tags()["scalars"]:
        return [(one.step, one.value) for one in found.Scalars(name)]
    return [(one.step, float(one.tensor_proto.float_val[0])) for one in found.Tensors(name)]


def test_every_number_is_read_back_also_nan_inf_odd_names_and_steps_in_any_order(tmp_path):
    rows = written(sinks.TensorBoard(tmp_path))
    found = read(tmp_path)
    expected = {}
    for row in rows:
        for name, number in scalars(row).items():
            expected.setdefault(name, []).append((row["step"], float(np.float32(number))))
    assert len(expected) > 40 and any(math.isnan(n) for some in expected.values() for _, n in some)
    for name, some in expected.items():
        got = numbers(found, name)
        assert [step for step, _ in got] == list(STEPS) == [step for step, _ in some], name
        assert all(same(a, b) for (_, a), (_, b) in zip(got, some, strict=True)), name


def test_histograms_are_those_of_the_rows(tmp_path):
    written(sinks.TensorBoard(tmp_path))
    found = read(tmp_path)
    assert set(found.Tags()["histograms"]) >= {"output/hist/fc", "output/hist/(model)"}
    for row in rows_of(STEPS[0]):
        name, expected = tag(row, "hist"), buckets(row["hist"])
        if expected is None:  # all NaN: there is nothing to draw
            assert name not in found.Tags()["histograms"]
            continue
        got = found.Histograms(name)[0].histogram_value
        assert got.num == row["count"] - row["nan"] - row["inf"] == sum(got.bucket)
        assert (got.min, got.max) == (row["min"], row["max"])
        assert math.isclose(got.sum_squares, row["l2"] ** 2) and list(got.bucket_limit) == expected.edges.tolist()
        assert list(got.bucket) == [0, *expected.counts.tolist()]
        assert np.all(np.diff(got.bucket_limit) > 0)


def test_a_watched_training_run_arrives(tmp_path):
    w = trained(sinks.TensorBoard(tmp_path, stats=["std"], histograms=False))
    found = read(tmp_path)
    got = numbers(found, "output/std/1")
    expected = [(row["step"], row["std"]) for row in w.rows("1", "output")]
    assert [step for step, _ in got] == [0, 1, 2]
    assert [number for _, number in got] == pytest.approx([number for _, number in expected])
    tags = {name for some in found.Tags().values() if isinstance(some, list) for name in some}
    scalars_of_steps = {name for name in tags if name.startswith("scalar/")}
    assert {"scalar/loss", "scalar/lr"} <= scalars_of_steps
    assert tags > scalars_of_steps and all(name.split("/")[1] == "std" for name in tags - scalars_of_steps)
    losses = [number for _, number in numbers(found, "scalar/loss")]
    assert losses == pytest.approx(w.scalars()["loss"].values.tolist())
