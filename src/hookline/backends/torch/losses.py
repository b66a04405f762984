"""Losses: what backwards are called on, their values and the user's lines; heard where autograd's engine runs."""

from __future__ import annotations

import sys
import sysconfig
import weakref
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler

from hookline.backends.hearing import HeardLoss
from hookline.backends.patching import Patch
from hookline.backends.torch import compat
from hookline.backends.torch.eager.attribution import is_library
from hookline.backends.torch.engine import EngineRun, hear_backwards
from hookline.backends.torch.parameters import all_parameters
from hookline.backends.torch.unseen import is_unheard, unseen
from hookline.backends.undoing import Undoing

INSTALLED = ("site-packages", "dist-packages")
PYTHON = sysconfig.get_path("stdlib")
MOST_NODES = 20_000
"""So many nodes of a graph are looked through for a parameter of the model."""
HIDING = ("Checkpoint", "PostBackward")
"""Parts of the names of nodes that hide parameters: those of a checkpoint and of FSDP."""


def hear_losses(
    undoing: Undoing, model: nn.Module, told: Callable[[HeardLoss], None], wanted: Callable[[], bool]
) -> None:
    """Calls `told` when a backward begins that leads to a parameter of `model`, while `wanted()`."""

    def hear(run: EngineRun) -> None:
        if is_of_user() and leads_to(run, model):
            told(heard(run))

    _scaling.use(undoing, object())
    hear_backwards(undoing, hear, wanted)


def is_of_user() -> bool:
    """Whether a backward that begins is a user's: none that a checkpoint runs within another, and none of ours."""
    return compat.graph_task() == -1 and not is_unheard()


def leads_to(run: EngineRun, model: nn.Module) -> bool:
    """Whether a backward may bring gradients to parameters of the model."""
    wanted = set(map(id, all_parameters(model)))
    if run.inputs:
        return any(id(one) in wanted for one in run.inputs)
    nodes = []
    for root in run.roots:
        if id(root) in wanted:
            return True
        nodes.append(root.grad_fn if isinstance(root, Tensor) else root.node)
    return _reach([node for node in nodes if node is not None], wanted)


def _reach(nodes: list[Any], wanted: set[int]) -> bool:
    """Whether a parameter lies behind these nodes. Depth first: most often it is one of the last layer's."""
    seen = set(nodes)
    hidden = False
    while nodes:
        node = nodes.pop()
        edges = node.next_functions
        if not edges:  # it accumulates a leaf's gradient
            if id(getattr(node, "variable", None)) in wanted:
                return True
            continue
        hidden = hidden or any(part in node.name() for part in HIDING)
        new = [child for child, _ in edges if child is not None and child not in seen]
        seen.update(new)
        nodes += new
        if len(seen) > MOST_NODES:
            return True  # it can't be told in short time; most models are trained alone
    return hidden


def heard(run: EngineRun) -> HeardLoss:
    """What there is to tell of a backward."""
    tensors = tuple(root for root in run.roots if isinstance(root, Tensor))
    shape = tuple(tensors[0].shape) if tensors else ()
    return HeardLoss(tensors, _value(tensors), shape, users_line(), run.accumulates)


def _value(tensors: tuple[Tensor, ...]) -> Any:
    """The sum of the tensors' means, without the factor of a GradScaler; None where there are no numbers."""
    values = [as_number(_unscaled(tensor)) for tensor in tensors if why_no_number(tensor) is None]
    if not values or len(values) < len(tensors):
        return None
    return values[0] if len(values) == 1 else sum(values)


def why_no_number(tensor: Tensor) -> str | None:
    """Why a tensor has no mean that could be told; None where it has one."""
    if not has_values(tensor):
        return "it has no values that could be read now"
    return "it is complex" if tensor.is_complex() else None


def has_values(tensor: Tensor) -> bool:
    """Whether there are values that may be looked at now."""
    if compat.is_wrapped(tensor) or compat.is_fake(tensor) or tensor.is_meta:
        return False
    # What runs while a CUDA graph is captured becomes a part of it.
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


@torch.no_grad()
def as_number(tensor: Tensor) -> Any:
    """The mean of a tensor: a float if it is on the CPU, else a tensor of its own that nobody waits for."""
    with unseen(), compat.aside(type(tensor)):
        tensor = tensor.detach()
        if tensor.is_cpu:
            return tensor.item() if tensor.numel() == 1 else tensor.double().mean().item()
        return tensor.clone() if tensor.numel() == 1 else tensor.float().mean()


def users_line() -> str:
    """`file.py:12` of the nearest frame of a user's own code; of a package where there is none."""
    frame = sys._getframe(1)
    nearest = ""
    while frame.f_back is not None:
        frame = frame.f_back
        file = frame.f_code.co_filename
        is_installed = any(part in file for part in INSTALLED)
        if is_library(file) or (file.startswith(PYTHON) and not is_installed):
            continue
        line = f"{Path(file).name}:{frame.f_lineno}"
        if not is_installed:
            return line
        nearest = nearest or line
    return nearest


# GradScaler

_unscaled_by: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}
"""By the id of what a GradScaler gave: what it was given."""


def _unscaled(tensor: Tensor) -> Tensor:
    """A loss as it was before a GradScaler multiplied it."""
    known = _unscaled_by.get(id(tensor))
    return tensor if known is None or known[0]() is not tensor else known[1]


def _noting(scale: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(scale)
    def noting(scaler: GradScaler, outputs: Any) -> Any:
        if torch.compiler.is_compiling() or not _scaling.users:
            return scale(scaler, outputs)
        if not isinstance(outputs, (Tensor, list, tuple)):
            return scale(scaler, outputs)  # an iterator, which can be gone through once
        scaled = scale(scaler, outputs)
        several = isinstance(outputs, (list, tuple))
        _note(zip(scaled, outputs, strict=False) if several else [(scaled, outputs)])
        return scaled

    return noting


def _note(pairs: Iterable[tuple[Any, Any]]) -> None:
    for scaled, plain in pairs:
        if isinstance(scaled, Tensor) and isinstance(plain, Tensor) and scaled is not plain:
            number = id(scaled)
            gone = weakref.ref(scaled, lambda _, number=number: _unscaled_by.pop(number, None))  # type: ignore[misc]
            _unscaled_by[number] = gone, plain.detach()


_scaling = Patch[object]([(GradScaler, "scale")], _noting)
