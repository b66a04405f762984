from typing import Any

from numpy.typing import NDArray

def gap(a: NDArray[Any], b: NDArray[Any], /) -> tuple[float, float] | None:
    """(largest, norm) of the differences; None where that is not plain."""

def same(a: NDArray[Any], b: NDArray[Any], /) -> bool | None:
    """Whether two arrays have the same bytes; None where there are gaps between their numbers."""

def scale(a: NDArray[Any], /) -> tuple[float, float] | None:
    """(largest, norm) of the numbers without their signs; None where that is not plain."""

def details(a: NDArray[Any], b: NDArray[Any], largest: float, bound: float, /) -> tuple[float, int, int] | None:
    """(dot product, place of the difference `largest`, how many are above `bound`)."""
