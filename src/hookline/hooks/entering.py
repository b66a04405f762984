"""Entering: what `record`, `edit` and `watch` give is a block, which is nothing until somebody enters it.

People write `hookline.watch(model)` as they know it from trackers. So a block can be entered by `start` and left
by `stop`, is left when the process ends, and says so if it was never entered.
"""

from __future__ import annotations

import warnings
import weakref
from typing import Any, Protocol, Self

from hookline.errors import InvalidArgument
from hookline.hooks.placing import callers_frame
from hookline.leaving import no_longer, until_exit


class _ContextManager(Protocol):
    def __enter__(self) -> Any: ...
    def __exit__(self, kind: None, error: None, trace: None, /) -> Any: ...


class Enterable:
    """A block of a verb; see `made_by`.

    >>> class Block(Enterable):
    ...     def __enter__(self): self.is_used(); self.entered(); return "in"
    ...     def __exit__(self, *how): self.left()
    >>> block = Block().made_by("watch")
    >>> block.start(), block.stop()
    ('in', None)
    """

    _verb = "block"
    _unused: weakref.finalize[..., Any] | None = None
    _inside = False

    def made_by(self, verb: str) -> Self:
        """This block, which tells of itself by this name and by the line where it was made."""
        frame = callers_frame()
        self._verb = verb
        # No __del__: that would run when any block ends, and swallow a Ctrl-C which comes then.
        self._unused = weakref.finalize(self, _say_unused, verb, frame.f_code.co_filename, frame.f_lineno)
        return self

    def is_used(self) -> None:
        """Somebody enters the block: there is nothing to say when it dies."""
        if self._unused is not None:
            self._unused.detach()

    def start(self: _ContextManager) -> Any:
        """Enters the block, and gives what `with` would; it lasts until `stop`, or until the process ends."""
        return self.__enter__()

    def stop(self: _ContextManager) -> None:
        """Leaves the block."""
        self.__exit__(None, None, None)

    def entered(self) -> None:
        """The block is entered now."""
        self._inside = True
        until_exit(self)

    def left(self) -> None:
        """The block is left now."""
        self._inside = False
        no_longer(self)

    def at_exit(self) -> None:
        """The process ends: an open block is left."""
        if self._inside:
            self.stop()  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise InvalidArgument(f"a block can't be copied or pickled; call {self._verb}(...) again.")


def _say_unused(verb: str, file: str, line: int) -> None:
    message = (
        f"this {verb}(...) was never entered, so nothing was done: write `with {verb}(...):`, or call its "
        "start(), which lasts until stop() or until the process ends."
    )
    # Not a ResourceWarning: Python shows none of these unless asked.
    warnings.warn_explicit(message, RuntimeWarning, file, line)
