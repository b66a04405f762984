"""Origin: the operator in which NaN or Inf was born, found by running a call of a model once more.

A copy of the model runs, with the inputs and the random numbers of the call, so that nothing of the training is
touched. Infinite values that somebody put there on purpose (masks) are none of its business.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from hookline.backends.operators import BACKWARD, FORWARD, Operator, OpSite
from hookline.backends.tap import Label
from hookline.backends.torch.compat import uncompiled, version
from hookline.backends.torch.ops import hook_operators
from hookline.backends.torch.unseen import unheard
from hookline.backends.undoing import Undoing
from hookline.trees import leaves
from hookline.wiring import Place

PUT_THERE = frozenset(
    {
        *("full", "full_like", "new_full", "fill", "fill_", "masked_fill", "masked_fill_", "scalar_tensor"),
        *("lift_fresh", "where"),
        *("constant_pad_nd", "index_put", "index_put_", "index_fill", "index_fill_", "masked_scatter", "copy_"),
    }
)
"""Operators whose output is infinite because their arguments say so."""
UNWRITTEN = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
"""Operators whose memory nobody has written yet: it may be anything."""
VIEWS = frozenset(
    {"view", "_unsafe_view", "t", "transpose", "permute", "expand", "detach", "slice", "select", "split"}
)
"""Operators whose output is the same memory."""


class RepeatableCall(NamedTuple):
    """What is needed to make a call of a model once more: its inputs, how often each tensor had been written to,
    and the state of torch's random numbers before it."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    versions: list[int]
    random: torch.Tensor
    grad: bool
    autocast: tuple[bool, torch.dtype]

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RepeatableCall:
        """That of a call that is about to be made with these inputs."""
        autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        versions = _versions(args, kwargs)
        return cls(args, kwargs, versions, torch.get_rng_state(), torch.is_grad_enabled(), autocast)

    @property
    def is_intact(self) -> bool:
        """Whether nobody has written to the inputs since."""
        return self.versions == _versions(self.args, self.kwargs)


