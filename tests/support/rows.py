"""Rows made without a model, and whether two say the same."""

import numpy as np

from hookline.lines import Stats


def row(site="fc", step=0, kind="output", values=(0.25, -3.0), *, mode="train", rank=0, call=0, **more):
    """A row of these values; `more` are columns besides, and take the place of what has their name."""
    base = {"site": site, "kind": kind, "step": step, "call": call, "rank": rank, "mode": mode}
    return {**base, **Stats.of(values).row(), **more}


def same(a, b):
    """Whether two values of a row are the same: a histogram element by element, NaN equal to itself."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    return a == b or (a != a and b != b)


def differing(a, b):
    """The columns in which two rows differ."""
    return [name for name in {**a, **b} if name not in a or name not in b or not same(a[name], b[name])]


def same_rows(a, b):
    """Whether two lists of rows say the same."""
    return len(a) == len(b) and not any(differing(one, other) for one, other in zip(a, b, strict=True))
