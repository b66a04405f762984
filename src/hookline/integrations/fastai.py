"""fastai: a WatchCallback for its Learner.

Steps are those of the Learner's optimizer, told by the events around it, since fastai's own optimizers
are none of torch's. Parameter gradients are read right before that step: after GradientAccumulation,
after MixedPrecision has unscaled them and after GradientClip.
"""

from __future__ import annotations

from typing import Any

from hookline.fastai.learner import signals
from hookline.integrations.watcher import Watcher
from hookline.optional import need


class WatchCallback(Watcher):
    """`Learner(..., cbs=WatchCallback(every=10))` watches each fit; `learn.watch.rows()` has what it saw.

    Takes the options of `hookline.watch`.
    """

    order = 90
    """After whatever changes gradients before a step: MixedPrecision is 10, GradientClip 11."""
    name = "watch"
    learn: Any = None
    run = True

    def __init__(self, where: Any = "**", *, every: Any = 1, **options: Any) -> None:
        need("fastai.callback.core", "fastai")
        super().__init__(where, every=every, **options)
        self._by_hand = self._stepping = False

    def __call__(self, event: str) -> None:
        """What a Learner calls: runs the method of that event, if there is one."""
        if self.run and (method := getattr(type(self), event, None)) is not None:
            method(self)

    def before_train(self) -> None:
        """Begins to watch with the first training part; a mere validation is none."""
        if not self.is_open:
            learn = self.learn
            watch = self.open(learn.model, scaler=vars(learn).get("scaler"))
            self.guard(learn, "_with_events", signals())
            # A torch optimizer in fastai's wrapper is heard by torch's own hooks.
            self._by_hand = not isinstance(learn.opt, need("fastai.optimizer", "fastai").OptimWrapper)
            if self._by_hand:
                watch.steps_by_hand()

    def before_step(self) -> None:
        """Takes parameters and gradients, unless somebody before has cancelled the step."""
        if self._by_hand and self.watch is not None:
            self.watch.before_step()
            self._stepping = True

    def after_step(self) -> None:
        """Ends the step; fastai calls it after a cancelled one too."""
        if self._stepping and self.watch is not None:
            self._stepping = False
            self.watch.after_step()

    def after_fit(self) -> None:
        """Ends the watching."""
        self.detach()

    def __repr__(self) -> str:
        return type(self).__name__
