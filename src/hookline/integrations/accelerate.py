"""Accelerate: it has no callbacks, so WatchCallback is a `with` block around the loop.

A step is one that the inner optimizer really does: with `accelerator.accumulate` one in so many.
Parameter gradients are read there: after accumulation, unscaling and `accelerator.clip_grad_norm_`.
"""

from __future__ import annotations

from typing import Any, Self

from hookline.errors import InvalidArgument
from hookline.hooks.entering import Enterable
from hookline.integrations.watcher import Watcher
from hookline.optional import need


class WatchCallback(Enterable, Watcher):
    """`with WatchCallback(every=10).attach(accelerator, model) as w:` watches what the block trains.

    Takes the options of `hookline.watch`; `rows()` has what was seen.
    """

    def __init__(self, where: Any = "**", *, every: Any = 1, **options: Any) -> None:
        need("accelerate", "accelerate")
        super().__init__(where, every=every, **options)
        self._attached: tuple[Any, Any] | None = None

    def attach(self, accelerator: Any, model: Any) -> Self:
        """This callback, to be used in a `with` statement; `model` as it was prepared, or as it was before."""
        self._attached = accelerator, model
        return self.made_by("WatchCallback().attach")

    def __enter__(self) -> Self:
        if self._attached is None:
            raise InvalidArgument("nothing is attached: `with WatchCallback().attach(accelerator, model):`.")
        accelerator, model = self._attached
        self.is_used()
        self.open(accelerator.unwrap_model(model), scaler=getattr(accelerator, "scaler", None))
        return self
