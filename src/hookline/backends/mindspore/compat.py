"""Every private name of MindSpore that hookline uses; test_mindspore_private.py tests each.

Public ones would do for some: `Cell.register_forward_hook` can't be removed while it runs, ignores cells with a
bprop, and gives no order; `Tensor` tells nobody whether it is part of a graph.
"""

from __future__ import annotations

import functools
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import mindspore as ms
from mindspore import nn
from mindspore.common.recompute import _RecomputeCell, _RecomputeHandle
from mindspore.graph import api
from mindspore.ops.composite import base

from hookline.backends.patching import Patch
from hookline.backends.undoing import Undoing

# `mindspore.ops.function.grad` is the function of that name as well, which hides the folder.
_grad_func = sys.modules["mindspore.ops.function.grad.grad_func"]

DIFFERENTIATED = (
    (base, "_pynative_func_grad_forward"),
    (_grad_func, "_pynative_func_grad_forward"),
    (nn.Cell, "_complex_call"),
)
"""What runs a forward that is differentiated: functions of it and its arguments."""


def differentiation(forward: Any) -> tuple[bool, bool, bool]:
    """Whether a forward is under way that is differentiated, and what marks this one has, if it is a cell."""
    under_way = bool(api._pynative_executor.grad_flag())
    if not isinstance(forward, nn.Cell):
        return under_way, False, False
    return under_way, bool(forward.requires_grad), bool(forward.is_top_cell)


def set_differentiation(forward: Any, state: tuple[bool, bool, bool]) -> None:
    """Puts back what `differentiation` told before this forward; it has failed."""
    under_way, requires_grad, is_top_cell = state
    if isinstance(forward, nn.Cell):
        forward.requires_grad, forward.is_top_cell = requires_grad, is_top_cell
    if not under_way and api._pynative_executor.grad_flag():
        api._pynative_executor.clear_res()
        api._pynative_executor.set_grad_flag(False)


def hook_dicts(cell: nn.Cell, *, after: bool) -> tuple[OrderedDict[Any, Any], dict[Any, bool]]:
    """A cell's hooks of the forward, and those of them that take keyword arguments."""
    if after:
        return cell._forward_hook, cell._forward_hook_with_kwargs
    return cell._forward_pre_hook, cell._forward_pre_hook_with_kwargs


def set_hooks(cell: nn.Cell, hooks: dict[Any, Any], *, after: bool) -> None:
    """Gives a cell a new dict of hooks: the old one may be gone through at this moment."""
    object.__setattr__(cell, "_lazy_forward_hook" if after else "_lazy_forward_pre_hook", OrderedDict(hooks))


def state_hooks(cell: nn.Cell) -> Iterator[Any]:
    """A cell's hooks on its state dict."""
    for name in ("_state_dict_hooks", "_state_dict_pre_hooks"):
        yield from getattr(cell, name).values()
    for name in ("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"):
        yield from getattr(cell, name).values()


def parts(cell: nn.Cell) -> dict[str, nn.Cell]:
    """The cells directly below, by attribute, without those by which MindSpore repeats a forward."""
    found = cell._cells.items()
    return {name: part for name, part in found if part is not None and not isinstance(part, _RecomputeCell)}


def parameters(module: nn.Cell) -> dict[str, Any]:
    """A cell's own parameters by attribute; `parameters_and_names` has names that are global."""
    return {name: parameter for name, parameter in module._params.items() if parameter is not None}


def is_state(name: str, parameter: Any) -> bool:
    """Whether a parameter is no weight but a moving statistic, as those of BatchNorm: nothing else tells them."""
    return name in ("moving_mean", "moving_variance") and not parameter.requires_grad


def buffers(cell: nn.Cell) -> dict[str, Any]:
    """A cell's own buffers by attribute."""
    return {name: buffer for name, buffer in cell._buffers.items() if buffer is not None}


def in_graph(tensor: Any) -> bool:
    """Whether a gradient may come to a tensor in the backward that is being prepared."""
    return bool(tensor._requires_grad)


def compiles() -> bool:
    """Whether a call of a cell would be compiled now, as `Cell.__call__` decides it."""
    return bool(ms.get_context("mode") == ms.GRAPH_MODE and os.getenv("MS_JIT") != "0")


def forget_compiled(undoing: Undoing) -> None:
    """Has all compiled code be compiled again when it is next called.

    What was compiled has no hooks, and would go on without them.
    """
    taken = [(cache, set(cache)) for cache in (api.ms_compile_cache, *api.cells_compile_cache.values()) if cache]

    def restore() -> None:
        for cache, phases in taken:
            cache.update(phases)
        taken.clear()

    undoing.noted(restore)
    for cache, _ in taken:
        cache.clear()


def around_backward(undoing: Undoing, block: Callable[[], AbstractContextManager[None]]) -> None:
    """Has every run of the backward engine happen inside `block()`."""
    _backwards.use(undoing, block)


def _within_blocks(grad: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(grad)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:
            for block in _backwards.users:
                stack.enter_context(block())
            return grad(self, *args, **kwargs)

    return run


_backwards: Patch[Callable[[], AbstractContextManager[None]]] = Patch(
    [(type(api._pynative_executor), "grad")], _within_blocks
)


def after_backward(call: Callable[[], None]) -> None:
    """Has `call` run when the backward under way has ended."""
    api._pynative_executor.queue_backward_final_callback(call)


STRETCH = _RecomputeCell.construct.__code__
"""Runs a part of a forward that is repeated in the backward."""
REPEATED_STRETCH = _RecomputeCell.bprop.__code__
"""Repeats it."""
REPEATS = {REPEATED_STRETCH, _RecomputeHandle.recompute.__code__}
"""All that repeats a part of a forward."""

PARSED = "__parse_method__"
"""The attribute that MindSpore's parser asks an object for, when it compiles a call of it."""
