"""Store: turns live tensors into stored ones, as a recording was asked to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hookline.backends.protocol import Backend
from hookline.errors import RecordingTooLarge
from hookline.recording.budget import Budget
from hookline.reporting import report
from hookline.trees import map_leaves


class Store:
    """Turns live tensors into stored ones, as the recording was asked to."""

    def __init__(
        self,
        backend: Backend,
        *,
        device: Any,
        dtype: Any,
        reduce: Callable[[Any], Any] | None,
        budget: Budget | None,
    ) -> None:
        self.open = True
        self.backward_ran = False
        self.heard = 0
        """How many calls got a gradient of their output."""
        self.is_remarkable = False
        """Whether there may be more to say of a call than that it was recorded, with its gradients."""
        self.not_kept: dict[str, str] = {}  # by site: what went wrong there
        self.budget = budget
        self.recording: Callable[[], Any] | None = None  # weak: the recording holds its store
        self._reduce = reduce
        self._device, self._dtype = device, dtype
        self._backend = backend
        self._tensor = backend.tensor
        self._snapshot = backend.snapshot
        self.backward_number = backend.backward_number
        plain = device is None and dtype is None and reduce is None and budget is None
        self.copy: Callable[[Any], Any] | None = backend.keep if plain else None
        # In a structure there are tensors, not what gives them: classes may look at what they are made with.
        self._copy_part: Callable[[Any], Any] | None = backend.snapshot if plain else None

    def tensor(self, tensor: Any, site: str) -> Any:
        """The stored form of one live tensor."""
        if self.copy is not None:
            return self.copy(tensor)
        if self._reduce is None:
            value = self._snapshot(tensor, self._device, self._dtype)
        else:
            value = self._reduced(tensor, site)
        return value if self.budget is None else self._admitted(self.budget, value, site)

    def tree(self, tree: Any, site: str) -> Any:
        """The stored form of a structure, in its own type."""
        if type(tree) is self._tensor:
            return self.tensor(tree, site)
        copy = self._copy_part or partial(self.tensor, site=site)
        return map_leaves(copy, tree, self._tensor, or_plain=True)

    def copy_by(self, copy: Callable[[Any], Any]) -> None:
        """Has tensors be copied by another function."""
        self.copy = self._copy_part = copy

    def _admitted(self, budget: Budget, value: Any, site: str) -> Any:
        try:
            return map_leaves(
                lambda leaf: budget.admit(leaf, self._backend.nbytes(leaf), site), value, self._tensor
            )
        except RecordingTooLarge as error:
            error.recording = self.recording and self.recording()
            raise

    def _reduced(self, tensor: Any, site: str) -> Any:
        """What `reduce` makes of a tensor; None where it raises, which is told once and ends no training."""
        source = self._backend.detached(tensor)
        try:
            with self._backend.unseen():
                value = self._reduce(source)  # type: ignore[misc]
            return map_leaves(
                lambda leaf: self._backend.owned(leaf, source, self._device, self._dtype), value, self._tensor
            )
        except Exception as error:
            first = not self.not_kept
            self.not_kept[site] = (
                f"its reduce function raised {type(error).__name__}, and None is in the value's place"
            )
            if first:
                report(f"record, at {site!r}: reduce", self._reduce, error, "None is kept wherever it does")
            return None
