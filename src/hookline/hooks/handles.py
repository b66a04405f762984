"""Handle: what one call attached, and the way to take it off again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType


class Handle:
    """Holds everything that one call attached; removing is idempotent.

    `remove` and `detach` are the same: PyTorch and MindSpore know the first name, MXNet the second.
    """

    def __init__(self, removers: ExitStack | None = None) -> None:
        self._removers = removers or ExitStack()

    def remove(self) -> None:
        """Takes every hook of this handle off the model; a second time does nothing."""
        self._removers.close()

    detach = remove

    def __reduce__(self) -> tuple[type[Handle], tuple[()]]:
        # A copy holds nothing: the hooks that it could remove are those of the original.
        return Handle, ()

    def __enter__(self) -> Handle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def all_or_nothing(placements: Sequence[Callable[[], Callable[[], None]]]) -> Handle:
    """Runs each placement; a Handle over what they return, or nothing placed if one raises.

    >>> log = []
    >>> handle = all_or_nothing([lambda: lambda: log.append("off")])
    >>> handle.remove(); handle.remove(); log
    ['off']
    """
    with ExitStack() as pending:
        for place in placements:
            pending.callback(place())
        return Handle(pending.pop_all())
