"""Wired: how the parts of a torch training hang together; see `hookline.backends.wired`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import chain
from operator import attrgetter, methodcaller
from typing import Any

import torch
import torch.optim.optimizer as optimizer_module
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from hookline.backends.torch import compat, graph_look, spreads
from hookline.backends.torch.compat import BEFORE_STEP, note_hook
from hookline.backends.torch.engine import EngineRun, hear_backwards
from hookline.backends.torch.freshness import is_fresh
from hookline.backends.torch.losses import INSTALLED, is_of_user, leads_to, users_line
from hookline.backends.torch.modules import every_module, walk
from hookline.backends.torch.operator_look import OperatorLook
from hookline.backends.torch.parameters import all_parameters, parameters_of
from hookline.backends.undoing import Undoing
from hookline.backends.wired import Group
from hookline.wiring import Module, Parameter

SETTINGS = ("momentum", "eps", "p", "track_running_stats")
_held_by, _needs_gradient = methodcaller("values"), attrgetter("requires_grad")
MOST_HELD = 1000
"""Of a longer list or dict in a module only the first elements are looked at."""


class TorchWiring:
    """What torch tells of the wiring of one model."""

    walked = staticmethod(graph_look.walked)
    nodes_of = staticmethod(graph_look.nodes_of)
    samples_of = staticmethod(spreads.samples_of)
    spread_of = staticmethod(spreads.spread_of)

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._flat: list[Any] = []  # (parts, parameters) of each module, to see whether they are others
        self._has_lazy = False
        self._own_kinds: dict[type, bool] = {}  # whether a class is the user's

    # The tree

    def stamp(self) -> object:
        """The ids of all modules and parameters; no two are alike while a parameter is lazy."""
        if self._has_lazy or not self._flat:
            return object()
        return list(map(id, chain.from_iterable(map(_held_by, self._flat))))

    def modules(self) -> dict[str, nn.Module]:
        """Every module under every name, parents first."""
        found = dict(walk(self._model))
        plain = [one for one in found.values() if not isinstance(one, torch.jit.ScriptModule)]
        self._flat = [held for one in plain for held in (one._modules, one._parameters)]
        return found

    def parameters(self) -> dict[str, torch.Tensor]:
        """Every parameter that has a shape, tied ones under each of their names."""
        found = parameters_of(self._model)
        self._has_lazy = any(map(is_lazy, found.values()))
        return {name: one for name, one in found.items() if not is_lazy(one)} if self._has_lazy else found

    def outside(self) -> dict[str, tuple[nn.Module | None, dict[str, torch.Tensor]]]:
        """What modules of the model hold in lists and dicts: modules, and parameters on their own."""
        inside = {id(one) for one in self._model.modules()}
        known = {id(one) for one in self._model.parameters()}
        found: dict[str, tuple[nn.Module | None, dict[str, torch.Tensor]]] = {}
        for name, module in dict(walk(self._model)).items():
            for place, held in _held(module, f"{name}." if name else ""):
                if isinstance(held, nn.Module):
                    if id(held) not in inside:
                        found[place] = held, {f"{place}.{own}": one for own, one in held.named_parameters()}
                        inside.add(id(held))
                elif id(held) not in known:
                    found[place] = None, {place: held}
                    known.add(id(held))
        return found

    def described(self, module: nn.Module) -> Module:
        """What a module is: its type, mode and settings."""
        settings: dict[str, float] = {}
        if isinstance(module, (_NormBase, _DropoutNd)):
            for name in SETTINGS:
                if isinstance(value := getattr(module, name, None), (int, float)):
                    settings[name] = float(value)
        kind = type(module)
        if (is_own := self._own_kinds.get(kind)) is None:
            file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
            is_own = self._own_kinds[kind] = not any(part in file for part in INSTALLED)
        return Module(kind.__name__, training=bool(module.training), is_own=is_own, settings=settings)

    def described_parameter(self, parameter: torch.Tensor, module: str) -> Parameter:
        """What a parameter is that belongs to the module of that name."""
        dtype = _name_of(parameter.dtype)
        fresh = None if parameter.requires_grad else is_fresh(parameter)
        return Parameter(module, list(parameter.shape), dtype, parameter.requires_grad, fresh)

    def trainable(self, parameters: Iterable[torch.Tensor]) -> list[bool]:
        return list(map(_needs_gradient, parameters))

    def makes_graphs(self) -> bool:
        return torch.is_grad_enabled()

    def has_gradient(self, parameter: torch.Tensor) -> bool:
        return parameter.grad is not None

    def modes(self, modules: Iterable[nn.Module]) -> list[bool]:
        return [module.training for module in modules]

    def memory(self, parameter: torch.Tensor) -> tuple[int, int, int] | None:
        """The storage of a parameter, and from which byte to which it has the values."""
        try:
            storage, size = parameter.untyped_storage()._cdata, parameter.element_size()
            first, count = int(parameter.storage_offset()) * size, int(parameter.numel())
            if count and not parameter.is_contiguous():  # from the first to the last of them
                spans: Any = ((n - 1) * step for n, step in zip(parameter.shape, parameter.stride(), strict=True))
                count = int(sum(spans)) + 1
            return (storage, first, first + count * size) if count else None
        except (RuntimeError, NotImplementedError):  # a subclass without memory of its own
            return None

    # Optimizers

    def hear(
        self,
        undoing: Undoing,
        stepping: Callable[[Any], None],
        loss: Callable[[tuple[torch.Tensor, ...], str], None],
        wanted: Callable[[], bool],
    ) -> None:
        """Has `stepping(optimizer)` called before a step, and `loss(tensors, line)` before a backward."""

        def pre(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            if wanted():
                stepping(optimizer)

        note_hook(undoing, optimizer_module, BEFORE_STEP, pre)
        register_optimizer_step_pre_hook(pre)
        hear_backwards(undoing, partial(self._hear, loss), wanted)

    def _hear(self, loss: Callable[[tuple[torch.Tensor, ...], str], None], run: EngineRun) -> None:
        """Tells of a backward, also one that does not lead to the model, but of none within another."""
        if not is_of_user():
            return
        # Gradients that are returned may be of anything; those of parameters are for a step.
        if run.accumulates or leads_to(run, self._model):
            loss(tuple(root for root in run.roots if isinstance(root, torch.Tensor)), users_line())

    def groups(self, optimizer: Optimizer) -> list[Group]:
        """The groups of an optimizer."""
        return [Group(_numbers(group), list(group["params"])) for group in optimizer.param_groups]

    def held(self, optimizer: Optimizer) -> tuple[int, ...]:
        """The ids of all that it holds, group by group, with -1 between them."""
        return tuple(one for group in optimizer.param_groups for one in (*map(id, group["params"]), -1))

    def is_same_optimizer(self, one: Optimizer, other: Optimizer) -> bool:
        """Whether one is a wrapper around the other: they have the very same groups."""
        return one is other or one.param_groups is other.param_groups

    def owners(self, tensors: Mapping[int, torch.Tensor]) -> dict[int, str]:
        """By id, the type of a living module outside of the model that has the tensor."""
        mine = {id(module) for module in self._model.modules()}
        found: dict[int, str] = {}
        for one in gc.get_objects():
            kind = type(one)
            if not issubclass(kind, nn.Module) or id(one) in mine:
                continue
            for held in one.__dict__.get("_parameters", {}).values():
                if held is not None and tensors.get(id(held)) is held:
                    found.setdefault(id(held), kind.__name__)
        return found

    def described_tensor(self, tensor: torch.Tensor) -> str:
        """In words: "Parameter (10, 4)"."""
        kind = "Parameter" if isinstance(tensor, nn.Parameter) else "Tensor"
        return f"{kind} {tuple(tensor.shape)}"

    # Looks

    def is_compiled(self) -> bool:
        """Whether any code may run compiled."""
        return compat.was_compiled() or any(map(compat.compiled, every_module(self._model)))

    def look_at_operators(self) -> OperatorLook | None:
        """A look at the operators of a step; None where something runs compiled, or TorchScript does."""
        found = walk(self._model)
        if any(isinstance(one, torch.jit.ScriptModule) for _, one in found) or self.is_compiled():
            return None
        modules = {id(module): name for name, module in reversed(found)}
        return OperatorLook(modules, {id(one) for one in all_parameters(self._model)})


@cache
def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _held(module: nn.Module, dot: str) -> Iterator[tuple[str, Any]]:
    """(place, module or parameter) in the lists, tuples and dicts that a module has, two levels deep."""
    for name, value in list(module.__dict__.items()):
        if name.startswith(("_forward", "_backward")) or name in ("_modules", "_parameters"):
            continue
        yield from _inside(value, dot + name, 2)


def _inside(value: Any, place: str, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (nn.Module, nn.Parameter)):
        yield place, value
    elif depth and type(value) in (list, tuple, dict):
        pairs = value.items() if type(value) is dict else enumerate(value)
        for number, (key, one) in enumerate(list(pairs)):
            if number >= MOST_HELD:
                break
            yield from _inside(one, f"{place}[{key!r}]", depth - 1)


def _numbers(group: dict[str, Any]) -> dict[str, float]:
    """The numbers of a group; betas one by one."""
    found = {"params": float(len(group["params"]))}
    for name, value in group.items():
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            value = value.item()  # a learning rate that is a tensor
        if isinstance(value, (int, float)):
            found[name] = float(value)
        elif name == "betas" and isinstance(value, (tuple, list)):
            found |= {f"beta{number}": float(one) for number, one in enumerate(value, 1)}
    return found
