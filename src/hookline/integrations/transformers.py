"""transformers: a WatchCallback for the Trainer of Hugging Face.

Parameter gradients are read when the optimizer steps: after accumulation, after a GradScaler's unscaling
and after `max_grad_norm` has clipped them.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from hookline.integrations.watcher import Watcher
from hookline.optional import need

_transformers = need("transformers", "transformers")


class WatchCallback(Watcher, _transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """`Trainer(callbacks=[WatchCallback(every=10)])` watches each training; `rows()` has what it saw.

    Takes the options of `hookline.watch`. Steps go on from the trainer's `global_step`.
    """

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Begins to watch with the first epoch: after an evaluation at the start."""
        if not self.is_open:
            optimizer = given.get("optimizer")
            self.open(given["model"], first_step=state.global_step, scaler=getattr(optimizer, "scaler", None))
            trainer = _running_trainer()
            # A Trainer tells its callbacks of no exception. `_run_epoch` came with transformers 5.
            method = "_run_epoch" if hasattr(trainer, "_run_epoch") else "training_step"
            if trainer is not None:
                self.guard(trainer, method)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Ends the watching."""
        self.detach()


def _running_trainer() -> Any:
    """The Trainer whose training this is called from: its callbacks are not told; None where none is found."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if isinstance(found := frame.f_locals.get("self"), _transformers.Trainer):
            return found
        frame = frame.f_back
    return None
