"""Origin: once NaN or Inf is in a step, where it was born.

The statistics tell in which module it was seen first. Which operator made it, and in which line, is found by
making the call of the model again while the parameters are still those of the step.
"""

from __future__ import annotations

from typing import Any

from hookline.backends.nouns import Model
from hookline.backends.protocol import Backend
from hookline.wiring import Place, Wiring

MOST = 3
"""So many times it is searched: NaN that came in with the data is there at every step."""


class OriginSearch:
    """The last call of the model in the step under way, and the search for what went wrong in it."""

    def __init__(self, backend: Backend, model: Model, wiring: Wiring) -> None:
        self._backend, self._model, self._wiring = backend, model, wiring
        self._calls: list[Any] = []
        self._left = MOST

    def begin(self, args: Any, kwargs: Any) -> None:
        """The model is about to be called with these."""
        if self._left and (call := self._backend.repeatable(args, kwargs)) is not None:
            self._calls.append(call)

    def forget(self) -> None:
        """The step is over: its inputs are let go."""
        self._calls = []

    def search(self) -> Place | None:
        """Notes where the first NaN of the step was born; None where it can't be found."""
        calls, self._calls = self._calls, []
        if not self._left or not calls:
            return None
        self._left -= 1
        for call in calls:
            place = self._backend.find_origin(self._model, call)
            if place is not None:
                self._wiring.nonfinite.append(place)
                self._left = 0
                return place
        return None