def _versions(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
    found = leaves((args, kwargs), torch.Tensor)
    return [-1 if tensor.is_inference() else version(tensor) for tensor in found]


def find_origin(model: nn.Module, call: RepeatableCall) -> Place | None:
    """The operator in which the first NaN or Inf of this call is born, forward or else backward.

    None where none is born (it came in with the inputs or parameters, or the loss made it), or where the call
    can't be made again.
    """
    if not call.is_intact or _came_in(call):
        return None
    listener = _Listener()
    random = torch.get_rng_state()
    undoing = Undoing()
    try:
        double = copy.deepcopy(uncompiled(model))
        hook_operators(
            undoing, double, {"": double}, listener, Label("watch", "search for the origin of NaN", "", "")
        )
        torch.set_rng_state(call.random)
        enabled, dtype = call.autocast
        undoing.callback(setattr, sys, "stdout", sys.stdout)
        sys.stdout = _Muted(sys.stdout)
        with torch.autocast("cpu", dtype=dtype, enabled=enabled), torch.set_grad_enabled(call.grad):
            output = double(*copy.deepcopy(_detached(call.args)), **copy.deepcopy(_detached(call.kwargs)))
        listener.end_forward(output)
        if listener.found is None and call.grad:
            with unheard():
                _go_back(output)
    except Exception:  # a model that can't be copied, or that runs once only: the statistics have to do
        return listener.found
    finally:
        undoing.close()
        torch.set_rng_state(random)
    return listener.found


def _came_in(call: RepeatableCall) -> bool:
    """Whether NaN or Inf is in the inputs; -Inf alone is a mask."""
    floats = [one for one in leaves((call.args, call.kwargs), torch.Tensor) if _state(one)]
    return any(bool(torch.isnan(one).any() or (one == float("inf")).any()) for one in floats)


def _detached(tree: Any) -> Any:
    """Inputs that can be copied: those of a graph can't."""
    if isinstance(tree, torch.Tensor):
        return tree.detach().requires_grad_(tree.requires_grad) if tree.grad_fn is not None else tree
    if type(tree) in (tuple, list):
        return type(tree)(_detached(part) for part in tree)
    if type(tree) is dict:
        return {name: _detached(part) for name, part in tree.items()}
    return tree


def _go_back(output: Any) -> None:
    """A backward with made-up gradients: a derivative that is infinite is so for any of them."""
    ends = [tensor for tensor in leaves(output, torch.Tensor) if tensor.requires_grad]
    if ends:
        numbers = torch.Generator(ends[0].device).manual_seed(0)
        grads = [
            torch.rand(end.shape, generator=numbers, dtype=torch.float32, device=end.device).to(end.dtype) + 0.5
            for end in ends
        ]
        torch.autograd.backward(ends, grads)


class _Muted:
    """A stream that drops what this thread writes: what a model prints was printed already."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._thread = stream, threading.get_ident()

    def write(self, text: str) -> Any:
        return len(text) if threading.get_ident() == self._thread else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Listener:
    """Notes the first operator that makes NaN or Inf of finite values."""

    inputs = True
    sources = True

    def __init__(self) -> None:
        self.found: Place | None = None
        self._infinite: dict[int, Place] = {}
        self._before: list[tuple[OpSite, list[str], str, Place | None]] = []

    @property
    def key(self) -> Hashable:
        return "origin"

    def wants(self, operator: Operator, phase: str) -> bool:
        return operator.bare not in VIEWS and operator.bare not in UNWRITTEN

    def is_mine(self) -> bool:
        return self.found is None

    def before(self, step: OpSite, call: int, tensors: Sequence[Any], source: str | None) -> None:
        if self.found is not None:
            return
        worst, from_where = "", None
        for tensor in tensors:
            state = _state(tensor)
            if state and (not worst or state == "NaN"):
                worst, from_where = state, self._infinite.get(_memory(tensor))
        self._before.append((step, [_shape(one) for one in tensors], worst, from_where))

    def after(self, step: OpSite, call: int, output: Any, source: str | None) -> None:
        if self.found is not None or not self._before:
            return
        begun, shapes, worst, from_where = self._before.pop()
        if begun is not step:
            self._before.clear()
            return
        outputs = list(leaves(output, torch.Tensor))
        state = next((found for one in outputs if (found := _state(one))), "")
        if not state or worst == "NaN":
            return
        place = Place(step.operator.name, step.module, source or "", _words(step.phase, shapes, worst, state))
        if worst or step.operator.bare in PUT_THERE:
            if state == "NaN":
                self.found = place if from_where is None else _with_effect(from_where, place)
            elif from_where is not None:
                self._note(outputs, from_where)
        elif state == "NaN" or step.phase == BACKWARD:
            self.found = place
        else:
            self._note(outputs, place)

    def _note(self, outputs: list[torch.Tensor], place: Place) -> None:
        """From here on these have infinite values that were made in `place`."""
        for one in outputs:
            self._infinite[_memory(one)] = place

    def end_forward(self, output: Any) -> None:
        """What is infinite at the end was made somewhere, also where no NaN came of it."""
        if self.found is None and self._infinite and any(_state(one) for one in leaves(output, torch.Tensor)):
            self.found = next(iter(self._infinite.values()))


def _words(phase: str, shapes: list[str], worst: str, state: str) -> str:
    where = "" if phase == FORWARD else "in the backward, "
    came = (
        f"values of {', '.join(shapes)} with {worst} in them" if worst else f"finite values of {', '.join(shapes)}"
    )
    return f"{where}{came} give {state}"


def _with_effect(cause: Place, effect: Place) -> Place:
    line = f" at {effect.line}" if effect.line else ""
    return Place(cause.op, cause.module, cause.line, f"{cause.what}; {effect.op}{line} makes NaN of it")


def _state(tensor: torch.Tensor) -> str:
    """ "NaN" or "Inf" where a tensor of floats has such, else ""."""
    if not tensor.is_floating_point() or tensor.is_meta or tensor.numel() == 0:
        return ""
    with torch.no_grad():
        if bool(torch.isfinite(tensor).all()):
            return ""
        return "NaN" if bool(torch.isnan(tensor).any()) else "Inf"


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _shape(tensor: torch.Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a number"
