"""The laws of the kernel over random values: on each of its levels, against sums without rounding."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hookline import bins
from hookline.lines import Stats, collect, kernel, reduce
from hookline.lines.reduce import copied_into, reduce_difference
from hookline.rows import HEADER

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
ODD = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e-40, -1e-44, 5e-324, 6e-8, 0.05, -0.05]


@pytest.fixture(params=["avx512", "avx2", "baseline"], autouse=True)
def way(request):
    with kernel.using(request.param) as name:
        if name != kernel.WAYS[request.param]:
            pytest.skip(f"this machine has no {request.param}: {kernel.why_not_native() or name}")
        yield request.param


@st.composite
def tensors(draw, sizes):
    """Values about an offset, some of them odd, some the same as their neighbours."""
    size, seed = draw(sizes), draw(st.integers(0, 2**32 - 1))
    scale, offset = 10.0 ** draw(st.integers(-30, 30)), draw(st.sampled_from([0, 0, 0, 1, -3, 100, 1e4, -1e7]))
    spread, odd = draw(st.sampled_from([0, 0, 1, 8])), draw(st.sampled_from([0, 0, 0.0003, 0.02, 0.5]))
    random = np.random.default_rng(seed)
    values = random.standard_normal(size) * np.exp(spread * random.standard_normal(size))
    x = torch.from_numpy((values + offset) * scale).to(draw(st.sampled_from(DTYPES)))
    if draw(st.booleans()):
        x = x.relu()
    for place in np.flatnonzero(random.random(size) < odd).tolist():
        x[place] = ODD[random.integers(len(ODD))]
    return x


def follows(x, histogram):
    (stats,) = collect([reduce(x, histogram)])
    values = x.double().numpy()
    finite = values[np.isfinite(values)]
    n = len(finite)
    exact = (stats.finite, stats.nan, stats.inf, stats.zeros, stats.near_zero)
    wanted = n, int(np.isnan(values).sum()), int(np.isinf(values).sum()), int((values == 0).sum())
    assert exact == (*wanted, int((x.abs() <= 0.05).sum()))
    if histogram:
        assert (stats.hist == Stats.of(values).hist).all()
    if not n:
        return
    assert (stats.min, stats.max) == (finite.min(), finite.max())
    largest = float(np.abs(finite).max())
    mean = math.fsum(finite.tolist()) / n
    assert stats.mean == pytest.approx(mean, rel=1e-12, abs=1e-12 * largest)
    std = math.sqrt(math.fsum(((finite - mean) ** 2).tolist()) / n)
    assert math.sqrt(stats.m2 / n) == pytest.approx(std, rel=1e-10, abs=1e-300)
    l2 = math.sqrt(math.fsum((finite**2).tolist()))
    assert math.sqrt(stats.sumsq) == pytest.approx(l2, rel=1e-12, abs=1e-12 * largest)


@pytest.mark.parametrize("histogram", [False, True])
@settings(deadline=None, max_examples=150)
@given(x=tensors(st.integers(0, 20_000)))
def test_any_values(histogram, x):
    follows(x, histogram)


@settings(deadline=None, max_examples=40)
@given(x=tensors(st.integers(16_000, 60_000)))
def test_many_values(x):
    """So many that the histogram is gathered in tables."""
    follows(x, True)


@pytest.mark.parametrize("more", [0, 1, 15, 16, 17, 4095])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_end_of_many_values(dtype, more):
    x = torch.randn(5 * 4096 + more, generator=torch.Generator().manual_seed(more)).to(dtype)
    follows(x, True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_small_number_of_values(dtype):
    x = torch.randn(300, generator=torch.Generator().manual_seed(0)).to(dtype)
    for size in range(300):
        follows(x[:size], True)


@pytest.mark.parametrize("size", [40, 4096, 3 * 4096 + 17])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_magnitudes_far_apart(dtype, size):
    """More of them than a table, or a register, has room for; and the smallest there are."""
    random = torch.Generator().manual_seed(size)
    for octaves in (4, 15, 16, 17, 31, 33, 60, 250):
        exponents = torch.rand(size, generator=random, dtype=torch.float64) * octaves
        sign = torch.randint(0, 2, (size,), generator=random) * 2 - 1
        for largest in (-120, -20, 0, 15, 127):
            x = (sign * 2.0 ** (largest - exponents)).to(dtype)
            follows(x, True)
            x[:: size // 40] = 0.0
            x[1 :: size // 20] = torch.finfo(dtype).smallest_normal / 2**7
            follows(x, True)


@pytest.mark.parametrize("size", [5000, 40_000])
def test_denormals_whose_upper_bits_are_zero(size):
    x = torch.randn(size, generator=torch.Generator().manual_seed(0))
    x[::3], x[1::50], x[2::70], x[5::90] = 0.0, 1e-44, -1e-45, 9.1e-41
    follows(x, True)
    x[::3] = -0.0
    follows(x, True)
    x[::1000], x[4::7000] = math.nan, math.inf
    follows(x, True)
    x = torch.randn(size, generator=torch.Generator().manual_seed(1))
    x[size - 20] = 1e-44  # the only one, in a late block
    follows(x, True)
    follows(torch.full((size,), 1e-44), True)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_that_are_not_finite_among_many(dtype, bad):
    """They begin and end on the way; whole blocks have nothing else; the first block has."""
    x = torch.randn(10 * 4096 + 21, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[5 * 4096 + 7 :: 3], x[8 * 4096 :] = bad, 1.5
    follows(x, True)
    x[3 * 4096 : 5 * 4096] = bad
    follows(x, True)
    x[:4096], x[-3:] = bad, bad
    follows(x, True)


def test_each_bin_of_one_value():
    """A block of one value fills one counter, which must have room for it."""
    for exponent in (-149, -126, -30, 0, 127):
        for value in (2.0**exponent, -1.5 * 2.0**exponent):
            follows(torch.full((3 * 4096,), value), True)


@pytest.mark.parametrize("bad", [None, math.nan, math.inf], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_outlier_as_first_finite_value(dtype, bad):
    """Moments about it would lose the others: it is all of the squares, and each value is as far from it."""
    for seed in range(20):
        random = torch.Generator().manual_seed(seed)
        for size in (15, 4096, 2 * 4096 + 1000):
            x = torch.randn(size, generator=random, dtype=torch.float64) * 1e-3
            outlier = 0
            if bad is not None:
                x[0], x[7 :: 500 * (seed + 1)], outlier = bad, bad, 1
            x[outlier] = 1000 + 1000 * torch.rand((), generator=random, dtype=torch.float64)
            follows(x.to(dtype), True)
            follows((x * 1e-3 - 7).to(dtype), True)


@settings(deadline=None, max_examples=40)
@given(parts=st.lists(tensors(st.integers(1, 9000)), min_size=2, max_size=12), exponent=st.integers(-20, 20))
def test_values_that_change_on_the_way(parts, exponent):
    """Blocks unlike those before them: another mean, other magnitudes, other things among them."""
    parts = [part.double() * 2.0 ** (number * exponent) for number, part in enumerate(parts)]
    follows(torch.cat(parts).float(), True)
    follows(torch.cat(parts).bfloat16(), True)


@settings(deadline=None, max_examples=25)
@given(x=tensors(st.integers(2, 12_000)), step=st.integers(2, 5), at=st.integers(0, 4))
def test_layouts_and_parts_give_what_the_whole_does(x, step, at):
    follows(x[at::step], True)
    follows(x[at:], True)  # from another address
    whole, *parts = collect([reduce(x), reduce(x[: len(x) // 3]), reduce(x[len(x) // 3 :])])
    merged = Stats.merged(parts)
    assert (merged.hist == whole.hist).all() and merged.zeros == whole.zeros and merged.nan == whole.nan


@settings(deadline=None, max_examples=25)
@given(x=tensors(st.integers(1, 20_000)))
def test_a_processor_that_flushes_denormals(x):
    (wanted,) = collect([reduce(x)])
    torch.set_flush_denormal(True)
    try:
        found = reduce(x)
    finally:
        torch.set_flush_denormal(False)
    assert bytes(found.words) == bytes(wanted.words())


def near(x, seed):
    """What a step could have made of x: most values are close to what they were, some are the same."""
    random = torch.Generator().manual_seed(seed)
    moved = x.double() * (1 + 0.01 * torch.randn(len(x), generator=random, dtype=torch.float64))
    return torch.where(torch.rand(len(x), generator=random) < 0.3, x, moved.to(x.dtype))


@pytest.mark.parametrize("histogram", [False, True])
@settings(deadline=None, max_examples=80)
@given(before=tensors(st.integers(2, 20_000)), seed=st.integers(0, 9))
def test_a_difference_that_is_not_made(histogram, before, seed):
    after = near(before, seed)
    made, found = reduce(after - before, histogram), reduce_difference(after, before, histogram)
    assert bytes(found.words) == bytes(made.words)


def is_copied(x, shift, histogram):
    """To the beginning of a cache line, or some values behind it."""
    memory = torch.full((len(x) + 128,), 7.0, dtype=x.dtype)
    start = shift + (-memory.data_ptr() % 64) // x.element_size()
    room = memory[start : start + len(x)]
    found = np.zeros(HEADER + bins.COUNT * histogram, np.int64)
    assert copied_into(found.ctypes.data, x, room, histogram)
    assert bytes(found) == bytes(reduce(x, histogram).words)
    assert room.view(torch.uint8).tolist() == x.view(torch.uint8).tolist()
    assert (memory[:start] == 7).all() and (memory[start + len(x) :] == 7).all()


@pytest.mark.parametrize("histogram", [False, True])
@settings(deadline=None, max_examples=80)
@given(x=tensors(st.integers(1, 40_000)), shift=st.sampled_from([0, 0, 0, 1, 7]))
def test_a_copy_that_is_made_on_the_way(histogram, x, shift):
    is_copied(x, shift, histogram)


@pytest.mark.parametrize("more", [0, 1, 15, 16, 17, 31, 33, 4095])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_end_of_a_copy_of_many_values(dtype, more):
    """Past the caches whole lines are written; what is left of one must not be."""
    x = torch.randn(4 * 4096 + more, generator=torch.Generator().manual_seed(more)).to(dtype)
    is_copied(x, 0, True)
    x[3 * 4096] = math.nan
    is_copied(x, 0, True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_differences_of_halves_are_rounded_as_torch_does(dtype):
    every = torch.arange(2**16, dtype=torch.int32).to(torch.uint16).view(dtype)
    random = torch.Generator().manual_seed(0)
    for _ in range(20):
        other = every[torch.randperm(2**16, generator=random)]
        made, found = reduce(every - other), reduce_difference(every, other, True)
        assert bytes(found.words) == bytes(made.words)


def test_what_does_not_lie_side_by_side_is_not_subtracted():
    x = torch.randn(4, 3, 5, 5)
    other = x.to(memory_format=torch.channels_last)
    assert reduce_difference(x, x.clone(), False) is not None
    assert reduce_difference(other, other.clone(), False) is not None
    for after, before in [(x, other), (x, x.double()), (x, x.reshape(12, 25)), (x[:, :2], x[:, :2].clone())]:
        assert reduce_difference(after, before, False) is None
    torch.set_flush_denormal(True)
    try:
        assert reduce_difference(x, x.clone(), False) is None
    finally:
        torch.set_flush_denormal(False)
