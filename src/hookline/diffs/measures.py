"""Measures: how far two arrays are apart. Only numbers that both have finite count; the others are told apart."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hookline.diffs.found import Measure

Array = NDArray[Any]

if TYPE_CHECKING or find_spec("hookline.diffs._apart") is not None:
    from hookline.diffs import _apart as in_c
else:  # there was no compiler when hookline was installed
    in_c = None

SMALL = 1 << 16
"""Up to so many numbers are worked on in float64: it costs nothing there, and sums are exact."""
MANTISSA = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7, "float8_e4m3fn": 3, "float8_e5m2": 2}
"""Bits behind the point of the dtypes that have steps."""

NEAR_THE_END = 2.0**-12
"""Two numbers that both stand for infinity are apart by at least so much of it, or are the same."""


class Apart(NamedTuple):
    """How far two arrays are apart: the largest difference, the norm of all, numbers that only one has finite."""

    largest: float = 0.0
    norm: float = 0.0
    odd: int = 0


class Scale(NamedTuple):
    """How large the numbers of an array are: the largest finite one without its sign, and the norm of these."""

    largest: float = 0.0
    norm: float = 0.0


def step_of(dtype: str) -> float:
    """The step of a dtype at 1.0, its machine epsilon; 0.0 for whole numbers.

    >>> step_of("float32") == np.finfo("float32").eps, step_of("bfloat16"), step_of("int64")
    (np.True_, 0.0078125, 0.0)
    """
    name = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
    return 2.0 ** -MANTISSA[name] if name in MANTISSA else 0.0


def coarser(one: str, other: str) -> str:
    """Of two dtypes the one with the larger steps.

    >>> coarser("float32", "bfloat16"), coarser("int64", "float64")
    ('bfloat16', 'float64')
    """
    return max((one, other), key=step_of)


def same_bits(a: Array, b: Array) -> bool:
    """Whether two arrays have the same bytes: NaN equals itself here, and 0.0 is not -0.0."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    plain = in_c.same(a, b) if in_c is not None and a.dtype.kind in "fiub" else None
    if plain is not None:
        return plain
    if a.dtype.kind in "fc" and a.flags.c_contiguous and b.flags.c_contiguous:
        whole = f"u{min(a.dtype.itemsize, 8)}"
        return bool(np.array_equal(a.reshape(-1).view(whole), b.reshape(-1).view(whole)))
    if a.dtype.kind in "fc":
        return a.tobytes() == b.tobytes()
    return bool(np.array_equal(a, b))


def scale_of(a: Array) -> Scale:
    """How large the numbers of an array are."""
    plain = in_c and in_c.scale(_dense(a))
    if plain and plain[0] < _endless(a):
        return Scale(*plain)
    flat = real(a)
    if not flat.size:
        return Scale()
    largest = max(float(flat.max()), -float(flat.min()))
    if not largest < _endless(a):
        flat = with_endless(flat, a)
        flat = flat[np.isfinite(flat)]
        largest = float(np.abs(flat).max()) if flat.size else 0.0
    return Scale(largest, _norm(flat))


def apart(a: Array, b: Array) -> Apart:
    """How far two arrays of one shape are apart.

    >>> apart(np.array([1.0, np.nan, np.inf]), np.array([1.5, np.nan, 3.0]))
    Apart(largest=0.5, norm=0.5, odd=1)
    >>> apart(np.array([1.0, np.finfo("float64").min]), np.array([1.0, np.finfo("float32").min], "float32"))
    Apart(largest=0.0, norm=0.0, odd=0)
    >>> apart(np.array([1.0, -3.4e38], "float32"), np.array([1.0, -3.39e38], "float32"))
    Apart(largest=0.0, norm=0.0, odd=0)
    """
    plain = in_c and in_c.gap(*_both_dense(a, b))
    if plain and plain[0] < NEAR_THE_END * _endless(a):
        return Apart(*plain)
    if same_bits(a, b) or not a.size:
        return Apart()
    one, other = real(a), real(b)
    gap, odd = _gap(one, other)
    largest = max(float(gap.max()), -float(gap.min())) if gap.size else 0.0
    if odd or largest >= NEAR_THE_END * min(_endless(a), _endless(b)):
        gap, odd = _gap(with_endless(one, a), with_endless(other, b))
        largest = max(float(gap.max()), -float(gap.min())) if gap.size else 0.0
    return Apart(largest, _norm(gap), odd) if gap.size else Apart(odd=odd)


