"""Training: all that rules may know of a training, from a watch or from a run, in the same form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hookline.rows import OF_PARAMETERS
from hookline.wiring import Wiring

Array = NDArray[Any]
Stats = Mapping[str, Array]
"""One array for each statistic, over the steps."""
MOST_RECORDS = 2048
"""A series of more records is looked at every few records: what a rule says of it is off by so many at most."""


class Series(Protocol):
    """What a curve is about."""

    @property
    def site(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def mode(self) -> str: ...


class Seen(NamedTuple):
    """A series with its numbers."""

    site: str
    kind: str
    mode: str
    steps: Array
    stats: Stats


class Scalar(NamedTuple):
    """A number of the training over its steps: the loss, a learning rate."""

    steps: Array
    values: Array


class Training:
    """The series, scalars, modules and wiring of a training.

    `columns` gives the steps and arrays of a series by its number: they are read when a rule asks for them.
    `modules` are (name, type), in the order of the model. `wiring` is empty where nobody noted it: rows that a
    version without it wrote, or another framework. `meta` has the facts of the run, {} for a watch without one.
    `baseline` is a good training to compare with. `close` is called when the training is no longer needed.
    """

    def __init__(
        self,
        series: Sequence[Series],
        columns: Callable[[int], Any],
        modules: Sequence[tuple[str, str]],
        wiring: Wiring | None = None,
        meta: Mapping[str, Any] | None = None,
        close: Callable[[], None] | None = None,
    ) -> None:
        self.series, self.columns = series, columns
        self._close = close
        self._read: dict[int, Seen] = {}
        known = dict(modules)
        more = (one.site for one in series if one.kind not in (*OF_PARAMETERS, "scalar"))
        self.modules = {**known, **dict.fromkeys((site for site in more if site not in known), "")}
        self.wiring = wiring or Wiring()
        # What ran and is in no module, in a list say, is named by its place there.
        self.modules.update({name: one.type for name, one in self.wiring.modules.items() if one.outside})
        self.meta = meta or {}
        self.baseline: Training | None = None

    def curves(self, *kinds: str, mode: str | None = None) -> Iterator[Seen]:
        """The series of these kinds that have any step, those of one mode only; scalars are not among them.

        They come in the order in which they were first seen: outputs in that of their execution.
        """
        for number, one in enumerate(self.series):
            if one.kind == "scalar" or (kinds and one.kind not in kinds) or mode not in (None, one.mode):
                continue
            seen = self._seen(number)
            if len(seen.steps):
                yield seen

    def trained(self, *kinds: str) -> Iterator[Seen]:
        """The series of these kinds while the model was trained; of a site that was never trained, any mode's."""
        modes = self._modes
        for seen in self.curves(*kinds):
            if seen.mode == "train" or "train" not in modes[seen.site, seen.kind]:
                yield seen

    @cached_property
    def scalars(self) -> dict[str, Scalar]:
        """The numbers of the training by name: "loss", "lr", "grad_norm", those of a user."""
        found = {}
        for number, one in enumerate(self.series):
            if one.kind == "scalar":
                steps, stats = self.columns(number)
                found[one.site] = Scalar(np.asarray(steps), np.asarray(stats["mean"], np.float64))
        return found

    def owner(self, site: str) -> str:
        """The module that a site belongs to: itself, or for a parameter the nearest one above."""
        while site not in self.modules and site:
            site = site.rpartition(".")[0]
        return site

    def type_of(self, site: str) -> str:
        """The type of the module that a site belongs to: "Linear"."""
        module = self.owner(site)
        told = self.wiring.modules.get(module)
        return self.modules.get(module, "") or (told.type if told is not None else "")

    @cached_property
    def leaves(self) -> set[str]:
        """The modules that have no module below them."""
        above = {name.rpartition(".")[0] for name in self.modules if name}
        return {name for name in self.modules if name not in above and name} or set(self.modules)

    @cached_property
    def order(self) -> dict[str, int]:
        """The place of each module in the order of execution, by its outputs; then those without any."""
        ran = [one.site for one in self.series if one.kind == "output" and one.mode == "train"]
        ran += [one.site for one in self.series if one.kind == "output"]
        return {name: place for place, name in enumerate(dict.fromkeys([*ran, *self.modules]))}

    def place(self, site: str) -> int:
        """Where a site stands in the order of execution."""
        return self.order.get(self.owner(site), len(self.order))

    @cached_property
    def sites(self) -> list[str]:
        """Every site that a finding may be about: modules and parameters."""
        params = [*self.wiring.params, *(one.site for one in self.series if one.kind in OF_PARAMETERS)]
        return list(dict.fromkeys([*self.modules, *params]))

    def together(self, params: Iterable[str], among: Iterable[str]) -> dict[str, list[str]]:
        """Parameters under the outermost module all of whose parameters `among` are in `params`.

        >>> one = Training([], lambda number: None, [("", "Net"), ("a", "Block"), ("a.fc", "Linear")])
        >>> one.together(["a.fc.weight", "b"], among=["a.fc.weight", "b", "c"])
        {'a': ['a.fc.weight'], 'b': ['b']}
        """
        wanted = dict.fromkeys(params)
        spoilt = {above for name in among if name not in wanted for above in _above(name)}
        found: dict[str, list[str]] = {}
        for name in wanted:
            whole = [above for above in _above(name) if above not in spoilt and above in self.modules]
            found.setdefault(whole[-1] if whole else name, []).append(name)
        return found

    @cached_property
    def steps(self) -> Array:
        """Every step that has a row, in order."""
        every = [self._seen(number).steps for number in range(len(self.series))]
        return np.unique(np.concatenate(every)) if every else np.empty(0, np.int64)

    @property
    def last_step(self) -> int:
        """The last step that has a row; -1 where none has."""
        return int(self.steps[-1]) if len(self.steps) else -1

    def close(self) -> None:
        """Lets go of what the numbers are read from."""
        if self._close is not None:
            self._close()

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *how: object) -> None:
        self.close()

    @cached_property
    def _modes(self) -> dict[tuple[str, str], set[str]]:
        found: dict[tuple[str, str], set[str]] = {}
        for one in self.series:
            found.setdefault((one.site, one.kind), set()).add(one.mode)
        return found

    def _seen(self, number: int) -> Seen:
        """A series; it is kept, since several rules ask for it."""
        if number not in self._read:
            one = self.series[number]
            steps, stats = self.columns(number)
            steps = np.asarray(steps)
            stats = {name: np.asarray(values, np.float64) for name, values in stats.items()}
            if len(steps) > MOST_RECORDS:
                kept = _thinned(stats)
                steps, stats = steps[kept], {name: values[kept] for name, values in stats.items()}
            self._read[number] = Seen(one.site, one.kind, one.mode, steps, stats)
        return self._read[number]


def _above(name: str) -> list[str]:
    """The modules above a parameter, the nearest first: ["a.fc", "a", ""]."""
    found = []
    while name:
        name = name.rpartition(".")[0]
        found.append(name)
    return found


def _thinned(stats: Stats) -> Array:
    """Which records of a long series are looked at: every few, the first that is not finite, and the last ones."""
    records = len(stats["count"])
    kept = np.zeros(records, bool)
    kept[:: -(-records // MOST_RECORDS)] = True
    kept[-8:] = True
    kept[np.flatnonzero(stats["nan"] + stats["inf"])[:1]] = True
    return kept
