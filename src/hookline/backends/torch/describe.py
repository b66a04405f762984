"""Describing: torch tensors and modules as facts."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from hookline.backends.facts import ModuleFact, ParameterFact, TensorFact, described
from hookline.backends.torch.compat import uncompiled
from hookline.backends.torch.modules import has_no_forward, walk
from hookline.backends.undoing import stacked
from hookline.errors import InvalidArgument
from hookline.trees import map_leaves


def names_of(model: nn.Module) -> dict[int, list[str]]:
    """All names of each module, by the module's id; the first is the one it goes by."""
    names: dict[int, list[str]] = {}
    for name, module in walk(model):
        names.setdefault(id(module), []).append(name)
    return names


def modules_of(model: nn.Module, names: dict[int, list[str]] | None = None) -> list[ModuleFact]:
    """A fact for each module, in order of definition."""
    model = uncompiled(model)
    names = names or names_of(model)
    return [
        ModuleFact(
            own[0],
            tuple(own[1:]),
            type(module).__name__ if not is_script(module) else str(module.original_name),
            not has_no_forward(module),
            tuple(_parameter(name, p) for name, p in module.named_parameters(recurse=False)),
            "inside TorchScript" if is_script(module) else "",
        )
        for module in model.modules()
        if (own := names.get(id(module))) is not None
    ]


def is_script(module: nn.Module) -> bool:
    """Whether `module` is TorchScript's."""
    return isinstance(module, torch.jit.ScriptModule)


def _parameter(name: str, parameter: torch.Tensor) -> ParameterFact:
    # A lazy parameter has no size yet.
    count, stored = (0, 0) if is_lazy(parameter) else (parameter.numel(), _stored(parameter))
    dtype, device = str(parameter.dtype).removeprefix("torch."), str(parameter.device)
    return ParameterFact(id(parameter), name, count, stored, dtype, device, parameter.requires_grad)


def facts_of(tree: Any) -> Any:
    """A structure with a TensorFact in place of each tensor."""
    return described(tree, torch.Tensor, _tensor)


def _tensor(tensor: torch.Tensor) -> TensorFact:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorFact(_shape(tensor), dtype, str(tensor.device), _stored(tensor))


def _shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """The sizes of a tensor; -1 for those that differ from part to part, in a nested one."""
    if not tensor.is_nested:
        return tuple(map(int, tensor.shape))
    sizes = [tuple(part.shape) for part in tensor.unbind()]
    return len(sizes), *(same[0] if len(set(same)) == 1 else -1 for same in zip(*sizes, strict=True))


def _stored(tensor: torch.Tensor) -> int:
    """The bytes of all that a tensor stores: of a sparse one, values and where they belong."""
    if tensor.layout is torch.sparse_coo:
        parts = [tensor._indices(), tensor._values()]
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    elif tensor.is_nested:
        parts = list(tensor.unbind())
    else:
        parts = [tensor]
    return sum(part.numel() * part.element_size() for part in parts)


def nbytes(tensor: torch.Tensor) -> int:
    """The bytes a tensor takes in memory: an expanded one takes what it was before."""
    own = _stored(tensor)
    storage = storage_of(tensor)
    return own if storage is None else min(own, int(storage.nbytes()))


def storage_of(tensor: torch.Tensor) -> Any:
    """The memory of a tensor, the same object for all its views; None for layouts that have none."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return None
    try:
        return tensor.untyped_storage()
    except NotImplementedError:  # inside torch.vmap a tensor stands for many
        return None


def described_input(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype | None) -> torch.Tensor:
    """A tensor without memory that stands for an input of that shape.

    Where no dtype is given it is the model's own floating one, or int64 for a model that takes token ids.
    """
    model = uncompiled(model)
    if dtype is None and getattr(model, "main_input_name", None) == "input_ids":
        dtype = torch.int64
    if dtype is None:
        floats = (p.dtype for p in (*model.parameters(), *model.buffers()) if p.is_floating_point())
        dtype = next(floats, torch.get_default_dtype())
    try:
        return torch.empty(shape, dtype=dtype, device="meta")
    except RuntimeError as error:
        raise InvalidArgument(f"no tensor has the shape {shape}: {error}") from None


def integers(tree: Any) -> Any:
    """A structure with inputs that are only described (on meta) as int64."""
    return map_leaves(lambda t: t.to(torch.int64) if t.is_meta else t, tree, torch.Tensor)


def forward_of(module: nn.Module) -> tuple[Callable[..., Any], str]:
    """The function that runs when the module is called, and the class or instance that has it."""
    module = uncompiled(module)
    if "forward" in vars(module):
        return vars(module)["forward"], f"this {type(module).__name__} object"
    for base in type(module).__mro__:
        if "forward" in vars(base):
            found: Callable[..., Any] = inspect.getattr_static(base, "forward")
            return found, base.__name__
    raise AssertionError("nn.Module itself has a forward")


@stacked
def evaluating(stack: ExitStack, model: nn.Module) -> None:
    """The model in eval mode and without gradients; each module's own mode comes back."""
    for module in model.modules():
        stack.callback(setattr, module, "training", module.training)
    model.eval()
    stack.enter_context(torch.no_grad())


def random_input(model: nn.Module, shape: tuple[int, ...]) -> torch.Tensor:
    """Numbers between -1 and 1 in the dtype and on the device of the first parameter."""
    like = next(model.parameters(), torch.empty(0))
    numbers = torch.empty(shape).uniform_(-1, 1, generator=torch.Generator().manual_seed(0))
    return numbers.to(like.device, like.dtype)
