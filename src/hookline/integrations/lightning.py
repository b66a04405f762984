"""Lightning: a WatchCallback for the Trainer of `lightning` or `pytorch_lightning`, whichever is in use.

Lightning hands forward and backward to the optimizer as a closure and calls `training_step`, not the
module, so the callback tells the watch when a forward begins and when the gradients are complete.
Parameter gradients are read when the optimizer goes to work: after accumulation, after a GradScaler's
unscaling and after gradient clipping (`on_before_optimizer_step` would be before it).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from hookline.integrations.watcher import Watcher
from hookline.optional import need


def _callbacks() -> tuple[Any, ...]:
    """The Callback class of each of the twin packages that is in use; of the one installed if none is yet."""
    twins = {"lightning.pytorch": "lightning", "pytorch_lightning": "pytorch-lightning"}
    used = [module for module in twins if module in sys.modules]
    if not used:
        try:
            return (need("lightning.pytorch", "lightning").Callback,)
        except ImportError:
            used = ["pytorch_lightning"]
    # pip's name of the first is in the message where neither is there
    return tuple(need(module, "lightning").Callback for module in used)


class WatchCallback(Watcher, *_callbacks()):  # type: ignore[misc]
    """`Trainer(callbacks=[WatchCallback(every=10)])` watches each fit; `rows()` has what it saw.

    Takes the options of `hookline.watch`. Steps go on from the trainer's `global_step`.
    """

    _handles: tuple[Any, ...] = ()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins to watch: after the sanity check of the validation."""
        optimizers = trainer.optimizers
        watch = self.open(
            pl_module,
            first_step=trainer.global_step // max(len(optimizers), 1),  # it counts those of each optimizer
            scaler=getattr(trainer.precision_plugin, "scaler", None),
        )
        watch.steps_by_hand()
        if optimizers:
            steps = OptimizerSteps(watch.before_step, watch.after_step)
            self._handles = (
                optimizers[0].register_step_pre_hook(steps.begin),
                optimizers[0].register_step_post_hook(steps.end),
            )

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *rest: Any) -> None:
        """A micro-batch begins."""
        if self.watch is not None:
            self.watch.new_forward()

    on_validation_batch_start = on_train_batch_start

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Ends the watching."""
        self.detach()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Ends the watching."""
        self.detach()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Ends the watching, however the fit came to its end."""
        self.detach()

    def detach(self) -> None:
        """Takes everything off the model and the optimizer; a second time does nothing."""
        handles, self._handles = self._handles, ()
        for handle in handles:
            handle.remove()
        super().detach()


class OptimizerSteps:
    """Tells of the steps of an optimizer whose closure runs forward and backward: `before` comes after it."""

    def __init__(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._before, self._after = before, after
        self._begun = False

    def begin(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A step pre-hook: the arguments to go on with, None for the same."""
        self._begun = False
        closure = args[1] if len(args) > 1 else kwargs.get("closure")  # args[0] is the optimizer
        if closure is None:
            self._gradients_are_there()
            return None

        def followed() -> Any:
            result = closure()
            self._gradients_are_there()
            return result

        if len(args) > 1:
            return (args[0], followed, *args[2:]), kwargs
        return args, kwargs | {"closure": followed}

    def end(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """A step post-hook."""
        self._after()

    def _gradients_are_there(self) -> None:
        if not self._begun:  # LBFGS evaluates its closure several times in a step
            self._begun = True
            self._before()
