"""Exporting: values that a program of torch.export tells of, and statistics that it returns.

A program is run by other processes, perhaps without Python. A *mark* is an operator in it which, in a process
with Python that has hookline, calls whoever listens there. Statistics need nobody: they are outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import nn

from hookline.backends.changing import changing
from hookline.backends.protocol import Label, Placement, Tap
from hookline.backends.torch import compat, taps
from hookline.backends.undoing import Undoing
from hookline.rows import STATISTICS
from hookline.trees import leaves

Tensor = torch.Tensor
Listener = Callable[[str, Tensor], Any]

_listeners: list[Listener] = []


@cache
def define() -> torch.library.Library:
    """Makes the operator known to torch; a program with marks can't be loaded before."""
    library = torch.library.Library("hookline_marks", "DEF")  # type: ignore[no-untyped-call]
    library.define("mark(Tensor value, str site) -> ()")  # type: ignore[no-untyped-call]
    library.impl("mark", _marked, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake("hookline_marks::mark", lambda value, site: None, lib=library)
    compat.effectful(torch.ops.hookline_marks.mark.default)
    return library


def _marked(value: Tensor, site: str) -> None:
    for listener in tuple(_listeners):
        listener(site, value.detach())


def listen(undoing: Undoing, listener: Listener) -> None:
    """Has `listener(site, tensor)` called for every marked value that passes in this process."""
    define()
    undoing.noted(_set_listening, listener, False)
    _set_listening(listener, True)


@changing
def _set_listening(listener: Listener, wanted: bool) -> None:
    _listeners[:] = [other for other in _listeners if other is not listener] + [listener] * wanted


class Mark(Tap):
    """Marks the tensors that a module returns. Code that is compiled or exported follows it as it is written."""

    kwargs = False
    followed = True

    def __init__(self, label: Label) -> None:
        self.label = label
        self.site = label.site
        self.needs = self.needs._replace(inputs=False, replaces=False)

    def __call__(self, module: Any, args: Any, output: Any) -> None:
        found = list(leaves(output, Tensor))
        for number, leaf in enumerate(found):
            torch.ops.hookline_marks.mark(leaf, self.site if len(found) == 1 else f"{self.site}[{number}]")


def place_marks(undoing: Undoing, places: dict[str, nn.Module], label: Label) -> None:
    """Marks the outputs of these modules."""
    define()
    taps.attach(undoing, [Placement(module, Mark(label._replace(site=name))) for name, module in places.items()])


class WithStatistics(nn.Module):
    """A model that returns (its output, {site: a vector of `statistics`}), all by operators of torch."""

    statistics = STATISTICS

    def __init__(self, model: nn.Module, places: dict[str, nn.Module]) -> None:
        super().__init__()
        self.model = model
        self._names = {id(module): name for name, module in places.items()}
        self._places = list(places.values())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        told: dict[str, Tensor] = {}

        def tell(module: nn.Module, args: Any, output: Any) -> None:
            found = [leaf for leaf in leaves(output, Tensor) if leaf.is_floating_point()]
            for number, leaf in enumerate(found):
                name = self._names[id(module)]
                told[name if len(found) == 1 else f"{name}[{number}]"] = reduced(leaf)

        handles = [module.register_forward_hook(tell) for module in self._places]
        try:
            output = self.model(*args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
        return output, told


def reduced(tensor: Tensor) -> Tensor:
    """The statistics of a tensor as a vector, in the order of STATISTICS."""
    x = tensor.detach().double()
    finite = x.isfinite()
    number = finite.sum()
    kept = torch.where(finite, x, 0.0)
    mean = kept.sum() / number
    spread = torch.where(finite, x - mean, 0.0).square().sum() / (number - 1)
    low, high = torch.where(finite, x, torch.inf).amin(), torch.where(finite, x, -torch.inf).amax()
    return torch.stack(
        [
            torch.full_like(mean, x.numel()),
            mean,
            spread.sqrt(),
            low,
            high,
            torch.maximum(-low, high),
            kept.square().sum().sqrt(),
            (x == 0).sum().double(),
            (tensor.abs() <= 0.05).double().mean(),
            x.isnan().sum().double(),
            x.isinf().sum().double(),
        ]
    )
