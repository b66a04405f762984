"""Undoing: what is done to a model is taken back, also where an interrupt comes between any two lines.

Ctrl-C may come at the first line of an `__exit__` or of a `finally`, and between the last line of a `with` and its
end: nothing that our own lines take back is safe. So:

- undoing is noted before the deed, and each step of it may be done again;
- it is run by an ExitStack, which goes on with the next step when one is cut short, and has each step twice.
  What leaves a block is the ExitStack's own `__exit__`: there is no line of ours before it. A signal that comes at
  its very entry is waited out in C (`_again.c`);
- a lock is held around a function, not by a `with` inside of one (`changing.py`).

- so no function returns the undoing of what it did: whoever places something takes the Undoing in which that is
  to be noted, as its first argument. A returned one would be lost if a signal came before anybody had it.

A second interrupt within the same few lines is not provided for; nor one between the return of a Handle and the
line of the user's that keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator, ExitStack
from functools import wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

if TYPE_CHECKING or find_spec("hookline.backends._again") is not None:
    from hookline.backends._again import again, itself
else:  # there was no compiler when hookline was installed

    def again(method):
        return method

    def itself(owner):
        return owner


class Stack(ExitStack):
    """An ExitStack that is entered and left in spite of an interrupt at that very moment."""

    __enter__ = itself
    __exit__ = again(ExitStack.__exit__)
    close = again(ExitStack.close)


class Undoing(Stack):
    """An ExitStack of steps that may be done again; one that is cut short is done by its twin.

    >>> log = []
    >>> undoing = Undoing(); undoing.noted(lambda: log.append("off")); undoing.close(); undoing.close()
    >>> log
    ['off', 'off']
    """

    def noted(self, undo: Callable[..., Any], *args: Any) -> None:
        """Has `undo(*args)` done at the end. To be called before the deed."""
        self.callback(undo, *args)
        self.callback(undo, *args)


class Steps:
    """Steps that take back what a run does to a model; taken again after each of several runs.

    >>> log = []
    >>> steps = Steps(); steps.noted(log.append, "off")
    >>> for _ in range(2):
    ...     with Undoing() as undoing:
    ...         steps.undone_at(undoing)
    >>> log
    ['off', 'off']
    """

    def __init__(self) -> None:
        self._steps: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._is_due = False

    def noted(self, undo: Callable[..., Any], *args: Any) -> None:
        """Has `undo(*args)` be one of the steps: it leads back to what is now, and may be done again."""
        self._steps.append((undo, args))

    def undone_at(self, undoing: Undoing) -> None:
        """Has all steps taken at the undoing."""
        undoing.noted(self._take)
        self._is_due = True

    def _take(self) -> None:
        """The last step first. The twin of an undoing that came to its end has nothing to do."""
        if self._is_due:
            with ExitStack() as stack:  # which goes on with the others where one raises
                for undo, args in self._steps:
                    stack.callback(undo, *args)
            self._is_due = False


class Noting(Protocol):
    """What steps can be noted in: an Undoing, or Steps."""

    def noted(self, undo: Callable[..., Any], *args: Any) -> None:
        """Has `undo(*args)` done at the end, perhaps more than once."""


class _Around(ContextDecorator, Undoing):
    """An Undoing that is around a function: run when that ends, by lines of the standard library."""


def tidied(run: Callable[Concatenate[Undoing, P], T]) -> Callable[P, T]:
    """A function that does what `run(undoing, ...)` does; whatever was noted is undone when it ends."""

    @wraps(run)
    def around(*args: P.args, **kwargs: P.kwargs) -> T:
        undoing = _Around()
        return undoing(run)(undoing, *args, **kwargs)

    return around


class Filled(Stack):
    """A context that a function fills when it is entered; it is left by lines of the standard library.

    Where it is dropped without being left, between the last line of a `with` and its end, it is left then.
    """

    fill: Callable[[ExitStack], None]

    def __enter__(self) -> Filled:
        try:
            self.fill(self)
            return self
        except BaseException:
            self.close()
            raise

    __del__ = ExitStack.close


def filled(fill: Callable[[ExitStack], None]) -> Filled:
    """A context: entering it calls `fill(stack)`, leaving it closes the stack."""
    context = Filled()
    context.fill = fill
    return context


def stacked(enter: Callable[Concatenate[ExitStack, P], None]) -> Callable[P, Filled]:
    """A function whose result is a context: entering it calls `enter(stack, ...)`, leaving it closes the stack."""

    @wraps(enter)
    def context(*args: P.args, **kwargs: P.kwargs) -> Filled:
        return filled(lambda stack: enter(stack, *args, **kwargs))

    return context
