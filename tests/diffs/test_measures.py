"""Measures: what C makes of two arrays in one pass is what numpy makes of them in many."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from hookline.diffs import measures
from hookline.diffs.measures import apart, measure, same_bits, scale_of

FLOATS = {dtype: np.finfo(dtype).max for dtype in ("float32", "float64")}
SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-45, 3.4e38, -3.4e38, 1e30]

needs_c = pytest.mark.skipif(measures.in_c is None, reason="there was no compiler when hookline was installed")


@st.composite
def two_arrays(draw):
    dtype = draw(st.sampled_from(["float32", "float64", "float16", "int64", "bool"]))
    shape = draw(arrays_of.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=7))
    kind = np.dtype(dtype).kind
    elements = None
    if kind == "f":
        plain = st.floats(-1e3, 1e3, width=16)
        elements = plain if draw(st.booleans()) else st.one_of(plain, st.sampled_from(SPECIAL[:8]))
    ones = arrays_of.arrays(dtype, shape, elements=elements)
    a, b = draw(ones), draw(ones)
    if draw(st.booleans()):
        b = np.where(draw(arrays_of.arrays(bool, shape)), a, b).astype(dtype)
    if draw(st.booleans()):  # as a layout with the channels last has it
        a, b = np.asfortranarray(a), np.asfortranarray(b) if draw(st.booleans()) else b
    return a, b


def close(one, other):
    if isinstance(one, float):
        return one == pytest.approx(other, rel=1e-5, abs=1e-30, nan_ok=True)
    return one == other


@needs_c
@settings(max_examples=400, deadline=None)
@given(two_arrays())
def test_c_and_numpy_measure_the_same(pair):
    a, b = pair
    plain = pytest.MonkeyPatch()
    asked = [
        lambda: apart(a, b),
        lambda: scale_of(a),
        lambda: same_bits(a, b),
        lambda: measure(a, b, (str(a.dtype), str(b.dtype)), 0.5),
    ]
    found = [one() for one in asked]
    with plain.context() as patched:
        patched.setattr(measures, "in_c", None)
        expected = [one() for one in asked]
    for one, other in zip(found[:2], expected[:2], strict=True):
        assert all(map(close, one, other)), (one, other)
    assert found[2] == expected[2]
    for name, value in vars(expected[3]).items():
        mine = getattr(found[3], name)
        if name == "index" and mine != value:  # of several that are equally far apart either may be told
            gaps = np.abs(np.asarray(a, "float64") - np.asarray(b, "float64"))
            assert gaps[mine] == pytest.approx(gaps[value])
        else:
            assert close(mine, value), (name, mine, value)


@needs_c
@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_that_are_not_finite_and_sums_that_overflow_are_left_to_numpy(dtype):
    ones = np.ones(100, dtype)
    for value in (math.nan, math.inf, FLOATS[dtype]):
        odd = ones.copy()
        odd[70] = value
        if dtype == "float64" or not math.isfinite(value):
            assert measures.in_c.gap(ones, odd) is None
        assert scale_of(odd).largest == 1.0
    assert measures.in_c.gap(ones, ones[:50]) is None
    assert measures.in_c.gap(ones, ones.astype("float16")) is None
    assert measures.in_c.gap(ones[::2], ones[::2]) is None
    assert measures.in_c.same(ones[::2], ones[::2]) is None


@needs_c
def test_many_numbers_are_summed_in_double():
    rng = np.random.default_rng(0)
    a = rng.standard_normal(3_000_001).astype("float32")
    b = a + rng.standard_normal(a.size).astype("float32") * np.float32(1e-4)
    gap = a.astype("float64") - b.astype("float64")
    found = apart(a, b)
    assert found.largest == np.abs(gap).max()
    assert found.norm == pytest.approx(math.sqrt(float((gap**2).sum())), rel=1e-12)


@needs_c
def test_the_sign_of_a_zero_is_a_bit_and_no_difference():
    a, b = np.array([0.0, 1.0]), np.array([-0.0, 1.0])
    assert not same_bits(a, b)
    assert apart(a, b) == measures.Apart()
