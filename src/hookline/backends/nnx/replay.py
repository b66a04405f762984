"""Replay: taps are told of a call that compiled code has made, as if it happened now.

A tap that wants gradients asks for them while it is told of the call; it gets an Ear, which is kept under the
call's place in the code and its fingerprint until the gradients come. They may even have come before.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from hookline.backends.nouns import Tensor, Tree
from hookline.backends.protocol import GradSink
from hookline.backends.tap import StatsSpec

REMEMBERED = 4096
"""Calls of one place that wait for gradients; a forward without backward never gets any."""

Key = tuple[int, int]
"""A place in the code and a fingerprint."""


class Ear:
    """Waits for the gradients of one call."""

    remark: str | None = None

    def __init__(self, on_input: GradSink | None, on_output: GradSink) -> None:
        self._sinks = {"input": on_input, "output": on_output}
        self.view: StatsSpec | None = None

    def enter(self, args: Tree, kwargs: Any) -> tuple[Any, Any]:
        return args, kwargs

    def leave(self, output: Tree, call: int, references: int) -> Any:
        return output

    def tell(self, which: str, numbers: Sequence[int], grad: Tensor) -> None:
        sink = self._sinks[which]
        if sink is not None:
            sink(numbers, grad)


class Gradient(NamedTuple):
    """Gradients of one call that have come: `grads(view)` gives (numbers, grad) pairs."""

    which: str
    grads: Callable[[StatsSpec], list[tuple[list[int], Any]]]


class ReplayedCall:
    """A call that is over, of which taps are told now: what they can't learn from the values that they get.

    Three methods of the backend answer for it and not for the present: `needs_gradient`, `is_training`, and
    `listener`, whose Ear waits for the gradients of this call.
    """

    def __init__(self, differentiated: bool, training: bool, remark: str | None = None) -> None:
        self.differentiated, self.training = differentiated, training
        self._remark = remark  # what listening to its gradients may have changed
        self.view: StatsSpec | None = None  # of the tap that is being told
        self.ears: list[Ear] = []

    def hears(self, ear: Ear) -> None:
        """Has `ear` told of the gradients of this call."""
        ear.view, ear.remark = self.view, self._remark
        self.ears.append(ear)


class _Thread(threading.local):
    call: ReplayedCall | None = None


_thread = _Thread()


def replayed_call() -> ReplayedCall | None:
    """The call that taps are told of in this thread; None where a call happens now."""
    return _thread.call


@contextmanager
def replaying(call: ReplayedCall) -> Iterator[ReplayedCall]:
    """A block in which taps are told of `call`."""
    before, _thread.call = _thread.call, call
    try:
        yield call
    finally:
        _thread.call = before


def hearing(ear: Ear) -> Ear:
    """Has `ear` told of the gradients of the call that is replayed, if one is."""
    if (call := replayed_call()) is not None:
        call.hears(ear)
    return ear


class _Told(NamedTuple):
    """A call that taps were told of, those who want its gradients, and which of these have come."""

    ears: list[Ear]
    heard: set[str]


class Waiting:
    """The ears of the calls of one module, and gradients that came before their call was told."""

    def __init__(self) -> None:
        self._calls: dict[Key, deque[_Told]] = {}
        self._early: dict[Key, deque[Gradient]] = {}

    def called(self, key: Key, ears: list[Ear]) -> None:
        """A call was told, and these want its gradients."""
        self._calls.setdefault(key, deque(maxlen=REMEMBERED)).append(_Told(ears, set()))
        while len(self._calls) > REMEMBERED:
            del self._calls[next(iter(self._calls))]
        for gradient in self._early.pop(key, ()):
            self.arrived(key, gradient)

    def arrived(self, key: Key, gradient: Gradient) -> None:
        """Gradients of a call have come."""
        calls = self._calls.get(key)
        if not calls:
            if len(self._early) < REMEMBERED:
                self._early.setdefault(key, deque(maxlen=REMEMBERED)).append(gradient)
            return
        # Calls with the very same arguments can be told apart by their order only; the last one is told again
        # where somebody runs a backward twice.
        told = next((call for call in calls if gradient.which not in call.heard), calls[-1])
        told.heard.add(gradient.which)
        for ear in told.ears:
            assert ear.view is not None
            for numbers, grad in gradient.grads(ear.view):
                ear.tell(gradient.which, numbers, grad)

    def clear(self) -> None:
        self._calls.clear()
        self._early.clear()


class Shares:
    """The gradients of a module's own parameters: the sum of what its calls contribute, of the last backward."""

    def __init__(self) -> None:
        self._sums: dict[str, Any] = {}
        self._over = False

    def called(self) -> None:
        """A forward came: what was heard belongs to an earlier backward."""
        self._over = True

    def add(self, name: str, share: Any) -> Any:
        """The sum so far, with this share."""
        if self._over:
            self._sums, self._over = {}, False
        self._sums[name] = share if name not in self._sums else self._sums[name] + share
        return self._sums[name]
