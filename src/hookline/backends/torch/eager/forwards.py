"""Forwards: models that run as they are written, their operators told by a dispatch mode.

The forward of every module in question is replaced, in the instance, by one that notes the call and, at the
outermost, switches the mode on (mode.py).
"""

from __future__ import annotations

from functools import cache
from types import MethodType
from typing import Any

from torch import nn

from hookline.backends.operators import FORWARD, OpListener
from hookline.backends.protocol import Label
from hookline.backends.replaced_forward import ReplacedForward, Through
from hookline.backends.torch import compat
from hookline.backends.torch.compat import calls_the_model, graph_task, sequence_number
from hookline.backends.torch.compiled.entry import around_compiled
from hookline.backends.torch.eager.attribution import LIMIT
from hookline.backends.torch.eager.calls import Here, Part
from hookline.backends.torch.eager.mode import OperatorMode
from hookline.backends.torch.engine import around_backward
from hookline.backends.undoing import Undoing


def hook_eager(
    undoing: Undoing,
    model: nn.Module,
    modules: dict[int, tuple[str, nn.Module]],
    compiled: list[nn.Module],
    listener: OpListener,
    label: Label,
) -> None:
    """Has `listener` told of every operator that these modules run.

    `compiled` are parts of the model that tell theirs in another way.
    """
    mode = OperatorMode(listener, list(modules.values()), compiled_parts=bool(compiled))
    _keep_uncompiled()
    undoing.noted(mode.close)
    around_backward(undoing, mode.backward)
    forwards: list[ReplacedForward] = []
    if id(model) not in modules:
        forwards.append(_ModelForward(mode, model, label._replace(site="")))
    forwards += [_PartForward(mode, name, module, label._replace(site=name)) for name, module in modules.values()]
    for forward in forwards:
        undoing.noted(forward.remove)
        forward.place()
    for entry in compiled:
        around_compiled(undoing, entry, mode.suspended)


class _PartForward(ReplacedForward):
    """The forward of a module whose operators are told."""

    __slots__ = ("_mode", "_part", "_start")
    followed = False

    def __init__(self, mode: OperatorMode, name: str, module: nn.Module, label: Label) -> None:
        super().__init__(module, "forward", Through(), label)
        self._mode, self._start = mode, mode.start(name, FORWARD)
        self._part = Part(mode.local, self._start, name, sequence_number, graph_task, mode.leave, LIMIT)

    @calls_the_model
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.before is None and self._is_method:  # `original`, without a frame
            forward = MethodType(self._class_has, self._held())
        else:
            forward = self.original
        part = self._part
        output = part(forward, args, kwargs)
        return self._anyhow(forward, args, kwargs) if output is part else output

    @calls_the_model
    def _anyhow(self, forward: Any, args: Any, kwargs: Any) -> Any:
        mode = self._mode
        here = mode.local.here
        if not here.scopes:
            return self._outermost(here, forward, args, kwargs)
        scope = mode.enter(here, self._start)
        try:
            return forward(*args, **kwargs)
        finally:
            mode.leave(here, scope)

    @calls_the_model
    def _outermost(self, here: Here, forward: Any, args: Any, kwargs: Any) -> Any:
        mode = self._mode
        if not mode.open or not mode.listener.is_mine():
            return forward(*args, **kwargs)
        if here.depth == 0 and not compat.in_recompute(bool(here.calls)):
            here.calls = {}
        with mode.running():
            scope = mode.enter(here, self._start)
            try:
                return forward(*args, **kwargs)
            finally:
                mode.leave(here, scope)


class _ModelForward(ReplacedForward):
    """The forward of a model only parts of which are listened to: it tells where calls are counted anew."""

    __slots__ = ("_mode",)
    followed = False

    def __init__(self, mode: OperatorMode, module: nn.Module, label: Label) -> None:
        super().__init__(module, "forward", Through(), label)
        self._mode = mode

    @calls_the_model
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        here = self._mode.local.here
        if here.depth == 0 and not compat.in_recompute(bool(here.calls)):
            here.calls = {}
        here.depth += 1
        try:
            return self.original(*args, **kwargs)
        finally:
            here.depth -= 1


@cache
def _keep_uncompiled() -> None:
    """A model that is compiled after it was hooked runs as written: a graph has no place for a mode."""
    for kind in (_PartForward, _ModelForward):
        compat.never_compiled(kind.__call__)
