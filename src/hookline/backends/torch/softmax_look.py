"""Softmax look: a softmax, log-softmax or cross entropy of what is a softmax already.

By values: rows that are nowhere negative and sum to 1 are no logits. By flow, for the words: where the first one
ran, as long as nothing but views and casts came between. A softmax without logarithm may be taken of probabilities
on purpose, so there both have to say it; as with a sigmoid, whose values say nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional

from hookline.backends.torch.compat import version, without_dispatch
from hookline.wiring import Place

SOFTMAX = {"_softmax": "softmax", "softmax": "softmax", "_safe_softmax": "softmax"}
LOG_SOFTMAX = {"_log_softmax": "log_softmax", "log_softmax": "log_softmax"}
SIGMOID = {"sigmoid": "sigmoid", "sigmoid_": "sigmoid"}
LOGITS = "binary_cross_entropy_with_logits"
CASTS = ("_to_copy", "clone", "to", "contiguous")
MOST = 16
SAMPLE = 4
"""So many indices of each dimension but the classes' are looked at."""


class _Made(NamedTuple):
    """What a softmax or sigmoid gave."""

    by: str
    memory: StorageWeakRef
    version: int
    line: str


class Softmaxes:
    """What was normalized twice; `found` are the places."""

    def __init__(self, place: Callable[[str, str], Place]) -> None:
        self.found: list[Place] = []
        self._place = place
        self._made: dict[int, _Made] = {}

    def see(self, name: str, args: Any, taken: list[torch.Tensor], made: list[torch.Tensor]) -> None:
        """An operator has run."""
        kind = SOFTMAX.get(name) or LOG_SOFTMAX.get(name) or SIGMOID.get(name)
        if kind is None and name not in CASTS and name != LOGITS:
            return
        if not taken or not made:
            return
        before = self._known(taken[0])
        if name in CASTS:
            if before is not None:
                self._note(before.by, made[0], before.line)
            return
        if len(self.found) < MOST:
            self._judge(kind or LOGITS, before, args, taken[0])
        if kind is not None:
            self._note(kind, made[0], self._place("", "").line)

    def _judge(self, kind: str, before: _Made | None, args: Any, logits: torch.Tensor) -> None:
        what = ""
        if kind == LOGITS:
            what = "sigmoid twice" if before is not None and before.by == "sigmoid" else ""
        elif kind != "sigmoid" and len(args) > 1 and isinstance(args[1], int):
            if before is not None and before.by == "log_softmax" and kind == "log_softmax":
                what = "log_softmax twice" if _sums_to_one(logits, args[1], logarithms=True) else ""
            elif kind == "log_softmax" or (before is not None and before.by == "softmax"):
                what = "softmax twice" if _sums_to_one(logits, args[1]) else ""
        if what:
            where = f", the first at {before.line}" if before is not None and before.line else ""
            place = self._place(_function() or kind, what + where)
            if place not in self.found:
                self.found.append(place)

    def _known(self, tensor: torch.Tensor) -> _Made | None:
        made = self._made.get(tensor.untyped_storage()._cdata)
        return made if made is not None and made.version == version(tensor) else None

    def _note(self, by: str, tensor: torch.Tensor, line: str) -> None:
        memory = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
        self._made[memory.cdata] = _Made(by, memory, version(tensor), line)


def _sums_to_one(tensor: torch.Tensor, dim: int, *, logarithms: bool = False) -> bool:
    """Whether rows along `dim` are distributions, by a few of them."""
    if tensor.dim() == 0 or tensor.shape[dim] < 2 or not tensor.numel() or tensor.is_meta:
        return False
    with without_dispatch(), torch.no_grad():
        sample = tensor.detach()
        for one, size in enumerate(tensor.shape):
            if one != dim % tensor.dim() and size > SAMPLE:
                sample = sample.narrow(one, 0, SAMPLE)
        sample = sample.double()
        if logarithms:
            sample = sample.exp()
        near = 1e-2 if tensor.dtype in (torch.bfloat16, torch.float16) else 1e-4
        return bool((sample >= 0).all() & ((sample.sum(dim) - 1).abs() < near).all())


def _function() -> str:
    """The function of torch.nn.functional under way that is a cross entropy."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "cross_entropy" and frame.f_code.co_filename == functional.__file__:
            return "cross_entropy"
        frame = frame.f_back
    return ""
