"""Exporting: what stays of hookline in a model that is exported to run elsewhere.

Upstream: select (where), the torch backend; other frameworks have no such programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hookline.backends import resolve
from hookline.backends.protocol import Label
from hookline.errors import Unsupported
from hookline.hooks.handles import Handle, attached
from hookline.hooks.placing import callers_line, needs_callable
from hookline.hooks.select import Tree, select


def mark(model: Any, where: Any = "**") -> Handle:
    """A Handle; the outputs of the chosen modules are marked, also in programs exported from the model meanwhile.

    In every process with Python that runs such a program, `on_mark` hears of the values. A process that runs it
    without Python needs an operator of that name, `hookline_marks::mark`, in C++.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    >>> with mark(model, "0"):
    ...     program = torch.export.export(model, (torch.ones(1, 2),))
    >>> with on_mark(lambda site, value: print(site, tuple(value.shape))):
    ...     _ = program.module()(torch.ones(1, 2))
    0 (1, 3)
    """
    exporting, places = _chosen(model, where, "mark")
    label = Label("mark", "mark for export", "", callers_line())
    return attached(exporting.place_marks, places, label)


def on_mark(callback: Callable[[str, Any], Any]) -> Handle:
    """A Handle; `callback(site, tensor)` is called for each marked value that passes in this process.

    Call it before a program with marks is loaded: it makes the operator known that stands in the program.
    """
    from hookline.backends.torch import exporting

    needs_callable("on_mark", "callback", callback, 2)
    return attached(exporting.listen, callback)


def with_statistics(model: Any, where: Any = "**") -> Any:
    """A model that returns (the output, {site: statistics}), to be exported to where there is no Python.

    Statistics are vectors of float64, in the order that its attribute `statistics` tells.

    >>> import torch
    >>> model = with_statistics(torch.nn.Sequential(torch.nn.ReLU()), "0")
    >>> output, told = model(torch.tensor([[-1.0, 3.0]]))
    >>> dict(zip(model.statistics, told["0"].tolist()))["mean"]
    1.5
    """
    exporting, places = _chosen(model, where, "with_statistics")
    return exporting.WithStatistics(model, places)


def _chosen(model: Any, where: Any, verb: str) -> tuple[Any, dict[str, Any]]:
    backend = resolve(model)
    if backend.name != "torch":
        raise Unsupported(
            backend=backend.name,
            feature=verb,
            why="it is for programs of torch.export",
            instead="record or watch the model itself",
        )
    from hookline.backends.torch import exporting

    tree = Tree(backend.named_modules(model))
    return exporting, {place.name: place.module for place in select(tree, where)}
