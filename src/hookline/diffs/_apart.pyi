from typing import Any

from numpy.typing import NDArray

def gap(a: NDArray[Any], b: NDArray[Any], /) -> tuple[float, float] | None:
    """(largest, norm) of the differences; None where that is not plain."""

def same(a: NDArray[Any], b: NDArray[Any], /) -> bool | None:
    """Whether two arrays have the same bytes; None where there are gaps between their numbers."""

def scale(a: NDArray[Any], /) -> tuple[float, float] | None:
    """(largest, norm) of the numbers without their signs; None where that is not plain."""

Sizes = tuple[float, float]

def details(
    a: NDArray[Any], b: NDArray[Any], bound: float, /
) -> tuple[Sizes, Sizes, Sizes, float, float, int] | None:
    """(largest, norm) of the differences, of `a` and of `b`; the dot product, how many differences exceed `bound`
    and the place of the largest; None where that is not plain."""
