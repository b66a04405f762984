"""Clock: which step it is, from calls of a model and steps of its optimizers. It knows neither.

A step begins with a forward and ends when, after an optimizer has stepped, the model is called again: several
optimizers may step in one. Where nobody trains, each call of the model is a step; and where an optimizer steps on
and on and the model is not called, each of its steps is one.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident

AGAIN = 2
"""So often the same parameters are stepped once more before that is a step of its own."""


class StepClock:
    """The number of the step under way, and what is known of where in it the training is.

    >>> clock = StepClock()
    >>> clock.is_new_forward(lambda: 1), clock.begin_forward(), clock.end_forward(lambda: 1, trains=lambda: True)
    (True, None, False)
    >>> clock.optimizer_steps(), clock.optimizer_stepped(), clock.is_due
    (False, None, True)
    >>> clock.set(clock.now + 1); clock.now, clock.is_due
    (1, False)
    """

    def __init__(self) -> None:
        self.now = 0
        self.is_due = False
        """An optimizer has stepped, and the model has not been called since."""
        self.is_by_hand = False
        """Steps are told, and no optimizer is heard."""
        self._trained = False  # an optimizer has stepped: calls alone make no steps any more
        self._held: set[int] | None = None  # by the optimizer that stepped last
        self._again = 0  # how often the same was stepped since the model was called
        self.depths: dict[int, int] = {}
        """By thread: how deep in calls of the model, which may call itself. Empty where none is under way."""

    def is_new_forward(self, under_way: Callable[[], int]) -> bool:
        """Whether the call of the model that is about to begin is a forward of its own, and none within another.

        `under_way` tells how many of its calls the framework says are under way in this thread, with this one.
        """
        here = get_ident()
        if self.depths.get(here) and under_way() == 1:
            self.depths.pop(here, None)  # an exception ended the one that was
        return not self.depths

    def begin_forward(self) -> None:
        """The model is called."""
        here = get_ident()
        self.depths[here] = self.depths.get(here, 0) + 1

    def end_forward(self, under_way: Callable[[], int], trains: Callable[[], bool]) -> bool:
        """A call of the model ends; whether the step ends with it. `trains` tells if its output has a gradient."""
        here = get_ident()
        depth = self.depths.pop(here, 1)
        if depth > 1 and under_way() > 1:
            self.depths[here] = depth - 1
            return False
        return not self._trained and not trains()

    def forget_forward(self) -> None:
        """No call is under way, whatever was told."""
        self.depths = {}

    def take_over(self) -> None:
        """From now on steps are told by hand."""
        self.is_by_hand = self._trained = True

    def optimizer_steps(self, held: set[int] | None = None) -> bool:
        """An optimizer is about to step: this is a training. Whether the step under way is over: the parameters
        that it holds are stepped for the third time at least, and the model was not called in between.

        Twice is no sign: two optimizers may hold the same.
        """
        self._trained = True
        is_again = self.is_due and held is not None and held == self._held
        self._again, self._held = (self._again + 1 if is_again else 0), held
        return self._again >= AGAIN

    def optimizer_stepped(self) -> None:
        """The step ends with the next forward; further optimizers may step before that."""
        self.is_due = True

    def set(self, step: int) -> None:
        """This step begins."""
        self.now, self.is_due = step, False
