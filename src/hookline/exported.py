"""exported: what stays of hookline in a model that is exported to run elsewhere.

Upstream: select (where), a backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hookline.backends import named, resolve
from hookline.backends.capabilities import capabilities
from hookline.backends.nouns import Model
from hookline.backends.protocol import Backend, Label
from hookline.backends.undoing import Undoing
from hookline.hooks.handles import Handle, attached
from hookline.hooks.placing import callers_line, needs_callable
from hookline.hooks.select import ModuleTree, select


def mark(model: Model, where: Any = "**") -> Handle:
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
    backend, places = _chosen(model, where, "exported.mark")
    label = Label("exported.mark", "mark for export", "", callers_line())
    return attached(backend.place_marks, places, label)


def on_mark(callback: Callable[[str, Any], Any]) -> Handle:
    """A Handle; `callback(site, tensor)` is called for each marked value that passes in this process.

    Call it before a program with marks is loaded: it makes the operator known that stands in the program.
    """
    needs_callable("on_mark", "callback", callback, 2)

    def listen(undoing: Undoing) -> None:
        for name, framework in capabilities().items():
            if framework.can("export"):
                named(name).hear_marks(undoing, callback)

    return attached(listen)


def with_statistics(model: Model, where: Any = "**") -> Any:
    """A model that returns (the output, {site: statistics}), to be exported to where there is no Python.

    Statistics are vectors of float64, in the order that its attribute `statistics` tells.

    >>> import torch
    >>> model = with_statistics(torch.nn.Sequential(torch.nn.ReLU()), "0")
    >>> output, told = model(torch.tensor([[-1.0, 3.0]]))
    >>> dict(zip(model.statistics, told["0"].tolist()))["mean"]
    1.5
    """
    backend, places = _chosen(model, where, "exported.with_statistics")
    return backend.with_statistics(model, places)


def _chosen(model: Model, where: Any, verb: str) -> tuple[Backend, dict[str, Any]]:
    backend = resolve(model)
    backend.framework.need("export", verb)
    tree = ModuleTree(backend.named_modules(model))
    return backend, {place.name: place.module for place in select(tree, where)}
