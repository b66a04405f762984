"""Registry: the statistics by name, and `@statistic`, by which a user adds one.

A statistic is a function in one of two forms, told apart by its parameters:

- of the `Stats` of a tensor, giving a float. It costs nothing while the model runs and merges by itself.
- of a tensor and its framework's functions (`xp`, the module `torch`, say), giving a scalar tensor on
  the same device, without waiting for it: no `.item()`. How two of its values merge is said by `merge`.

>>> @statistic("p999")
... def p999(stats):
...     return stats.quantile(0.999)
>>> @statistic("peak_to_mean", merge="max")
... def peak_to_mean(x, xp):
...     return x.abs().max() / x.abs().mean()
>>> import torch
>>> from hookline.lines import collect, reduce
>>> (stats,) = collect([reduce(torch.tensor([1.0, 2.0, 3.0]), extra=["peak_to_mean"])])
>>> values(stats, ["peak_to_mean", "overflow_fp16"])
{'peak_to_mean': 1.5, 'overflow_fp16': 0.0}
>>> forget("p999"), forget("peak_to_mean")
(None, None)
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from hookline.errors import InvalidArgument
from hookline.lines.formats import FORMATS
from hookline.lines.stats import Stats
from hookline.rows import HISTOGRAM, STATISTICS

MERGES = ("mean", "sum", "min", "max")
BASIC = (*STATISTICS, HISTOGRAM)
"""What every row has."""

Fn = TypeVar("Fn", bound=Callable[..., Any])


class Statistic(NamedTuple):
    """A registered function; `merge` is None for one of Stats."""

    name: str
    fn: Callable[..., Any]
    merge: str | None


_known: dict[str, Statistic] = {}


def statistic(name: str, *, merge: str = "mean") -> Callable[[Fn], Fn]:
    """A decorator that registers a function of (stats) or of (tensor, xp) under `name`.

    `merge` says how values of the second form merge over batches: "mean" (weighted by the number of
    elements), "sum", "min" or "max".
    """
    if merge not in MERGES:
        raise InvalidArgument(f"merge={merge!r} is unknown; a statistic merges by {', '.join(MERGES)}.")

    def register(fn: Fn) -> Fn:
        if name in BASIC or name in _known:
            raise InvalidArgument(f"a statistic {name!r} exists already. Known: {', '.join(known())}.")
        parameters = len(inspect.signature(fn).parameters)
        if parameters not in (1, 2):
            raise InvalidArgument(
                f"statistic {name!r}: expected a function of (stats) or of (tensor, xp), "
                f"this one has {parameters} parameters."
            )
        _known[name] = Statistic(name, fn, merge if parameters == 2 else None)
        return fn

    return register


def known() -> list[str]:
    """The names of all statistics: those of every row, then those that can be asked for."""
    return [*BASIC, *_known]


def find(name: str) -> Statistic:
    """The statistic of that name, which is none of every row's; InvalidArgument lists what there is."""
    if name in _known:
        return _known[name]
    if name in BASIC:
        raise InvalidArgument(f"every row has {name!r}; it need not be asked for.")
    near = difflib.get_close_matches(name, known(), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise InvalidArgument(
        f"no statistic is called {name!r}.{hint} Known: {', '.join(known())}. Add one with @statistic."
    )


def forget(name: str) -> None:
    """Takes a statistic out."""
    del _known[find(name).name]


def on_tensors(names: Iterable[str]) -> list[Statistic]:
    """Those of the named statistics that must be computed while the tensor is there."""
    return [found for name in names if name not in BASIC and (found := find(name)).merge is not None]


def values(stats: Stats, names: Iterable[str]) -> dict[str, Any]:
    """The named statistics of `stats`."""
    row = stats.row()
    return {name: row[name] if name in row else _derived(stats, find(name)) for name in names}


def _derived(stats: Stats, wanted: Statistic) -> float:
    if wanted.merge is not None:
        raise InvalidArgument(
            f"{wanted.name!r} is computed from the tensor itself, and was not: "
            f"reduce with extra=[{wanted.name!r}]."
        )
    return float(wanted.fn(stats))


def _quantile(q: float, stats: Stats) -> float:
    return stats.quantile(q)


def _overflow(format: str, stats: Stats) -> float:
    return stats.overflow(format)


def _underflow(format: str, stats: Stats) -> float:
    return stats.underflow(format)


for _name, _q in (("p01", 0.01), ("p25", 0.25), ("median", 0.5), ("p75", 0.75), ("p99", 0.99)):
    statistic(_name)(partial(_quantile, _q))
for _name in FORMATS:
    statistic(f"overflow_{_name}")(partial(_overflow, _name))
    statistic(f"underflow_{_name}")(partial(_underflow, _name))
