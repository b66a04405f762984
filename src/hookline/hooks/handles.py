"""Handle: what one call attached, and the way to take it off again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from hookline.backends.undoing import Undoing


class Handle(Undoing):
    """Holds everything that one call attached; removing is idempotent.

    `remove` and `detach` are the same: PyTorch and MindSpore know the first name, MXNet the second. Both are
    `ExitStack.close`: no line of ours that could be cut short comes before the undoing.
    """

    remove = detach = Undoing.close

    def __reduce__(self) -> tuple[type[Handle], tuple[()]]:
        # A copy holds nothing: the hooks that it could remove are those of the original.
        return Handle, ()


def all_or_nothing(placements: Sequence[Callable[[], Callable[[], None]]]) -> Handle:
    """Runs each placement; a Handle over what they return, or nothing placed if one raises.

    >>> log = []
    >>> handle = all_or_nothing([lambda: lambda: log.append("off")])
    >>> handle.remove(); handle.remove(); log
    ['off', 'off']
    """
    handle = Handle()
    try:
        for place in placements:
            # Each undoing twice, see `Undoing`; in one line, between whose parts no interrupt is raised by lines.
            deque(map(handle.callback, [place()] * 2), maxlen=0)
        return handle
    except BaseException:
        handle.remove()
        raise
