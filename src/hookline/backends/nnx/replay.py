"""Replay: taps are told of a call that compiled code has made, as if it happened now.

A tap that wants gradients asks for them while it is told of the call; it gets an Ear, which is kept under the
call's place in the code and its fingerprint until the gradients come. They may even have come before.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hookline.backends.protocol import GradSink
from hookline.backends.tap import Figures

REMEMBERED = 4096
"""Calls of one place that wait for gradients; a forward without backward never gets any."""

Key = tuple[int, int]
"""A place in the code and a fingerprint."""


class Ear:
    """Waits for the gradients of one call."""

    remark: str | None = None
    on_doubt: Callable[[str], None] | None = None

    def __init__(self, on_input: GradSink | None, on_output: GradSink) -> None:
        self._sinks = {"input": on_input, "output": on_output}
        self.view: Figures | None = None

    def enter(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        return args, kwargs

    def leave(self, output: Any, call: int, references: int) -> Any:
        return output

    def tell(self, which: str, numbers: Sequence[int], grad: Any) -> None:
        sink = self._sinks[which]
        if sink is not None:
            sink(numbers, grad)


class Gradient(NamedTuple):
    """Gradients of one call that have come: `grads(view)` gives (numbers, grad) pairs."""

    which: str
    grads: Callable[[Figures], list[tuple[list[int], Any]]]


class _Now(threading.local):
    """The call that taps are being told of on this thread."""

    telling = False
    differentiated = False
    training: bool | None = None
    ears: list[Ear] | None = None
    view: Figures | None = None
    remark: str | None = None
    weights: Any = None  # see optimizers


now = _Now()


def hearing(ear: Ear) -> Ear:
    """Has `ear` told of the gradients of the call under way, if taps are told of one."""
    if now.ears is not None:
        ear.view, ear.remark = now.view, now.remark
        now.ears.append(ear)
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
