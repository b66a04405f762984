"""Rows: what one row of statistics has, and how it lies in memory. Whoever writes, reads or shows rows asks here.

A row is about one tensor of one step: of a site (the name of a layer, parameter or operator), a kind, a call
within the forward, a mode ("train" or "eval") and a rank. A *series* is the same over the steps.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

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

HEAD = Struct("4d5q")
"""A reduction's result: mean, m2, min, max as doubles, then how many values are finite, zero, near zero, NaN, Inf.
The kernel writes it (`lines/_kernel.h`); the histogram follows."""
HEADER = HEAD.size // 8
"""How many 64-bit words that is."""
