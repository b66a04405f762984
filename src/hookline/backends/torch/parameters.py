"""Parameters: their names, their gradients heard; the call that is repeated."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter, is_lazy

from hookline.backends.protocol import FunctionTap, HeardSite, Label, Tap
from hookline.backends.torch.compat import (
    ON_ACCUMULATION,
    ON_GRADIENT,
    as_plain_tensors,
    current_node,
    fresh_hook_id,
    hooks_of_leaf,
    node_number,
    note_hook,
    take_off_leaf,
)
from hookline.backends.torch.modules import every_module, walk
from hookline.backends.undoing import Undoing
from hookline.errors import InvalidArgument


class _GradientTap(Tap):
    """Hears the gradient of one parameter."""

    kwargs = False
    sink: Callable[[str, torch.Tensor], None]
    name: str
    _site: str
    _common: Label
    held: weakref.ref[torch.Tensor]
    key: int
    """On which parameter it was placed, under which number."""

    @property
    def label(self) -> Label:  # type: ignore[override]  # made when asked for, which is seldom
        return self._common._replace(site=self._site)

    def __call__(self, grad: torch.Tensor) -> None:
        if grad is not None:  # compiled code tells of parameters without a gradient, too
            self.sink(self.name, grad)


_quick_tap: Callable[[], _GradientTap] = partial(_GradientTap.__new__, _GradientTap)
"""A tap without a frame of Python: there is one for every parameter."""


class _Heard:
    """The taps of one attachment on parameters."""

    def __init__(self) -> None:
        self._taps: list[_GradientTap] = []

    def put(self, sites: Iterable[HeardSite], label: Label) -> list[tuple[torch.Tensor, Tap]]:
        """Places a tap on each own parameter of the sites; returns those that torch itself has to place."""
        number = fresh_hook_id()
        left: list[tuple[torch.Tensor, Tap]] = []
        note, held_by = self._taps.append, weakref.ref
        for site, module, sink in sites:
            for name, parameter in _own_parameters(module):
                if not parameter.requires_grad:
                    continue
                tap = _quick_tap()
                tap.sink, tap.name, tap._site, tap._common = sink, name, site, label
                if type(parameter) is not nn.Parameter:
                    left.append((parameter, tap))
                    continue
                hooks = hooks_of_leaf(parameter)
                tap.key = key = number if number not in hooks else fresh_hook_id()  # it may be of several modules
                tap.held = held_by(parameter)
                note(tap)
                hooks[key] = tap
        return left

    def remove(self) -> None:
        for tap in self._taps:
            if (parameter := tap.held()) is not None:
                take_off_leaf(parameter, tap, tap.key)
        self._taps.clear()


def hear_parameters(undoing: Undoing, sites: Iterable[HeardSite], label: Label) -> None:
    """Calls `sink(name, grad)` for each of the modules' own parameters in every backward.

    A lazy module's parameters are the same tensors once they have a size, and keep their hooks.
    """
    heard = _Heard()
    undoing.noted(heard.remove)
    for parameter, tap in heard.put(sites, label):
        note_hook(undoing, parameter, ON_GRADIENT, tap)
        with as_plain_tensors():  # one without a size allows nearly nothing
            parameter.register_hook(tap)  # type: ignore[no-untyped-call]


def _own_parameters(module: nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
    """What `named_parameters` gives of a module without its parts, at a tenth of its time."""
    if type(module).named_parameters is not nn.Module.named_parameters:
        return module.named_parameters(recurse=False)
    own = module._parameters
    if not own:
        return ()
    ids = {*map(id, own.values())}
    if len(ids) == len(own) and id(None) not in ids:
        return own.items()  # type: ignore[return-value]
    found = [(name, one) for name, one in own.items() if one is not None]
    return {id(one): (name, one) for name, one in reversed(found)}.values()  # one under several names: the first


def _named_parameters(module: nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
    """The parameters that a module has itself, one that has several names under each of them."""
    if type(module).named_parameters is not nn.Module.named_parameters:
        return module.named_parameters(recurse=False, remove_duplicate=False)
    return [(name, one) for name, one in module._parameters.items() if one is not None]


def all_parameters(model: nn.Module) -> list[torch.Tensor]:
    """What `list(model.parameters())` is, in less than half of its time: it is asked for several times a step."""
    kind = type(model)
    if kind.parameters is not nn.Module.parameters or kind.named_parameters is not nn.Module.named_parameters:
        return list(model.parameters())
    found: dict[int, torch.Tensor] = {}
    for module in every_module(model):
        for one in module._parameters.values():
            if one is not None:
                found.setdefault(id(one), one)
    return list(found.values())


def own_parameters(module: nn.Module) -> dict[str, torch.Tensor]:
    """The parameters that a module has itself and that have a size, by name."""
    return {name: one for name, one in _own_parameters(module) if not is_lazy(one)}


def hear_accumulated(
    undoing: Undoing, parameter: torch.Tensor, fn: Callable[[torch.Tensor], None], label: Label
) -> None:
    """Calls `fn(parameter)` in every backward that has added to its gradient."""
    if isinstance(parameter, UninitializedParameter):
        raise InvalidArgument(
            f"the parameter {label.site!r} is lazy: it has no shape and takes no hook before the first call. "
            "Call the model once on a batch, then register the hook."
        )
    tap = FunctionTap(fn, label)
    note_hook(undoing, parameter, ON_ACCUMULATION, tap)
    parameter.register_post_accumulate_grad_hook(tap)  # type: ignore[no-untyped-call]


def parameters_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter by its dotted name, tied ones under each of their names."""
    return {
        f"{name}.{own}" if name else own: parameter
        for name, module in walk(model)
        for own, parameter in _named_parameters(module)
    }


def recomputed(calls: list[Any]) -> Any:
    """The call that a recomputation under way repeats; None where it can't be told.

    Checkpointing in reentrant mode runs the segment without autograd first. Its node is made before
    the segment runs and gets a number, so the calls of the segment are those with a higher one, and
    they are repeated in their old order.
    """
    node = current_node()
    since = -1 if node is None else node_number(node)
    key = (since, id(node))
    segment = [call for call in calls if call.sequence > since]
    for call in segment:
        if call.repeated_in != key:
            call.repeated_in = key
            return call
    return calls[-1] if calls else None


def tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter and buffer by its dotted name, tied ones under each of their names."""
    found: dict[str, torch.Tensor] = {}
    for name, module in walk(model):
        own = [*module.named_parameters("", False, False), *module.named_buffers("", False, False)]
        found |= {f"{name}.{key}" if name else key: tensor for key, tensor in own}
    return found
