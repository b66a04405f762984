"""Spreading: at a few steps of a training, how far each module's outputs for the samples of a batch are apart.

Rows are of whole tensors: a model that gives every sample the same output looks like any other there. It is looked
at fewer steps the longer the training is, and at none that is not recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hookline.backends.protocol import Backend, FunctionTap, Label, Needs, Placement
from hookline.backends.undoing import Undoing
from hookline.backends.wired import WiringSource
from hookline.lines.kernel import active
from hookline.wiring import Wiring

OFTENER = 1.4
"""The next step that is looked at is the first after so many times as many recorded ones."""
MOST_MODULES = 400
"""Of a model with more modules every few are looked at, and the model itself."""
OUTPUTS = Needs(inputs=False, replaces=False)
INPUTS = Needs(outputs=False, replaces=False)


class Spreading:
    """Looks, and notes what it saw in a wiring."""

    def __init__(
        self, wiring: Wiring, source: WiringSource | None, backend: Backend, line: Callable[[], str]
    ) -> None:
        self._wiring, self._source, self._backend, self._line = wiring, source, backend, line
        self._taps: Undoing | None = None
        self._step = self._due = -1
        self._recorded, self._next = -1, 1  # of the first step the operators are looked at
        self._on_host = None if (kernel := active()) is None else kernel.spread
        self._samples = 0
        self._seen: dict[str, list[tuple[Any, Any]]] = {}

    def switch(self, step: int, wanted: bool, modules: Mapping[str, Any], safely: Callable[..., None]) -> None:
        """A step is recorded, or not: taps go on for the next that is due, and off after it."""
        if wanted and step != self._step:
            self._step = step
            self._recorded += 1
            if self._recorded >= self._next and self._source is not None and self._source.makes_graphs():
                # Never two in a row: this step ends when the next one is under way.
                self._due, self._next = step, max(self._next + 2, int(self._next * OFTENER))
        due = wanted and step == self._due
        if due and self._taps is None:
            self._begin(modules, safely)
        elif not due and self._taps is not None:
            self.close()

    def _begin(self, modules: Mapping[str, Any], safely: Callable[..., None]) -> None:
        if self._source is None or self._source.is_compiled() or "" not in modules:
            return  # taps would have it compiled anew
        self._taps = taps = Undoing()
        self._samples, self._seen = 0, {}
        label = Label("watch", "watching of samples", "", self._line())
        root = FunctionTap(partial(safely, self._call_begins), label, after=False, needs=INPUTS)
        chosen = {id(one): (name, one) for name, one in reversed(list(modules.items()))}.values()
        every = -(-len(chosen) // MOST_MODULES)
        placements = [Placement(modules[""], root)]
        for number, (name, module) in enumerate(chosen):
            if name and number % every:
                continue
            tap = FunctionTap(
                partial(safely, self._saw, name), label._replace(site=name), kwargs=False, needs=OUTPUTS
            )
            placements.append(Placement(module, tap))
        self._backend.attach(taps, placements)

    def _call_begins(self, module: Any, args: Any, kwargs: Any) -> None:
        if self._source is not None and self._backend.is_training(module):
            self._samples = self._source.samples_of((args, kwargs))

    def _saw(self, name: str, module: Any, args: Any, output: Any) -> None:
        if self._source is None or not self._samples or self._backend.in_recompute(True):
            return
        found = self._source.spread_of(output, self._samples, self._on_host)
        if found is not None:
            self._seen.setdefault(name, []).append(found)

    def finish(self, step: int) -> bool:
        """A recorded step is over; whether anything new is known."""
        if step != self._due:  # taps for the next one may be on already
            return False
        seen, self._seen = self._seen, {}
        self._samples = 0
        named = [(name, pair) for name, pairs in seen.items() for pair in pairs]
        numbers = self._backend.read_numbers([number for _, pair in named for number in pair])
        largest: dict[str, tuple[float, float]] = {}
        for (name, _), spread, size in zip(named, numbers[::2], numbers[1::2], strict=True):
            largest[name] = max(largest.get(name, (spread, size)), (spread, size))
        for name, (spread, size) in largest.items():
            if (module := self._wiring.modules.get(name)) is not None:
                module.spreads.append([float(step), _short(spread), _short(size)])
        return bool(largest)

    def close(self) -> None:
        """Nothing is looked at any more."""
        if self._taps is not None:
            self._taps.close()
            self._taps = None


def _short(number: float) -> float:
    """With four digits: it becomes JSON."""
    return float(f"{number:.4g}")
