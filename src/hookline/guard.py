"""Guard: tidies up when a method of a trainer raises, for trainers that tell their callbacks of no exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ErrorGuard:
    """Stands before `owner.name` until it is removed, and calls `on_error` when the method raises.

    Exceptions of the types `passing` are the trainer's own signals and mean no error. The guard lies in
    the instance's `__dict__`; several on one method may be removed in any order.

    >>> class Trainer:
    ...     def train(self): raise RuntimeError("out of memory")
    >>> trainer = Trainer()
    >>> guard = ErrorGuard(trainer, "train", lambda: print("tidied up"))
    >>> trainer.train()
    Traceback (most recent call last):
    RuntimeError: out of memory
    >>> guard.remove(); vars(trainer)
    {}
    """

    def __init__(
        self,
        owner: Any,
        name: str,
        on_error: Callable[[], None],
        passing: tuple[type[BaseException], ...] = (),
    ) -> None:
        self.owner, self.name = owner, name
        self.on_error, self.passing = on_error, passing
        self.active = True
        self.own = vars(owner).get(name)  # None where the method is the class's
        self.inner: Callable[..., Any] = getattr(owner, name)
        vars(owner)[name] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.inner(*args, **kwargs)
        except self.passing:
            raise
        except BaseException:
            if self.active:
                self.on_error()
            raise

    def remove(self) -> None:
        """Takes the guard away; where another stands before it, as soon as that one goes."""
        self.active = False
        attributes = vars(self.owner)
        while isinstance(top := attributes.get(self.name), ErrorGuard) and not top.active:
            if top.own is None:
                del attributes[self.name]
            else:
                attributes[self.name] = top.own
