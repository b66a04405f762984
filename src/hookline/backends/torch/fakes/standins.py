"""Stand-ins: a model runs on other tensors for a while, and is then exactly what it was.

Fake stand-ins have shapes and no numbers, so nothing is computed and no memory is needed. In a real
run only buffers have stand-ins, copies, since a forward in training mode writes to them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from hookline.backends.chance import keep_chance
from hookline.backends.torch.compat import fake_like, fake_mode, forget_compiled
from hookline.backends.undoing import Noting, Undoing
from hookline.trees import leaves, map_leaves

StandIn = Callable[[torch.Tensor], torch.Tensor]
CONTAINERS = (dict, list, set)


class StandIns:
    """Makes stand-ins of tensors; a tensor always gets the same one, so ties stay ties.

    They are on the tensor's device; on `home`, the model's, where it is on none (meta).
    """

    def __init__(self, home: torch.device) -> None:
        self._home = home
        self._made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The stand-in of `tensor`."""
        known = self._made.get(id(tensor))
        if known is None:
            known = self._made[id(tensor)] = tensor, self._make(tensor)
        return known[1]

    def _make(self, tensor: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class FakeTensors(StandIns):
    """Fake tensors of one mode."""

    def __init__(self, home: torch.device) -> None:
        super().__init__(home)
        self.mode: Any = fake_mode()

    def _make(self, tensor: torch.Tensor) -> torch.Tensor:
        plain = tensor if isinstance(tensor, nn.Parameter) else tensor.as_subclass(torch.Tensor)
        return fake_like(self.mode, plain, self._home if plain.is_meta else plain.device)


class RealTensors(StandIns):
    """Copies of inputs, which a forward may write to; numbers for those that are only described (on meta)."""

    def _make(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_meta:
            return tensor.detach().clone().requires_grad_(tensor.requires_grad)
        real = torch.zeros(tensor.shape, dtype=tensor.dtype)
        if real.is_floating_point() or real.is_complex():
            # From a generator of its own: the global one stays as it is.
            real.uniform_(-1, 1, generator=torch.Generator().manual_seed(0))
        return real.to(self._home)


def home_of(model: nn.Module) -> torch.device:
    """The device that inputs belong on: that of the first parameter or buffer; the CPU for meta."""
    for tensor in (*model.parameters(), *model.buffers()):
        return torch.device("cpu") if tensor.is_meta else tensor.device
    return torch.device("cpu")


def is_on_meta(model: nn.Module) -> bool:
    """Whether a part of the model has no memory, so that it can't run for real."""
    return any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()) if not is_lazy(tensor))


def has_lazy(model: nn.Module) -> bool:
    """Whether a first call would change the model for good."""
    return any(is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers()))


def why_not_fake(model: nn.Module, inputs: Any) -> str | None:
    """Why fake tensors can't stand in here; None where they can."""
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        return "a ScriptModule does not run on fake ones"
    held = [vars(module).values() for module in model.modules()]  # as plain attributes
    for value in chain(model.parameters(), model.buffers(), *held, leaves(inputs, torch.Tensor)):
        if not isinstance(value, torch.Tensor) or is_lazy(value):
            continue
        if (kind := _kind_of_memory(value)) is not None:
            return f"{kind} tensors have no fake ones"
    return None


def _kind_of_memory(tensor: torch.Tensor) -> str | None:
    """What a tensor is that is no plain memory with strides; None for one that is."""
    if tensor.is_nested:
        return "nested"
    if tensor.is_quantized:
        return "quantized"
    return None if tensor.layout is torch.strided else str(tensor.layout).removeprefix("torch.").strip("_")


def keep_attributes(undoing: Noting, model: nn.Module) -> None:
    """At the undoing, attributes, lists and dicts of modules and all random numbers are what they are now."""
    keep_chance(undoing, (vars(module) for module in model.modules()))
    undoing.noted(torch.set_rng_state, torch.get_rng_state())
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        undoing.noted(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
    for module in list(model.modules()):
        undoing.noted(_restore, module, _snapshot(module))


def borrow(undoing: Undoing, model: nn.Module, parameter: StandIn | None, buffer: StandIn) -> None:
    """Puts stand-ins in place of the model's tensors; after the undoing all it holds is what it was.

    Attributes that a forward sets, lists and dicts that it fills, modes and the random state go back too.
    """
    keep_attributes(undoing, model)
    for module in list(model.modules()):
        forget_compiled(module)
        state = vars(module)
        _swap(state.get("_buffers"), buffer)
        if parameter is not None:
            _swap(state.get("_parameters"), parameter)
            for name, value in list(state.items()):
                if isinstance(value, torch.Tensor):  # held as a plain attribute
                    state[name] = parameter(value)


def _swap(tensors: Any, stand_in: StandIn) -> None:
    for name, tensor in (tensors or {}).items():
        if tensor is not None and not is_lazy(tensor):
            tensors[name] = stand_in(tensor)


def _snapshot(module: nn.Module) -> tuple[dict[str, Any], list[tuple[Any, Any]]]:
    state = dict(vars(module))
    contents = [(value, _content(value)) for value in state.values() if isinstance(value, CONTAINERS)]
    return state, contents


def _content(container: Any) -> Any:
    # Not copy.copy: torch's hook dictionaries are OrderedDicts, which copy slowly.
    if isinstance(container, dict):
        return dict(container)
    return list(container) if isinstance(container, list) else set(container)


def _restore(module: nn.Module, before: tuple[dict[str, Any], list[tuple[Any, Any]]]) -> None:
    state, contents = before
    now = vars(module)
    if not _is_same(now, state):
        now.clear()
        now.update(state)
    for container, content in contents:
        if isinstance(container, list):
            container[:] = content
        elif (container or content) and not _is_same(container, content):
            container.clear()
            container.update(content)


def _is_same(container: Any, content: Any) -> bool:
    """Whether a dict or set has the very things of another one, in the same order."""
    if len(container) != len(content) or not all(map(operator.is_, container, content)):
        return False
    return not isinstance(container, dict) or all(map(operator.is_, container.values(), content.values()))


def mapped(stand_in: StandIn, tree: Any) -> Any:
    """A structure with the stand-in of each of its tensors."""
    return map_leaves(stand_in, tree, torch.Tensor)
