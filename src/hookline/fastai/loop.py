"""Loop: a training loop of nobody's, told to a callback as fastai's Learner would tell it."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable

from hookline.backends import resolve
from hookline.backends.nouns import Model
from hookline.backends.undoing import Undoing


class Loop:
    """Tells a callback of a fit and its batches; a batch is what happens up to an optimizer step.

    `model`, `training` and `train_iter` mean what they mean in a Learner. Of several optimizers, told
    apart by what they hold, the first one seen counts the batches.
    """

    training = True

    def __init__(self, model: Model, callback: Callable[[str], None]) -> None:
        self.model = model
        self.train_iter = 0
        self._backend = resolve(model)
        self._held = weakref.ref(callback)  # which has this loop: no cycle is left of it
        self._clock: set[int] | None = None
        self._undoing = Undoing()
        self._is_over = False

    def _callback(self, event: str) -> None:
        if (callback := self._held()) is not None:
            callback(event)

    def begin(self) -> None:
        """The fit begins, and its first batch."""
        self.train_iter, self._is_over = 0, False
        self._callback("before_fit")
        self._backend.hear_steps(self._undoing, self.model, lambda held: None, self._stepped)
        self._callback("before_batch")

    def end(self, *, failed: bool) -> None:
        """The fit is over; a second time does what the first was kept from."""
        if self._is_over:
            return
        self.stop()
        self._callback("after_fit")
        self._is_over = True
        if not self.train_iter and not failed:
            warnings.warn("no optimizer of this model has stepped, so that no batch was counted", stacklevel=3)

    def stop(self) -> None:
        """No step is heard any more."""
        self._undoing.close()

    def _stepped(self, held: set[int]) -> None:
        self._clock = self._clock or held
        if held == self._clock:
            self._callback("after_batch")
            self.train_iter += 1
            self._callback("before_batch")
