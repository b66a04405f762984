"""watch: statistics of everything that flows while an unedited training loop runs.

Upstream: hooks (select, taps, sessions), lines (reduce), a backend (optimizer steps). Downstream: rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Any

from hookline.backends import resolve
from hookline.backends.protocol import Backend, FunctionTap, Label, Rank, Wish
from hookline.errors import InvalidArgument
from hookline.hooks.handles import Handle, all_or_nothing
from hookline.hooks.placing import callers_line
from hookline.hooks.select import Place, Tree, select
from hookline.hooks.session import Session
from hookline.lines import Stats, reduce
from hookline.schedule import Schedule, as_schedule
from hookline.watching.steps import Gathered, Key
from hookline.watching.table import Row, Sink, Table
from hookline.watching.taps import FullWatcher, OutputWatcher
from hookline.watching.weights import Weights, parameters_of

BY_HAND = -1
"""Stands for the identity of an optimizer that torch knows nothing of."""


def watch(
    model: Any,
    where: Any = "**",
    *,
    every: int | Schedule = 1,
    histogram: bool = True,
    inputs: bool = False,
    grads: bool = True,
    params: bool | Callable[[], dict[str, Any]] = True,
    stats: dict[str, Callable[[Stats], float]] | None = None,
    scaler: Any = None,
    keep: int = 1000,
    to: Sink | Sequence[Sink] = (),
    modules: Iterable[tuple[str, Any]] | None = None,
) -> Watch:
    """A context manager that gives statistics of activations, gradients and parameters, step by step.

    A step is a step of the model's optimizer, which is found by itself; without one, each call of
    the model is a step. `every` chooses the steps: a number, or a function step -> bool. `stats`
    adds columns: functions of the Stats of a row. `scaler` is the GradScaler in use, if any:
    gradients of activations are then given unscaled. Memory keeps the last `keep` steps, sinks
    (`to`) get all. Where a model keeps its parts in its own way, `modules` are the (name, module) pairs
    that `where` chooses from, and `params` may be a function that gives the parameters by name.

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
    backend = resolve(model)
    tree = Tree(backend.named_modules(model) if modules is None else modules)
    sinks: list[Any] = list(to) if isinstance(to, (list, tuple)) else [to]
    if wrong := [sink for sink in sinks if not hasattr(sink, "write") or not hasattr(sink, "close")]:
        raise InvalidArgument(f"to={wrong[0]!r} is no sink: an object with write(rows) and close() is wanted.")
    return Watch(
        backend,
        model,
        select(tree, where),
        as_schedule(every),
        Table(keep, sinks),
        histogram=histogram,
        inputs=inputs,
        grads=grads,
        params=params,
        derived=stats or {},
        scaler=scaler,
    )


