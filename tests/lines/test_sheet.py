"""The sheet of a step: every tensor has a line, whoever reduces it, also while another thread ends the step."""

import sys
import threading

import numpy as np
import pytest
import torch

from hookline.lines import Stats, collect, kernel, reduce
from hookline.lines.columns import columns_of, histograms_of
from hookline.lines.sheet import Sheet
from hookline.rows import COUNTS, FLOATS, HEADER, HISTOGRAM, STATISTICS
from hookline.watching.steps import Gathered, Key, RowSpec

TENSORS = [
    torch.tensor([]),
    torch.tensor([1.0, -2.0, 0.0, float("nan")]),
    torch.tensor([float("inf")]),
    torch.tensor(3.0, dtype=torch.float64),
    torch.arange(12.0).reshape(3, 4).t(),
    torch.arange(4),
    torch.linspace(-1, 1, 5000, dtype=torch.bfloat16),
]


@pytest.mark.parametrize("way", ["avx512", "avx2", "baseline", "torch"])
@pytest.mark.parametrize("room", [0, 3, 50])
@pytest.mark.parametrize("histogram", [False, True])
def test_lines_are_what_each_tensor_alone_is_reduced_to(way, room, histogram):
    with kernel.using(way):
        sheet = Sheet(histogram, room)
        lines = [sheet.reduce(tensor) for tensor in TENSORS]
        expected = collect([reduce(tensor, histogram) for tensor in TENSORS])
    assert sorted(lines) == list(range(len(TENSORS)))
    words, _ = sheet.read(len(TENSORS))
    integers, floats = columns_of(words[lines, :HEADER])
    hists = histograms_of(words).at(lines).dense()
    for at, stats in enumerate(expected):
        row = stats.row()
        got = dict(zip((*COUNTS, *FLOATS), [*integers[:, at].tolist(), *floats[:, at].tolist()], strict=True))
        np.testing.assert_equal(got, {name: row[name] for name in STATISTICS})
        np.testing.assert_array_equal(hists[at], row[HISTOGRAM])


def test_threads_get_lines_of_their_own():
    sheet, found = Sheet(True, 500), {}
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:

        def work(thread):
            for n in range(100):
                found[thread, n] = sheet.reduce(torch.full((thread + 1,), float(n)))

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert sorted(found.values()) == list(range(800))
    words, _ = sheet.read(800)
    for (thread, n), line in found.items():
        stats = Stats.from_words(words[line])
        assert (stats.count, stats.min, stats.max, stats.hist.sum()) == (thread + 1, n, n, thread + 1)


def test_a_step_that_ends_meanwhile_loses_no_tensor_and_counts_none_twice():
    gathered = Gathered(RowSpec())
    seen, ends = [], threading.Event()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:

        def work(thread):
            for n in range(300):
                gathered.add(Key(f"{thread}.{n}", "output", 0, "train"), torch.full((5,), float(n)))

        def end_steps():
            while not ends.is_set():
                seen.extend(gathered.rows(0, 0))

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
        ender = threading.Thread(target=end_steps)
        for thread in (ender, *threads):
            thread.start()
        for thread in threads:
            thread.join()
        ends.set()
        ender.join()
    finally:
        sys.setswitchinterval(before)
    seen.extend(gathered.rows(0, 0))
    assert sorted(row["site"] for row in seen) == sorted(f"{t}.{n}" for t in range(4) for n in range(300))
    assert all(row["mean"] == float(row["site"].split(".")[1]) and row["count"] == 5 for row in seen)
