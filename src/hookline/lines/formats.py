"""Formats: which values a smaller float format would lose, told from a histogram."""

from __future__ import annotations

import difflib
from typing import NamedTuple

from hookline.errors import InvalidArgument


class Format(NamedTuple):
    """From `overflow` on, a magnitude is rounded beyond the largest number; up to `underflow`, to zero."""

    overflow: float
    underflow: float


def _format(largest: float, step: float, smallest: float) -> Format:
    return Format(largest + step / 2, smallest / 2)


FORMATS = {
    "fp16": _format(65504.0, 2.0**5, 2.0**-24),
    "bf16": _format(2.0**128 - 2.0**120, 2.0**120, 2.0**-133),
    "fp8_e4m3": _format(448.0, 2.0**5, 2.0**-9),
    "fp8_e5m2": _format(57344.0, 2.0**13, 2.0**-16),
}


def format_of(name: str) -> Format:
    """The format of that name.

    >>> format_of("fp16").overflow
    65520.0
    """
    if name in FORMATS:
        return FORMATS[name]
    near = difflib.get_close_matches(name, FORMATS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise InvalidArgument(f"no float format is called {name!r}.{hint} There are {', '.join(FORMATS)}.")
