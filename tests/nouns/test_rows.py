"""Rows as columns: what goes in as dicts comes out as these dicts, in every way of cutting and joining."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline.errors import InvalidArgument
from hookline.histograms import Histograms
from hookline.lines import Stats
from hookline.rows import COUNTS, FLOATS, STATISTICS, Rows
from tests.support.rows import differing

VALUES = st.lists(st.sampled_from([0.0, -0.25, 3.0, 1e-30, math.nan, math.inf, -math.inf]), max_size=4)


@st.composite
def dicts(draw):
    """A row as people have it, with or without a histogram, and with things besides."""
    row = {
        "site": draw(st.sampled_from(["", "fc", "block.0"])),
        "kind": draw(st.sampled_from(["output", "update"])),
        "step": draw(st.integers(0, 5)),
        "call": draw(st.integers(0, 2)),
        "rank": 0,
        "mode": draw(st.sampled_from(["train", "eval"])),
        **Stats.of(draw(VALUES), histogram=draw(st.booleans())).row(),
    }
    return row | draw(st.sampled_from([{}, {"ratio": 0.5}, {"channels": {"mean": [1.0, 2.0]}}]))


MANY = st.lists(dicts(), max_size=6)


def agree(rows, expected):
    return len(rows) == len(expected) and all(
        differing(got, wanted) == [] for got, wanted in zip(rows, expected, strict=True)
    )


@given(MANY)
def test_dicts_become_columns_and_dicts_again(expected):
    rows = Rows.of(expected)
    assert agree(rows, expected) and agree(rows, expected)  # it can be gone through twice
    assert rows.integers.shape == (len(COUNTS), len(expected))
    assert rows.floats.shape == (len(FLOATS), len(expected))
    for name in STATISTICS:
        np.testing.assert_array_equal(rows.column(name), [row[name] for row in expected])


@given(MANY, st.randoms(use_true_random=False))
def test_rows_at_some_places_are_those_rows_in_that_order(expected, random):
    places = random.sample(range(len(expected)), random.randint(0, len(expected)))
    assert agree(Rows.of(expected).at(places), [expected[place] for place in places])


@given(st.lists(MANY, min_size=1, max_size=3))
def test_parts_that_are_joined_have_all_rows_one_after_the_other(parts):
    expected = [row for part in parts for row in part]
    assert agree(Rows.joined([Rows.of(part) for part in parts]), expected)


@given(dicts(), dicts())
def test_rows_are_the_same_to_the_bit_or_not(one, other):
    assert Rows.of([one]).is_same(Rows.of([dict(one)])) and not Rows.of([one]).is_same(None)
    assert not Rows.of([one]).is_same(Rows.of([{**one, "step": one["step"] + 1}]))
    assert not Rows.of([one]).is_same(Rows.of([{**one, "zeros": one["zeros"] + 1}]))
    assert Rows.of([one]).is_same(Rows.of([other])) == (differing(one, other) == [] and list(one) == list(other))


def test_what_is_missing_in_a_dict_is_zero_or_nan():
    row = {"site": "fc", "kind": "output", "step": 3, "call": 0, "mode": "train"}
    (got,) = Rows.of([row])
    assert {got[name] for name in COUNTS} == {0} and all(math.isnan(got[name]) for name in FLOATS)
    assert got["hist"] is None and got["rank"] == 0


def test_histograms_of_different_sizes_are_refused():
    with pytest.raises(InvalidArgument, match="expected the same number"):
        Histograms.of([np.asarray([1, 2]), None, np.asarray([1, 2, 3])])


def test_no_histograms_take_no_memory():
    many = Histograms.none(3)
    assert many.dense() == [None] * 3 and many.at([2, 0]).dense() == [None] * 2 and many.nbytes == 24
    assert Histograms.joined([]).dense() == []
