"""Stats: merging by law, quantiles and shares of losses against the true ones, rows."""

import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hookline import InvalidArgument
from hookline.lines import Stats, bins, collect, reduce
from hookline.lines.formats import FORMATS
from hookline.lines.stats import Extra

EXACT = ("count", "min", "max", "zeros", "near_zero", "nan", "inf")
numbers = st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e6, 1e6 + 1])


def reduced(values, dtype=torch.float32):
    (stats,) = collect([reduce(torch.tensor(values, dtype=dtype))])
    return stats


def alike(a, b, values):
    for name in EXACT:
        assert getattr(a, name) == getattr(b, name), name
    assert (a.hist == b.hist).all()
    finite = [abs(x) for x in values if math.isfinite(x)]
    scale = max(finite, default=0.0)
    assert a.mean == pytest.approx(b.mean, rel=1e-12, abs=1e-13 * scale)
    assert a.m2 == pytest.approx(b.m2, rel=1e-12, abs=1e-13 * scale * scale * len(values))
    assert a.sumsq == pytest.approx(b.sumsq, rel=1e-12)


@given(st.lists(numbers, max_size=60), st.lists(st.integers(0, 60), max_size=5), st.randoms())
def test_any_split_merged_in_any_order_is_one_pass(values, cuts, random):
    bounds = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    parts = [reduced(values[a:b]) for a, b in itertools.pairwise(bounds)]
    random.shuffle(parts)
    alike(Stats.merged(parts), reduced(values), values)


@given(st.lists(st.lists(numbers, max_size=20), max_size=4))
def test_rows_merge_to_what_one_pass_over_all_values_gives(parts):
    rows = [Stats.of(np.asarray(part, np.float32)).row() for part in parts]
    everything = [value for part in parts for value in part]
    merged, whole = Stats.merged(map(Stats.from_row, rows)), Stats.of(np.asarray(everything, np.float32))
    for name in EXACT:
        assert getattr(merged, name) == getattr(whole, name), name
    # A square root and a square: what is lost is relative to the largest value.
    scale = max((abs(x) for x in everything if math.isfinite(x)), default=0.0)
    assert merged.mean == pytest.approx(whole.mean, rel=1e-12, abs=1e-13 * scale)
    assert merged.m2 == pytest.approx(whole.m2, rel=1e-9, abs=1e-12 * scale * scale * len(everything))
    assert merged.sumsq == pytest.approx(whole.sumsq, rel=1e-12)
    assert merged.hist is None or (merged.hist == whole.hist).all()


@given(st.lists(numbers, max_size=40), st.booleans())
def test_a_row_has_all_that_its_statistics_are_made_of(values, histogram):
    stats = Stats.of(np.asarray(values, np.float32), histogram)
    again = Stats.from_row(stats.row())
    for name, value in stats.row().items():
        other = again.row()[name]
        if name == "hist":
            assert (other is None) == (value is None) and np.array_equal(other, value)
        else:
            assert other == pytest.approx(value, rel=1e-14, nan_ok=True), name


def test_statistics_of_users_merge_in_rows_as_they_say():
    rows = [{**Stats.of([1.0] * n).row(), "peak": float(n), "share": float(n)} for n in (1, 3)]
    merges = {"peak": "max", "share": "mean", "missing": "sum"}
    merged = Stats.merged(Stats.from_row(row, merges) for row in rows).row()
    assert merged["peak"] == 3.0 and merged["share"] == 2.5 and "missing" not in merged


@given(*[st.lists(numbers, max_size=20)] * 3)
def test_merging_is_associative(x, y, z):
    a, b, c = map(reduced, (x, y, z))
    alike(a.merge(b).merge(c), a.merge(b.merge(c)), x + y + z)


@given(st.lists(numbers, max_size=40))
def test_a_reduction_is_what_numpy_says(values):
    alike(reduced(values), Stats.of(np.asarray(values, np.float32)), values)


def test_many_parts_of_a_large_mean_keep_their_spread():
    x = torch.randn(10_000, dtype=torch.float64) + 1e6
    merged = Stats.merged(collect([reduce(part) for part in x.split(7)]))
    assert merged.row()["std"] == pytest.approx(x.std().item(), rel=1e-9)


def test_merging_means_beyond_the_range_of_differences():
    a, b = reduced([1.7e308], torch.float64), reduced([-1.7e308], torch.float64)
    both = a.merge(b)
    assert both.mean == 0 and both.m2 == math.inf and both.row()["std"] == math.inf


def test_a_histogram_is_dropped_where_one_part_has_none():
    with_hist, without = Stats.of([1.0]), Stats.of([1.0], histogram=False)
    assert with_hist.merge(without).hist is None
    assert with_hist.merge(Stats()).hist is with_hist.hist
    with pytest.raises(InvalidArgument, match="reduce with histogram=True"):
        without.quantile(0.5)


