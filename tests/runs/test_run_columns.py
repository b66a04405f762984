"""What is asked of a run: columns instead of dicts, tables of a known size, and errors that say what there is."""

import math

import numpy as np
import pytest

import hookline
from hookline import plots
from tests.support.hostile import row


@pytest.fixture
def run(tmp_path):
    store = hookline.RunStore(tmp_path / "run")
    store.open({"model": "Net", "sites": [["", "Net"], ["fc", "Linear"], ["unused", "Linear"]]})
    for step in (5, 0, 1, 2, 3):
        rows = [
            row(step, "fc", own=step * 1.5),
            {**row(step, "fc.weight", ratio=0.5), "kind": "update", "hist": None},
        ]
        store._opened().write([*rows, {**row(step, "fc"), "kind": "grad_output", "note": "text"}])
    store.close()
    with hookline.open_run(tmp_path / "run") as opened:
        yield opened


def same(a, b):
    return a == b or (isinstance(a, float) and math.isnan(a) and (b is None or math.isnan(b)))


def test_columns_have_what_rows_have(run):
    rows, columns = run.rows(), run.columns()
    assert set(columns) == {name for one in rows for name in one} - {"hist"}
    assert len(rows) == run.count() == 15 and columns["step"].tolist() == [one["step"] for one in rows]
    for name, values in columns.items():
        assert all(same(a, one.get(name)) for a, one in zip(values.tolist(), rows, strict=True)), name
    assert columns["mean"].dtype == np.float64 and columns["count"].dtype == np.int64


def test_columns_of_a_part(run):
    found = run.columns("fc", "output", ["mean", "own"], steps=(1, 3))
    assert list(found) == ["site", "kind", "step", "call", "rank", "mode", "mean", "own"]
    assert found["step"].tolist() == [1, 2, 3] and found["own"].tolist() == [1.5, 3.0, 4.5]
    assert run.columns("fc", "output", "l2", steps=range(0, 9, 5))["step"].tolist() == [0, 5]
    empty = run.columns("unused")
    assert len(empty["step"]) == 0 and empty["mean"].dtype == np.float64
    assert np.isnan(run.columns("fc", "output", "ratio")["ratio"]).all()


def test_histograms_as_columns_are_those_of_the_rows(run):
    rows, found = run.rows(), run.columns(histograms=True)
    starts = found["hist_starts"]
    assert len(starts) == len(rows) + 1 and starts[-1] == len(found["hist_bins"]) == len(found["hist_counts"])
    for place, one in enumerate(rows):
        mine = slice(starts[place], starts[place + 1])
        if one["hist"] is None:
            assert found["hist_lengths"][place] == -1 and starts[place] == starts[place + 1]
        else:
            assert np.array_equal(np.flatnonzero(one["hist"]), found["hist_bins"][mine])
            assert np.array_equal(one["hist"][one["hist"] > 0], found["hist_counts"][mine])


def test_a_table_has_histograms_only_when_they_are_asked_for(run):
    table = run.to_pandas()
    assert len(table) == 15 and "hist" not in table and "hist_bins" not in table
    assert table["step"].tolist() == sorted(table["step"]) and set(table["note"].dropna()) == {"text"}
    dense = table.memory_usage(deep=False).sum() / len(table)
    assert dense < 300, "bytes of a row"
    full = run.to_pandas(histograms=True)
    for one, bins in zip(run.rows(), full["hist_bins"], strict=True):
        assert bins is None if one["hist"] is None else bins.tolist() == np.flatnonzero(one["hist"]).tolist()


def test_the_size_of_a_table_is_told_before_it_is_made(run):
    assert 15 * 200 <= run.table_bytes() < run.table_bytes(histograms=True)
    with pytest.raises(hookline.InvalidArgument, match=r"15 rows takes about .* GB.*run.chunks\(\)"):
        run.to_pandas(limit=1000)
    assert len(run.to_pandas(limit="1MB")) == 15


def test_chunks_are_all_rows_piece_by_piece(run):
    some = list(run.chunks(rows=4))
    assert (
        len(some) > 1 and np.concatenate([one["step"] for one in some]).tolist() == run.columns()["step"].tolist()
    )
    with pytest.raises(hookline.InvalidArgument, match="rows=0"):
        run.chunks(rows=0)


@pytest.mark.parametrize("ask", [hookline.Run.rows, hookline.Run.columns])
def test_what_is_not_in_a_run_is_an_error_that_names_what_is(run, ask):
    with pytest.raises(hookline.NoSuchSite, match=r"'fcc'. Did you mean 'fc'.*'fc.weight'"):
        ask(run, "fcc")
    with pytest.raises(hookline.NoSuchSite, match="layer"):
        ask(run, "layer*")
    with pytest.raises(hookline.InvalidArgument, match=r"kind 'outputs'. Did you mean 'output'.*'update'"):
        ask(run, "fc", "outputs")
    with pytest.raises(hookline.InvalidArgument, match=r"no 'meen'. Did you mean 'mean'.*own"):
        ask(run, stat="meen")
    for wrong in (3, (1,), (1, 2, 3), "all", (0.5, 2), [1, 2]):
        with pytest.raises(hookline.InvalidArgument, match=r"steps=.*expected \(first, last\)"):
            ask(run, steps=wrong)
    with pytest.raises(hookline.InvalidArgument, match="a glob such as"):
        ask(run, 5)


def test_what_is_there_and_has_no_rows_is_empty(run, tmp_path):
    assert run.rows("unused") == [] and run.rows("fc.weight", "output") == [] and run.rows(steps=(90, 99)) == []
    hookline.RunStore(tmp_path / "new").open()
    assert hookline.open_run(tmp_path / "new").rows("anything", "at all") == []


def test_plots_name_what_there_is(run):
    rows = run.rows()
    with pytest.raises(hookline.InvalidArgument, match=r"no site matches 'fcc'. Did you mean 'fc'"):
        plots.curves(rows, "mean", "fcc")
    with pytest.raises(hookline.InvalidArgument, match=r"no 'outputs' rows. Did you mean 'output'"):
        plots.curves(rows, kind="outputs")
    for draw in (plots.curves, plots.gradient_flow):
        with pytest.raises(hookline.InvalidArgument, match=r"no 'meen'. Did you mean 'mean'"):
            draw(rows, stat="meen", kind="output")
    for draw in (plots.distributions, plots.gradient_flow):
        with pytest.raises(hookline.InvalidArgument, match="no rows of step 77; there are steps from 0 to 5"):
            draw(rows, step=77, kind="output")


def test_damage_is_told_with_its_steps_and_the_rest_is_read(tmp_path):
    store = hookline.RunStore(tmp_path / "run")
    store.open({})
    for step in range(5):
        store._opened().write([row(step)])
    store.close()
    file = tmp_path / "run" / "rank0-0000.sqlite"
    data = bytearray(file.read_bytes())
    marks = [at for at in range(len(data)) if data[at : at + 4] == b"HLF3"]
    data[marks[4] + 12] ^= 1  # the statistics of the third frame: each has a block of histograms as well
    file.write_bytes(data)
    run = hookline.open_run(tmp_path / "run")
    with pytest.warns(
        UserWarning, match=r"frame \d, with rows of step (\d), is damaged and left out: its checksum"
    ):
        rows = run.rows()
    (told,) = run.damage
    assert len(rows) == 4 and f"step {({*range(5)} - {one['step'] for one in rows}).pop()}," in told
    assert len(run.rows()) == 4, "what was told once is not told again"
