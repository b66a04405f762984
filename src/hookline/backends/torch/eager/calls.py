"""Calls: which calls of modules are under way, thread by thread. Most are noted in C (`_calls.c`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hookline.backends.torch.eager.attribution import Trail

if TYPE_CHECKING or find_spec("hookline.backends.torch.eager._calls") is not None:
    from hookline.backends.torch.eager._calls import Here as _Here
    from hookline.backends.torch.eager._calls import Part as Part
    from hookline.backends.torch.eager._calls import Scope as Scope
else:  # there was no compiler when hookline was installed
    from hookline.backends.operators import Scope as Scope

    class _Here:
        __slots__ = ("calls", "marked", "numbers", "scopes")

    class Part:
        def __init__(self, *told: Any) -> None:
            pass

        def __call__(self, *told: Any) -> Any:
            return self


class Here(_Here):
    """What is under way in one thread."""

    __slots__ = ("depth", "known", "quiet", "suspended", "trail")

    def __init__(self) -> None:
        self.scopes = []
        self.calls = {}  # by the modules' starts; of the forward under way, or the last one
        self.trail = Trail()
        self.numbers, self.marked = self.trail.numbers, self.trail.scopes
        self.depth = 0
        self.suspended = False
        self.quiet: Callable[[], Any] | None = None  # keeps what listeners do from other modes
        self.known = 0  # in a backward: nodes below this number were made by operators seen so far


class Local(threading.local):
    """Leads to the Here of the thread that asks. Asking takes long: it is done once for each operator."""

    def __init__(self) -> None:
        self.here = Here()
