"""Handle: what one call attached, and the way to take it off again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec

from hookline.backends.undoing import Undoing

P = ParamSpec("P")


class Handle(Undoing):
    """Holds everything that one call attached; removing is idempotent.

    `remove` and `detach` are the same: PyTorch and MindSpore know the first name, MXNet the second. Both are
    `ExitStack.close`: no line of ours that could be cut short comes before the undoing.
    """

    remove = detach = Undoing.close

    def __reduce__(self) -> tuple[type[Handle], tuple[()]]:
        # A copy holds nothing: the hooks that it could remove are those of the original.
        return Handle, ()


def attached(place: Callable[Concatenate[Undoing, P], None], *args: P.args, **kwargs: P.kwargs) -> Handle:
    """A Handle over what `place(handle, ...)` places; nothing is placed if it raises.

    >>> log = []
    >>> handle = attached(lambda undoing: undoing.noted(log.append, "off"))
    >>> handle.remove(); handle.remove(); log
    ['off', 'off']
    """
    handle = Handle()
    try:
        place(handle, *args, **kwargs)
        return handle
    except BaseException:
        handle.remove()
        raise
