"""Parameters: a block's own, their numbers and gradients; Gluon fills the latter in when a backward runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from mxnet.gluon import nn

from hookline.backends.mxnet import compat, modules
from hookline.backends.nouns import Model, Module, Tensor
from hookline.backends.protocol import Label
from hookline.backends.undoing import Undoing
from hookline.errors import Unsupported


class Heard:
    """Of one block: how many gradients of its outputs have come, and whether that was remarked on."""

    def __init__(self) -> None:
        self.count = 0
        self.remarked = 0


_CONVOLUTIONS = tuple(getattr(nn, f"Conv{n}D{how}") for n in (1, 2, 3) for how in ("", "Transpose"))

_heard: WeakKeyDictionary[Any, Heard] = WeakKeyDictionary()


def heard_at(module: Module) -> Heard:
    """The count of gradients that have reached this block."""
    return _heard.setdefault(module, Heard())


def remarks(modules: dict[str, Any]) -> dict[str, str]:
    """What hearing gradients changed: {site: sentence}."""
    found = {}
    for name, block in modules.items():
        heard = _heard.get(block)
        if heard is None or heard.count == heard.remarked:
            continue
        heard.remarked = heard.count
        if isinstance(block, _CONVOLUTIONS) and compat.has_layouts_of_its_own():
            found[name] = (
                "MXNet hands gradients from one convolution to the next in oneDNN's own layout; to be heard, they "
                "are brought into the plain one, and kernels chosen for that can differ in the last digits "
                "(MXNET_MKLDNN_ENABLED=0 does without these layouts)"
            )
    return found


def first_array(parameter: Tensor) -> Any:
    """The numbers of a Parameter; where it is on several devices, those on the first."""
    return parameter.list_data()[0]


def own_parameters(module: Module) -> dict[str, Any]:
    """The arrays of the module's own Parameters that have numbers already, without running statistics."""
    return {
        name: first_array(parameter)
        for name, parameter in compat.own_parameters(module).items()
        if compat.is_initialized(parameter) and not compat.is_state(parameter)
    }


def tensors_of(model: Model) -> dict[str, Any]:
    """Every parameter and running statistic by its dotted name, shared ones under each of their names."""
    found = {}
    for name, block in modules.walk(model):
        for own, parameter in compat.own_parameters(block).items():
            if not compat.is_initialized(parameter):
                continue
            if len(parameter.list_ctx()) > 1:
                raise Unsupported(
                    backend="mxnet",
                    feature="an edit of a parameter on several devices",
                    why=f"{parameter.name!r} has a copy on each of {parameter.list_ctx()}",
                    instead="edit it by parameter.set_data, which writes to all of them",
                )
            found[f"{name}.{own}" if name else own] = first_array(parameter)
    return found


def gradient(parameter: Tensor) -> Any:
    """The gradient of a parameter's parameter, or None where it has none."""
    return parameter.grad


def hear_parameters(undoing: Undoing, module: Module, sink: Callable[[str, Any], None], label: Label) -> None:
    """Has `sink(name, grad)` called at the end, if a backward has reached the module meanwhile.

    MXNet has no hook on the gradient of a parameter. It is read where the backward leaves it: with
    grad_req "add", it is the sum so far.
    """
    heard = heard_at(module)
    before = heard.count

    def read() -> None:
        nonlocal before
        if heard.count > before:
            before = heard.count
            for name, array in own_parameters(module).items():
                if (grad := gradient(array)) is not None:
                    sink(name, grad)

    undoing.noted(read)
