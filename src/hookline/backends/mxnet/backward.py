"""Backward: it returns when the hooks in it have run, and raises what one of them raised.

MXNet starts a backward and returns before it has run; an exception in a callback is printed and lost, or
comes back as an MXNetError wherever an array is read next. While a graph with taps of hookline exists, the
functions that start a backward wait for its end.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mxnet
from mxnet import autograd

from hookline.alone import Alone
from hookline.backends.patching import Patch
from hookline.backends.protocol import Undo

STARTERS = ((mxnet.nd.NDArray, "backward"), (autograd, "backward"), (autograd, "grad"))
"""What starts a backward."""


class _Taps:
    """How many taps are in graphs, and what was raised in them."""

    def __init__(self) -> None:
        self.count = 0
        self.backwards = 0
        self.failures: list[BaseException] = []
        self.before_settling: list[Callable[[], None]] = []
        self.here = threading.local()


_taps = _Taps()
_alone = Alone()  # reentrant: memory that is freed in here may free a graph, and that calls back at once


@_alone
def expect_one_more() -> None:
    """A graph has one more tap, or somebody listens to operators: from the first on, a backward waits."""
    _taps.count += 1
    if not _starters.users:
        _starters.add(_taps)


@_alone
def expect_one_less() -> None:
    """A tap is gone with its graph; with the last one, MXNet's own functions are back."""
    _taps.count -= 1
    if not _taps.count:
        _starters.drop(_taps)


@contextmanager
def keeping_failures() -> Iterator[None]:
    """Code that MXNet calls, and whose exceptions it would lose: they are kept until `settle`."""
    before = getattr(_taps.here, "depth", 0)
    _taps.here.depth = before + 1
    try:
        yield
    except BaseException as error:
        _taps.failures.append(error)
    finally:
        _taps.here.depth = before


def backward_number() -> int:
    """Which backward is under way, of those that were waited for."""
    return _taps.backwards


def before_settling(finish: Callable[[], None]) -> Undo:
    """Has `finish` called when a backward has come to its end, until the returned function is called."""
    _taps.before_settling.append(finish)
    return lambda: _taps.before_settling.remove(finish)


def settle() -> None:
    """Waits until everything has been computed, and raises the first exception of a hook, if there was one."""
    if getattr(_taps.here, "depth", 0):  # inside of a backward, waiting for its end would never end
        return
    if _taps.count:
        mxnet.nd.waitall()
    for finish in list(_taps.before_settling):
        finish()
    raise_failure()


def raise_failure() -> None:
    """Raises the first exception that a hook has left, if there is one."""
    if _taps.failures:
        first, _taps.failures = _taps.failures[0], []
        raise first


def _waiting(start: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(start)
    def started(*args: Any, **kwargs: Any) -> Any:
        _taps.backwards += 1
        result = start(*args, **kwargs)
        settle()
        return result

    return started


# A lock of its own: MXNet's threads come by here, while one that attaches may wait for them.
_starters: Patch[_Taps] = Patch(STARTERS, _waiting, _alone)