class Watch:
    """An open or finished `watch` block; `rows` has what was seen."""

    def __init__(
        self,
        backend: Backend,
        model: Any,
        places: list[Place],
        schedule: Schedule,
        table: Table,
        *,
        histogram: bool,
        inputs: bool,
        grads: bool,
        params: bool | Callable[[], dict[str, Any]],
        derived: dict[str, Callable[[Stats], float]],
        scaler: Any,
    ) -> None:
        self.backend = backend
        self.session = Session()
        self.grads = grads
        self.is_open = False
        self.now = 0
        self._mode = "train"
        self._model, self._places = model, places
        self._schedule, self._table = schedule, table
        self._histogram, self._inputs, self._derived, self._scaler = histogram, inputs, derived, scaler
        self._gathered = Gathered()
        named = params if callable(params) else partial(parameters_of, backend, places)
        self._weights = Weights(backend, named, self.gather) if params else None
        self._attached = ExitStack()
        self._taps: Handle | None = None
        self._watchers: list[OutputWatcher] = []
        self._clock: int | None = None
        self._scale: float | None = None
        self._depth = 0

    # Reading

    def rows(self, site: str | None = None, kind: str | None = None, step: int | None = None) -> list[Row]:
        """The rows in memory: dicts with site, kind, step, call, rank, mode and the statistics."""
        return self._table.rows(site, kind, step)

    def step(self, number: int) -> None:
        """Ends the step under way and sets the number of the next one by hand."""
        self._end_step(number)

    def plot(self, site: str | None = None, kind: str = "output") -> Any:
        """The Figure with mean, std and near-zero curves and colourful dimensions of the chosen sites."""
        from hookline.plots import overview

        return overview(self.rows(), site, kind)

    # What a trainer tells that steps or calls its model in a way of its own

    def steps_by_hand(self) -> None:
        """From now on steps are what `before_step` and `after_step` tell, and no torch optimizer is heard."""
        self._clock = BY_HAND

    def before_step(self, gradients: Mapping[int, Any] | None = None) -> None:
        """The optimizer is about to step; `gradients` by the id of their parameters, if not in `.grad`."""
        self._before_step(BY_HAND, gradients)

    def after_step(self) -> None:
        """The optimizer has stepped: the step ends and the next one begins."""
        self._after_step(BY_HAND)

    def new_forward(self) -> None:
        """Another forward begins: calls are counted from 0 again. Needed where the model itself is not called."""
        self._depth = 0
        for watcher in self._watchers:
            watcher.calls = 0

    @property
    def mode(self) -> str:
        """Whether the forward under way is one of training ("train") or not ("eval")."""
        if not self._depth:  # a part is called without the model, as Lightning's training_step does
            self._mode = "train" if self.backend.is_training(self._model) else "eval"
        return self._mode

    # The block

    def __enter__(self) -> Watch:
        if self.is_open or self._attached is None:
            raise InvalidArgument("this watch block is open already; call watch(...) again.")
        line = callers_line()
        kind = FullWatcher if self._inputs else OutputWatcher
        self._watchers = [
            kind(self, place, Label("watch", "watching", place.name, line)) for place in self._places
        ]
        around = [
            FunctionTap(self._forward_begins, Label("watch", "call count", "", line), after=False, kwargs=False),
            FunctionTap(self._forward_ends, Label("watch", "call count", "", line), kwargs=False, rank=Rank.STOP),
        ]
        handle = all_or_nothing(
            [
                partial(self.backend.place, [Wish(self._model, tap) for tap in around]),
                partial(self.backend.hear_steps, self._model, self._before_step, self._after_step),
            ]
        )
        self._attached.enter_context(handle)
        self.is_open = True
        self.session.open()
        self._switch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.session.close()
        self._attached.close()
        self.is_open = False
        self._end_step(self.now)  # what came after the last optimizer step, validation say
        self._table.close()
        self._watchers = []

    # What happens in a step

    def gather(self, key: Key, tensor: Any) -> None:
        self._gathered.add(key, reduce(tensor, histogram=self._histogram))

    def unscaled(self, grad: Any) -> Any:
        """A gradient without the factor of the GradScaler."""
        if self._scaler is None:
            return grad
        if self._scale is None:
            self._scale = float(self._scaler.get_scale())  # once a step: it waits for the device
        return grad / self._scale

    def _forward_begins(self, module: Any, args: Any) -> None:
        if self.backend.in_recompute():
            return
        self._depth += 1
        if self._depth == 1:
            self._mode = "train" if self.backend.is_training(self._model) else "eval"
            for watcher in self._watchers:
                watcher.calls = 0

    def _forward_ends(self, module: Any, args: Any, output: Any) -> None:
        if self.backend.in_recompute():
            return
        self._depth = 0
        if self._clock is None and not self.backend.needs_gradient(output):
            # Nobody trains: each call of the model is a step.
            self._end_step(self.now + 1)

    def _before_step(self, optimizer: int, gradients: Mapping[int, Any] | None = None) -> None:
        self._clock = self._clock or optimizer
        if self._taps is not None and self._weights is not None and optimizer == self._clock:
            self._guarded(partial(self._weights.before_step, gradients))

    def _after_step(self, optimizer: int) -> None:
        if optimizer != self._clock:
            return  # of several optimizers, the first one seen is the clock
        if self._taps is not None and self._weights is not None:
            self._guarded(partial(self._weights.after_step, self._gathered))
        self._end_step(self.now + 1)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # training goes on, whatever it is
            self._weights = None
            warnings.warn(f"watching parameters failed and stops: {type(error).__name__}: {error}", stacklevel=2)

    def _end_step(self, next_step: int) -> None:
        if self._gathered:
            self._table.add(self._gathered.rows(self.now, self.backend.rank(), self._derived))
        self.now = next_step
        self._scale = None
        self.new_forward()
        self._switch()

    def _switch(self) -> None:
        """Puts the taps on for a step that is recorded and takes them off for one that is not."""
        wanted = self.is_open and self._schedule(self.now)
        if wanted and self._taps is None:
            wishes = [wish for watcher in self._watchers for wish in watcher.wishes()]
            self._taps = all_or_nothing([partial(self.backend.place, wishes)])
        elif not wanted:
            self._off()

    def _off(self) -> None:
        if self._taps is not None:
            self._taps.remove()
            self._taps = None
