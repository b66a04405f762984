"""Inputs: a model's arguments as a list of tensors with names and roles, each of which can be exchanged."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from hookline.backends.protocol import Backend
from hookline.branches import inside
from hookline.summaries.inputs import is_shape, prepare
from hookline.trees import map_leaves

TARGETS = {"label", "labels", "target", "targets", "y", "y_true", "start_positions", "end_positions"}
NO_CONTENT = (
    *("position_ids", "token_type_ids", "cache_position", "positions", "edge_index", "lengths"),
    *("segment_ids", "task_ids", "past_key_values", "inputs_mask", "head_mask", "language_ids", "langs"),
)
"""Arguments that say how content is to be read: to put other numbers in there is no other content."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Input:
    """A tensor among the arguments: its name, and "content", "mask", "target" or "other"."""

    name: str
    tensor: torch.Tensor
    role: str


class Inputs:
    """The arguments of a call, with their tensors in order."""

    def __init__(self, names: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._arguments: Arguments = (args, kwargs)
        named = [
            *((names[at] if at < len(names) else f"argument {at}", value) for at, value in enumerate(args)),
            *kwargs.items(),
        ]
        self.parts = [
            Input(name, tensor, _role(name, tensor))
            for above, value in named
            for name, tensor in _tensors(above, value, ())
        ]

    def exchanged(self, tensors: Sequence[torch.Tensor]) -> Inputs:
        """The same arguments with these tensors."""
        new = object.__new__(Inputs)
        new._arguments = self._arguments
        new.parts = [replace(part, tensor=one) for part, one in zip(self.parts, tensors, strict=True)]
        return new

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors, in order."""
        return [part.tensor for part in self.parts]

    def places(self, role: str) -> list[int]:
        """Which of them have this role."""
        return [at for at, part in enumerate(self.parts) if part.role == role]

    def arguments(self, tensors: Sequence[torch.Tensor]) -> Arguments:
        """The same call with copies of these tensors: a forward may write to what it is given."""
        given = iter(tensors)
        made: Arguments = map_leaves(lambda _: _copy(next(given)), self._arguments, torch.Tensor)
        return made


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _tensors(name: str, value: Any, above: tuple[int, ...]) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif (branch := inside(value, above)) is not None:
        for key, child in zip(branch[0], branch[1], strict=True):
            yield from _tensors(key if isinstance(key, str) else name, child, (*above, id(value)))


def _role(name: str, tensor: torch.Tensor) -> str:
    if name in TARGETS:
        return "target"
    if "mask" in name or "padding" in name:
        return "mask" if name not in NO_CONTENT else "other"
    if name in NO_CONTENT or tensor.dim() == 0 or tensor.numel() == 0 or tensor.dtype is torch.bool:
        return "other"
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_complex() or tensor.is_quantized:
        return "other"
    return "content"


def candidates(backend: Backend, model: nn.Module, inputs: Any) -> Iterator[Inputs]:
    """What `inputs` may mean, the likeliest first: a batch may have targets that the model does not take."""
    whole = inputs if isinstance(inputs, tuple) and not is_shape(inputs) else (inputs,)
    forms = [whole]
    if isinstance(inputs, list) and not is_shape(inputs):
        forms.append(tuple(inputs))
    if isinstance(inputs, (list, tuple)) and not is_shape(inputs):
        forms += [tuple(inputs[:count]) for count in range(len(inputs) - 1, 0, -1)]
    names = names_of(backend, model)
    for form in forms:
        ready = prepare(backend, model, form, {}, None)
        for values in (
            _numbers(model, (ready.args, ready.kwargs)) if ready.shapes else [(ready.args, ready.kwargs)]
        ):
            yield Inputs(names, *values)
        if len(form) == 1 and isinstance(form[0], Mapping) and not ready.kwargs and _takes_any(backend, model):
            yield Inputs(names, (), dict(form[0]))


def _numbers(model: nn.Module, arguments: Arguments) -> Iterator[Arguments]:
    """Numbers for what was given as shapes: of the model's dtype, or ids that it can look up."""
    generator = torch.Generator().manual_seed(0)
    home = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
    rows = min((part.num_embeddings for part in model.modules() if isinstance(part, nn.Embedding)), default=2)

    def ids(tensor: torch.Tensor) -> torch.Tensor:
        return torch.randint(0, rows, tensor.shape, generator=generator).to(home) if tensor.is_meta else tensor

    def numbers(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_meta or not tensor.is_floating_point():
            return ids(tensor)
        return torch.randn(tensor.shape, generator=generator).to(home, tensor.dtype)

    for fill in (numbers, ids):
        yield map_leaves(fill, arguments, torch.Tensor)


def names_of(backend: Backend, model: nn.Module) -> list[str]:
    """The names of the arguments that the model's forward takes by their place."""
    return [
        one.name
        for one in _signature(backend, model)
        if one.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        and one.name != "self"
    ]


def _takes_any(backend: Backend, model: nn.Module) -> bool:
    return any(one.kind is inspect.Parameter.VAR_KEYWORD for one in _signature(backend, model))


def _signature(backend: Backend, model: nn.Module) -> list[inspect.Parameter]:
    forward: Callable[..., Any] = backend.forward_of(model)[0]
    try:
        return list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):  # a C function, or a ScriptModule's forward
        return []
