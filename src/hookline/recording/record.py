"""record: keeps what crosses the sites of a model while a `with` block runs.

Upstream: select (where), a backend. Downstream: Recorder, which gives the Recording.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hookline.backends import resolve
from hookline.errors import InvalidArgument
from hookline.hooks.ops import Chosen, Ops
from hookline.hooks.placing import needs_callable, renamed
from hookline.hooks.select import ModuleTree, select
from hookline.recording.budget import Budget, parse_bytes
from hookline.recording.keeping import RecordingTarget
from hookline.recording.recorder import Recorder
from hookline.recording.store import Store


def record(
    model: Any,
    where: Any = "**",
    *,
    inputs: bool = False,
    grads: bool = False,
    ops: Ops = False,
    device: Any = None,
    dtype: Any = None,
    reduce: Callable[[Any], Any] | None = None,
    stop: bool = False,
    limit: int | str | None = None,
    spill: str | Path | None = None,
    to: Any = None,
    keep: Callable[[Any], Any] | None = None,
) -> Recorder:
    """A context manager that gives a Recording of the sites that `where` selects.

    `inputs` keeps arguments, `grads` the gradients of inputs, outputs and parameters. `ops` also records the
    operators that run in these modules, all or those of a glob ("aten.*norm*"), as sites such as
    `layer1.0.conv1/convolution`; with `grads` those of a backward as well. `reduce(tensor)`
    is what is stored of each tensor, a mean or a slice, say; `device` and `dtype` move and cast it. `stop`
    ends the forward, and with it the block, once every site has fired. Beyond `limit` bytes the
    recording goes on in files in the folder `spill`, or ends in RecordingTooLarge. `to` keeps it in a
    run as well, from which `open_run(...).recordings` reads it: a folder, a RunStore or a Watch. `keep` is the
    old name of `reduce`.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    >>> with record(model) as rec:
    ...     _ = model(torch.ones(4, 3))
    >>> rec.names, rec["0"].output.shape
    (['0', '1', ''], torch.Size([4, 2]))
    """
    if keep is not None:
        reduce = renamed("record", "keep", keep, "reduce", reduce is not None)
    if reduce is not None:
        needs_callable("record", "reduce", reduce, 1)
    if stop and grads:
        raise InvalidArgument(
            "record(stop=True, grads=True) can't be: a forward that is stopped has no backward. "
            "Leave one of them out."
        )
    if spill is not None and limit is None:
        raise InvalidArgument("record(spill=...) needs limit=...: the size at which spilling begins.")
    backend = resolve(model)
    for feature, wanted in {"record": True, "grads": grads, "stop": stop, "save": spill is not None}.items():
        if wanted:
            backend.framework.need(feature)
    tree = ModuleTree(backend.named_modules(model))
    targets = select(tree, where)
    budget = None if limit is None else Budget(parse_bytes(limit), spill, backend.name)
    store = Store(backend, device=backend.device(device), dtype=backend.dtype(dtype), reduce=reduce, budget=budget)
    keeping = None if to is None else RecordingTarget(to)
    recorder = Recorder(backend, tree, targets, store, keeping, inputs=inputs, grads=grads, stop=stop)
    if ops is not False:
        recorder._record_ops(model, Chosen(backend, ops))
    return recorder.made_by("hookline.record")
