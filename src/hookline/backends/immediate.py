"""Immediate: for frameworks where a tap sees a value when it passes, and a hook runs as it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hookline.backends.protocol import Label


class Immediate:
    """What `protocol.Compiling` asks for where nothing is compiled behind hookline's back."""

    not_called = "the model was not called in this block, or only by .forward(...), which passes all hooks by"

    def hooked(self, hook: Callable[..., Any], label: Label) -> Callable[..., Any]:
        return hook

    def lasting(self, module: Any) -> Any:
        return module

    def settled(self) -> None:
        return None
