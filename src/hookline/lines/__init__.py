"""Lines: tensors reduced to statistics in one pass. Left of it there are tensors, right of it only numbers.

>>> import torch
>>> from hookline import lines
>>> reduced = [lines.reduce(torch.full((100,), float(n))) for n in range(3)]
>>> a, b, c = lines.collect(reduced)
>>> a.merge(b).merge(c).row()["mean"]
1.0
"""

from hookline import bins
from hookline.lines.kernel import kernel_in_use, why_not_native
from hookline.lines.reduce import Reduced, collect, collect_channels, reduce, reduce_channels
from hookline.lines.registry import statistic
from hookline.lines.stats import Stats

__all__ = [
    "Reduced",
    "Stats",
    "bins",
    "collect",
    "collect_channels",
    "kernel_in_use",
    "reduce",
    "reduce_channels",
    "statistic",
    "why_not_native",
]
