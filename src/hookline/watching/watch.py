"""watch: statistics of everything that flows while an unedited training loop runs.

Upstream: hooks (select, taps, sessions), lines (reduce), a backend (optimizer steps). Downstream: rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hookline.backends import resolve
from hookline.backends.nouns import Model
from hookline.errors import InvalidArgument
from hookline.hooks.ops import Chosen, Ops
from hookline.hooks.placing import renamed
from hookline.hooks.select import ModuleTree, select
from hookline.lines.registry import find
from hookline.schedule import Schedule, as_schedule
from hookline.sinks import Sink
from hookline.sinks.protocol import sinks_of
from hookline.watching.block import Watch
from hookline.watching.budget import parse_share
from hookline.watching.live import OnFinding, live
from hookline.watching.numbers import checked_config
from hookline.watching.paced import PacedWatch
from hookline.watching.steps import RowSpec
from hookline.watching.table import Table

HISTORY = 1000
"""So many steps stay in memory, unless told otherwise."""


def watch(
    model: Model,
    where: Any = "**",
    *,
    every: int | Schedule = 1,
    histogram: bool = True,
    inputs: bool = False,
    grads: bool = True,
    ops: Ops = False,
    params: bool | Callable[[], dict[str, Any]] | None = None,
    moments: bool = False,
    stats: Sequence[str] = (),
    channels: int | None = None,
    scaler: Any = None,
    history: int = HISTORY,
    to: str | Path | Sink | Sequence[str | Path | Sink] = (),
    resume: bool = False,
    progress: bool | None = None,
    modules: Iterable[tuple[str, Any]] | None = None,
    diagnose: bool | Mapping[str, Any] = False,
    on_finding: OnFinding = "warn",
    config: Mapping[str, Any] | None = None,
    keep: int | None = None,
    budget: str | float | None = None,
    fingerprint: bool = False,
) -> Watch:
    """A context manager that gives statistics of activations, gradients and parameters, step by step.

    A step is a step of the model's optimizer, which is found by itself; without one, each call of
    the model is a step. `every` chooses the steps: a number, or a function step -> bool. `ops` also watches
    the operators that run in the modules, all or those of a glob, as sites `layer1.0.conv1/convolution`
    with rows "output" and, in a backward, "grad". `stats` names
    more statistics of `hookline.lines.registry` ("p99", your own); `channels` is a dimension along
    which activations and their gradients are also reduced one by one. `scaler` is the GradScaler in
    use, if any: gradients of activations are then given unscaled. Memory has the last `history`
    steps (1000), sinks (`to`: the folder of a run, which `open_run` reads, one of `hookline.sinks`, your own, or
    several in a list) get all. A folder that holds a run is refused; with `resume` the run goes on after its last
    step, and "runs/a-*" gives each run the next number. `progress` shows a line with the step; by default in
    terminals only, while nobody else draws there. A block that is entered by `start()` lasts until `stop()`, or
    until the process ends.
    `params` are watched wherever the framework tells of its optimizers' steps; with `moments` also what Adam and
    its like keep for each of them, as rows "moment" and "moment_sq".
    Where a model keeps its parts in its own way, `modules` are the (name, module) pairs that `where`
    chooses from, and `params` may be a function that gives the parameters. `config` are settings that are kept in
    the run: texts and numbers, in dicts and lists. `keep` is the old name of `history`.
    With `diagnose` the rules of `hookline.diagnose` are asked while it runs, at growing intervals (a dict
    has `rules`, `ignore` and `baseline`). Each finding is told once, as `on_finding` says: "warn" warns; "raise"
    raises a FindingRaised for an error, where the step ends; "stop" ends the `with` block there, so that what
    follows it runs; a function is called with the Finding.
    With `budget="2%"` (or 0.02) hookline measures what it takes itself and records so few steps, of those that
    `every` chooses, that it stays below this share of the training's time; where steps would be too far apart,
    sites take turns. `w.budget` tells what it did.
    With `fingerprint` each row has one more column, `fingerprint`: 16 digits made of all bits of the tensor in
    their order, the same on every machine. `hookline.diff` tells by them where the bits of two runs part.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with watch(model, every=2) as w:
    ...     for _ in range(4):
    ...         optimizer.zero_grad()
    ...         model(torch.ones(5, 3)).sum().backward()
    ...         _ = optimizer.step()
    >>> sorted({row["step"] for row in w.rows()}), sorted({row["kind"] for row in w.rows()})
    ([0, 2], ['grad_output', 'output', 'param', 'param_grad', 'update'])
    >>> w.rows("1", kind="output")[0]["count"]
    20
    """
    if keep is not None:
        history = renamed("watch", "keep", keep, "history", history != HISTORY)
    backend = resolve(model)
    needed = {"watch": True, "watch_grads": grads, "watch_params": bool(params), "watch_moments": moments}
    for feature, wanted in needed.items():
        if wanted:
            backend.framework.need(feature)
    tree = ModuleTree(backend.named_modules(model) if modules is None else modules)
    for name in stats:
        find(name)
    kind = Watch if budget is None else partial(PacedWatch, parse_share(budget))
    return kind(
        backend,
        model,
        tree,
        select(tree, where),
        as_schedule(every),
        Table(history, sinks_of(to, resume=resume)),
        RowSpec(histogram, tuple(stats), channels, bool(fingerprint)),
        inputs=inputs,
        grads=grads,
        ops=None if ops is False else Chosen(backend, ops),
        params=backend.framework.can("watch_params") if params is None else params,
        moments=_checked_moments(moments, params),
        scaler=scaler,
        progress=progress,
        live=live(diagnose, on_finding),
        config=checked_config(config),
    ).made_by("hookline.watch")


def _checked_moments(moments: bool, params: Any) -> bool:
    if moments and params is False:
        raise InvalidArgument("moments=True needs parameters, and params=False watches none. Leave params out.")
    return moments
