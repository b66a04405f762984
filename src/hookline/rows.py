"""Rows: what one row of statistics has, and how it lies in memory. Whoever writes, reads or shows rows asks here.

A row is about one tensor of one step: of a site (the name of a layer, parameter or operator), a kind, a call
within the forward, a mode ("train" or "eval") and a rank. A *series* is the same over the steps.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Protocol, runtime_checkable

Row = dict[str, Any]
"""A row for people; between kernel, disk and page rows are columns."""

COLUMNS: dict[str, type] = {
    "count": int,
    "mean": float,
    "std": float,
    "min": float,
    "max": float,
    "absmax": float,
    "l2": float,
    "zeros": int,
    "near_zero": float,
    "nan": int,
    "inf": int,
}
"""The statistics that every row has, and their types. The one list of them: all others are made of it."""

STATISTICS = tuple(COLUMNS)
COUNTS = tuple(name for name, kind in COLUMNS.items() if kind is int)
FLOATS = tuple(name for name, kind in COLUMNS.items() if kind is float)
HISTOGRAM = "hist"
RATIO = "ratio"
"""Of an update: its norm relative to that of the weight."""

SERIES = ("site", "kind", "call", "mode")
"""What tells the series of one file apart: a file is of one rank."""
IDENTITY = ("site", "kind", "step", "call", "rank", "mode")
"""What a row is about."""
FIXED = frozenset((*IDENTITY, *STATISTICS, HISTOGRAM))
"""What a row has besides is of a user, or of its kind: `ratio`, say."""

KINDS = ("input", "output", "grad_input", "grad_output", "param", "param_grad", "update")
OF_CALLS = ("input", "output", "grad_input", "grad_output")
"""The kinds of which there may be a row for each channel."""


@runtime_checkable
class HasRows(Protocol):
    """What can be asked of rows, wherever they are: a `Watch` has those of its last steps, a `Run` all of them."""

    @property
    def sites(self) -> list[str]:
        """The names of all sites, in the order in which they first came."""

    @property
    def steps(self) -> list[int]:
        """Every step that has a row."""

    def rows(
        self,
        site: str | None = None,
        kind: str | None = None,
        *,
        stat: str | None = None,
        steps: Any = None,
    ) -> list[Row]:
        """The rows of a site (a name or glob), a kind, and steps from one to another; `stat`: that one only."""

    def to_pandas(self, *, histograms: bool = False) -> Any:
        """The rows as a pandas DataFrame."""

    def to_polars(self) -> Any:
        """The rows as a polars DataFrame."""

    def to_arrow(self) -> Any:
        """The rows as an Arrow table."""

    def plot(self, site: str | None = None, kind: str = "output") -> Any:
        """A Figure of the chosen sites."""


HEAD = Struct("4d5q")
"""A reduction's result: mean, m2, min, max as doubles, then how many values are finite, zero, near zero, NaN, Inf.
The kernel writes it (`lines/_kernel.h`); the histogram follows."""
HEADER = HEAD.size // 8
"""How many 64-bit words that is."""