def measure(a: Array, b: Array, dtypes: tuple[str, str], bound: float = 0.0) -> Measure:
    """All that is told of two arrays of one shape; `bound` is the largest difference that is none."""
    if same_bits(a, b) or not a.size:
        return Measure(count=int(a.size))
    if (plain := _plain_measure(a, b, dtypes, bound)) is not None:
        return plain
    one, other = with_endless(real(a), a), with_endless(real(b), b)
    gap, _ = _gap(one, other, keep=True)
    sizes = np.abs(gap, out=gap)
    at = int(sizes.argmax())
    largest = float(sizes[at])
    scale, second = scale_of(a), scale_of(b)
    both = np.isfinite(one) & np.isfinite(other)
    dot = float(np.dot(one, other)) if both.all() else float(np.dot(one[both], other[both]))
    return Measure(
        max_abs=largest,
        max_rel=over(largest, scale.largest),
        l2_rel=over(_norm(gap), scale.norm),
        cosine=_cosine(dot, scale, second),
        norm_ratio=over(second.norm, scale.norm),
        ulp=_steps(largest, max(abs(float(one[at])), abs(float(other[at]))), coarser(*dtypes)),
        nan_mismatch=int((np.isnan(one) != np.isnan(other)).sum()),
        inf_mismatch=int(((np.isinf(one) | np.isinf(other)) & (one != other)).sum()),
        beyond=float((sizes > bound).mean()),
        index=_index(at // 2 if a.dtype.kind == "c" else at, a),
        count=int(a.size),
    )


def _plain_measure(a: Array, b: Array, dtypes: tuple[str, str], bound: float) -> Measure | None:
    """The same where all numbers are finite and of one dtype, without an array for each step; else None."""
    if in_c is None or a.dtype != b.dtype:
        return None
    one, other = np.ascontiguousarray(a), np.ascontiguousarray(b)
    details = in_c.details(one, other, bound)
    if details is None:
        return None
    gap, scale, second, dot, beyond, at = Scale(*details[0]), Scale(*details[1]), Scale(*details[2]), *details[3:]
    if max(scale.largest, second.largest) >= _endless(a):
        return None
    largest = max(abs(float(one.flat[at])), abs(float(other.flat[at])))
    return Measure(
        max_abs=gap.largest,
        max_rel=over(gap.largest, scale.largest),
        l2_rel=over(gap.norm, scale.norm),
        cosine=_cosine(dot, scale, second),
        norm_ratio=over(second.norm, scale.norm),
        ulp=_steps(gap.largest, largest, coarser(*dtypes)),
        beyond=beyond / a.size,
        index=_index(at, a),
        count=int(a.size),
    )


def _cosine(dot: float, one: Scale, other: Scale) -> float:
    product = one.norm * other.norm
    return min(max(dot / product, -1.0), 1.0) if product else float(one.norm == other.norm)


def _index(at: int, a: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(at, a.shape))


def _dense(a: Array) -> Array:
    """The same numbers, in whatever order they lie without gaps."""
    return a if a.flags.c_contiguous else a.ravel(order="K")


def _both_dense(a: Array, b: Array) -> tuple[Array, Array]:
    """Two arrays of one shape as memories that lie in the same order."""
    if a.flags.c_contiguous and b.flags.c_contiguous:
        return a, b
    if a.strides == b.strides and a.dtype == b.dtype and a.flags.forc:
        return a.ravel(order="K"), b.ravel(order="K")
    return np.ascontiguousarray(a), np.ascontiguousarray(b)


def over(part: float, whole: float) -> float:
    """A quotient; something over nothing is infinite, nothing over nothing is 0."""
    return part / whole if whole else math.inf if part else 0.0


def real(a: Array) -> Array:
    """An array of any numbers as a flat one of floats that can be subtracted: complex ones as two each."""
    flat = np.ascontiguousarray(a).reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    if flat.dtype.kind != "f" or flat.size <= SMALL:
        return flat.astype(np.float64)
    return flat.astype(np.float32) if flat.dtype.itemsize < 4 else flat


def with_endless(flat: Array, a: Array) -> Array:
    """The numbers of `real(a)`, where those at the end of the range of a's dtype are infinite.

    They stand for that in masks, and are others in each dtype.
    """
    end = _endless(a)
    if not flat.size or max(float(flat.max()), -float(flat.min())) < end:
        return flat
    return np.where(np.abs(flat) >= end, np.copysign(np.inf, flat), flat)


def _endless(a: Array) -> float:
    """The smallest number that stands for an infinite one in this dtype."""
    return float(np.finfo(a.dtype).max) / 2 if a.dtype.kind in "fc" else math.inf


def _gap(one: Array, other: Array, keep: bool = False) -> tuple[Array, int]:
    """one - other where both are finite, and how many numbers are finite, or of one sign, in one of them only.

    With `keep` all places are there, with 0 where it can't be told.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.subtract(one, other, dtype=np.result_type(one, other))
        if math.isfinite(float(gap.max())) and math.isfinite(float(gap.min())):
            return gap, 0
        finite = np.isfinite(one) & np.isfinite(other)
        alike = (one == other) | (np.isnan(one) & np.isnan(other))
    odd = int((~finite & ~alike).sum())
    too_far = finite & ~np.isfinite(gap)  # finite numbers whose difference is not
    gap[too_far] = np.finfo(gap.dtype).max
    if keep:
        gap[~finite] = 0.0
        return gap, odd
    return gap[finite], odd


def _norm(flat: Array) -> float:
    with np.errstate(over="ignore"):
        square = float(np.dot(flat, flat))
    if math.isfinite(square):
        return math.sqrt(square)
    wide = flat.astype(np.float64)
    largest = float(np.abs(wide).max())
    return largest * float(np.linalg.norm(wide / largest)) if largest else 0.0


def _steps(gap: float, size: float, dtype: str) -> float:
    step = step_of(dtype)
    if not step or not size or not math.isfinite(size):
        return 0.0
    return gap / math.ldexp(step, math.frexp(size)[1] - 1)