def test_extras_merge_as_they_say():
    def part(count, value):
        return Stats(count=count, extra={how: Extra(value, how) for how in ("mean", "sum", "min", "max")})

    assert {k: v.value for k, v in part(1, 4.0).merge(part(3, 8.0)).extra.items()} == {
        "mean": 7.0,
        "sum": 12.0,
        "min": 4.0,
        "max": 8.0,
    }


def test_stats_go_to_other_processes():
    (stats,) = collect([reduce(torch.tensor([1.0, 2.0]), extra=[])])
    there = pickle.loads(pickle.dumps(stats))
    alike(there.merge(stats), reduced([1.0, 2.0, 1.0, 2.0]), [1.0, 2.0])


def test_rows_without_values():
    row = Stats().row()
    assert row["count"] == 0 and row["zeros"] == 0
    assert all(math.isnan(row[name]) for name in ("mean", "std", "min", "max", "absmax", "l2", "near_zero"))
    row = Stats.of([math.nan, math.inf]).row()
    assert row["near_zero"] == 0 and math.isnan(row["l2"]) and math.isnan(row["absmax"])
    assert math.isnan(Stats.of([1.0]).row()["std"]) and Stats.of([1.0]).row()["mean"] == 1


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1), st.floats(0, 1))
def test_a_quantile_is_in_the_bin_of_the_true_one(values, q):
    true = float(np.quantile(np.asarray(values, np.float64), q, method="lower"))
    found = Stats.of(values).quantile(q)
    low, high = (float(edge[bins.index(true)]) for edge in bins.edges())
    assert low <= found <= high
    assert min(values) <= found <= max(values)


@pytest.mark.parametrize("q", [0.01, 0.25, 0.5, 0.9, 0.99])
def test_quantiles_of_a_normal_distribution(q):
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    (stats,) = collect([reduce(x)])
    assert stats.quantile(q) == pytest.approx(float(x.quantile(q)), rel=0.05, abs=0.01)


def test_quantiles_refuse_what_is_no_share():
    for q in (-0.1, 1.1, math.nan):
        with pytest.raises(InvalidArgument, match="a share between 0 and 1"):
            Stats.of([1.0]).quantile(q)
    assert math.isnan(Stats.of([]).quantile(0.5))


TORCH = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}


@pytest.mark.parametrize("name", FORMATS)
def test_the_limits_of_a_format_are_those_of_torch(name):
    above = torch.tensor(FORMATS[name].overflow, dtype=torch.float64)
    below = torch.tensor(FORMATS[name].underflow, dtype=torch.float64)

    def cast(value):
        return value.float().to(TORCH[name]).double()

    largest = torch.finfo(TORCH[name]).max
    assert not cast(above * (1 + 1e-6)).isfinite() or cast(above * (1 + 1e-6)) == largest  # saturates
    assert cast(above * (1 - 1e-6)) == largest
    assert cast(below * (1 - 1e-4)) == 0 and cast(below * (1 + 1e-4)) > 0  # fp32 has few denormals there


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=20)
@given(seed=st.integers(0, 100))
def test_shares_that_a_format_loses(name, seed):
    """Off by no more than the bin that the limit cuts."""
    exponents = torch.empty(3000, dtype=torch.float64).uniform_(-150, 127, generator=torch.manual_seed(seed))
    x = (2**exponents * torch.where(exponents > 0, 1, -1)).float()
    (stats,) = collect([reduce(x)])
    for limit, found, true in (
        (FORMATS[name].overflow, stats.overflow(name), (x.double().abs() >= FORMATS[name].overflow).sum()),
        (
            FORMATS[name].underflow,
            stats.underflow(name),
            ((x.double().abs() <= FORMATS[name].underflow) & (x != 0)).sum(),
        ),
    ):
        cut = stats.hist[bins.index(limit)] + stats.hist[bins.index(-limit)]
        assert abs(found * 3000 - int(true)) <= cut + 1e-6


def test_no_such_format():
    with pytest.raises(InvalidArgument, match=r"no float format is called 'f16'\. Did you mean 'fp16'"):
        Stats.of([1.0]).overflow("f16")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_value_is_between_the_edges_of_its_bin(value):
    low, high = bins.edges()
    at = bins.index(value)
    assert low[at] <= value <= high[at] and (value == 0) == (at == bins.ZERO)
    assert len(low) == len(high) == bins.COUNT and (np.diff(low) >= 0).all()


@pytest.mark.parametrize("narrow", [torch.float16, torch.bfloat16, torch.float32])
@given(value=st.floats(width=16, allow_nan=False, allow_infinity=False))
def test_a_value_has_one_bin_whatever_its_dtype(narrow, value):
    x = torch.tensor([value], dtype=narrow)
    same = collect([reduce(x), reduce(x.double()), reduce(x.float())])
    assert len({int(stats.hist.argmax()) for stats in same}) == 1


def test_trimming_an_empty_histogram():
    first, counts = bins.trimmed(Stats.of([]).hist)
    assert len(counts) == 0 and not bins.restored(first, counts).any()
