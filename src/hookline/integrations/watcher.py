"""Watcher: what the callbacks of all trainers share: a `watch` that opens and closes with the training.

Upstream: watching. Downstream: a file for each trainer, which says when.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from hookline.guard import ErrorGuard
from hookline.rows import Row
from hookline.schedule import Schedule
from hookline.sinks.protocol import sinks_of
from hookline.watching.block import Watch
from hookline.watching.watch import watch


class Watcher:
    """Opens `watch(model, where, every=..., **options)` when training begins and closes it when that ends.

    `watch` is the Watch of the latest training, None before the first; `rows()` are its rows.
    Used as a context manager, it is closed at the end of the block, whatever happened there.
    """

    watch: Watch | None = None

    def __init__(self, where: Any = "**", *, every: int | Schedule = 1, **options: Any) -> None:
        super().__init__()
        if "to" in options:
            # Sinks of this callback's own: a second training of it goes on in the run of the first.
            options["to"] = sinks_of(options["to"], resume=options.pop("resume", False))
        self.where, self.every, self.options = where, every, options
        self.watch = None
        self._guards: list[ErrorGuard] = []

    def rows(self, site: str | None = None, kind: str | None = None, step: int | None = None) -> list[Row]:
        """The rows of the latest training, those of a site, kind or step only; none before the first."""
        return [] if self.watch is None else self.watch.rows(site, kind, step)

    def open(self, model: Any, *, first_step: int = 0, **found: Any) -> Watch:
        """The open Watch of a training that begins; what the trainer `found` yields to the user's options."""
        self.detach()
        options = {name: value for name, value in found.items() if value is not None} | self.options
        self.watch = watch(model, self.where, every=self.every, **options).__enter__()
        if first_step:
            self.watch.step(first_step)
        return self.watch

    def guard(self, owner: Any, method: str, passing: tuple[type[BaseException], ...] = ()) -> None:
        """Has an exception in that method of the trainer end the watching."""
        self._guards.append(ErrorGuard(owner, method, self.detach, passing))

    def detach(self) -> None:
        """Takes everything off the model; a second time does nothing."""
        guards, self._guards = self._guards, []
        for guard in guards:
            guard.remove()
        if self.watch is not None and self.watch.is_open:
            self.watch.__exit__(None, None, None)

    @property
    def is_open(self) -> bool:
        """Whether a training is being watched."""
        return self.watch is not None and self.watch.is_open

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()
