"""summary: how big a model is, what it costs, and where.

Upstream: a backend's facts of one run. Downstream: a terminal, a notebook, a table, the command line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import StringIO
from typing import Any

from hookline.backends import resolve
from hookline.backends.facts import RunFacts
from hookline.backends.nouns import Model
from hookline.backends.protocol import Backend
from hookline.backends.undoing import Undoing, tidied
from hookline.errors import ForwardError, InvalidArgument
from hookline.hooks.session import Session
from hookline.optional import need
from hookline.summaries.columns import COSTS, DEFAULT, WITHOUT_COSTS, WITHOUT_RUN, Line, chosen, lines_of, shown
from hookline.summaries.html import html_table
from hookline.summaries.inputs import Inputs, of_learner, prepare
from hookline.summaries.memory import TrainingMemory, estimate
from hookline.summaries.numbers import arguments, in_bytes, in_units, plain
from hookline.summaries.text import left_out, plain_footer, plain_table, rich_footer, rich_table
from hookline.summaries.tree import Row, tree_of

ONE_SCREEN = 40
"""Rows that a summary shows at most where no depth is asked for."""
NARROWEST = 24
"""Characters in a line of a terminal that are reckoned with at least."""


def summary(
    model: Model,
    *inputs: Any,
    depth: int | None = None,
    columns: Iterable[str] | str | None = None,
    dtype: Any = None,
    real: bool = False,
    **kwargs: Any,
) -> Summary:
    """A Summary of `model` for these inputs: shapes, tensors or structures of them, as the model is called.

    `(1, 3, 224, 224)` is a shape, of the model's own dtype or of `dtype` (one, or a list with one for
    each). Without inputs it has the parameters alone. Nothing is computed, unless `real`, and the
    model is left as it was. A fastai Learner brings its own batch.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.ReLU(), torch.nn.Linear(20, 5))
    >>> found = summary(model, (4, 10))
    >>> found.total_params, found.total_macs
    (325, 1200)
    """
    if (learner := of_learner(model)) is not None:
        model, batch = learner
        inputs = inputs or batch
    backend = resolve(model)
    backend.framework.need("summary")
    if depth is not None and (type(depth) is not int or depth < 0):
        raise InvalidArgument(f"depth={depth!r} is no depth; 0 shows the model alone, None what fits a screen.")
    shown_columns = None if columns is None else chosen(columns)
    if shown_columns is not None and not COSTS.isdisjoint(shown_columns):
        backend.framework.need("costs")
    if not inputs and not kwargs:
        return Summary(tree_of(backend.modules_of(model), None), None, depth, shown_columns)
    facts = run(backend, model, prepare(backend, model, inputs, kwargs, dtype), retry=dtype is None, real=real)
    if facts.error is not None:
        raise failed(facts, shown_columns) from facts.error
    return Summary(tree_of(facts.modules, facts.calls), facts, depth, shown_columns)


@tidied
def _traced_alone(undoing: Undoing, traced: Callable[[], RunFacts]) -> RunFacts:
    Session().open_alone(undoing)  # a recording that is open on this model has nothing to do with it
    return traced()


def run(
    backend: Backend, model: Model, inputs: Inputs, *, retry: bool = False, real: bool = False, flow: bool = False
) -> RunFacts:
    """The facts of one run. With `retry`, shapes that fail in a table of ids are tried as integers."""
    facts = _traced_alone(partial(backend.traced_run, model, inputs.args, inputs.kwargs, real=real, flow=flow))
    if facts.error is None or not (retry and inputs.shapes and _wants_integers(facts)):
        return facts
    ids = backend.integers(inputs.args), backend.integers(inputs.kwargs)
    again = run(backend, model, Inputs(*ids, shapes=False), real=real, flow=flow)
    if again.error is None:
        again.notes.append(
            "the shapes were taken for int64, since the model looks them up in a table; dtype= says which"
        )
        return again
    return facts


def _wants_integers(facts: RunFacts) -> bool:
    failed = facts.calls[facts.failed_in] if facts.failed_in is not None else None
    kinds = {module.name: module.type for module in facts.modules}
    return failed is not None and "Embed" in kinds[failed.module]


class Summary:
    """What a model is: rows in order of execution, and totals. Prints itself; see `to_dict`."""

    def __init__(
        self, root: Row, facts: RunFacts | None, depth: int | None, columns: tuple[str, ...] | None
    ) -> None:
        # What all below is told of: the rows as a tree, and the run that they come from.
        self.root = root if depth is None else root.cut(depth)
        self.facts = facts
        self._depth = depth
        self._counted = facts if facts is not None and facts.no_costs is None else None
        self.columns = columns or (WITHOUT_RUN if facts is None else DEFAULT if self._counted else WITHOUT_COSTS)
        self.notes: list[str] = [] if facts is None else facts.notes

    # Totals

    @property
    def total_params(self) -> int:
        """Parameters, each once."""
        return self.root.whole.params

    @property
    def trainable_params(self) -> int:
        """Parameters that need a gradient."""
        return self.root.whole.trainable_params

    @property
    def param_bytes(self) -> int:
        """Bytes of all parameters."""
        return self.root.whole.param_bytes

    @property
    def total_macs(self) -> int | None:
        """Multiply-accumulates of one forward; None where they were not counted."""
        return None if self._counted is None else self.root.whole.macs

    @property
    def activation_bytes(self) -> int | None:
        """Bytes of what modules put out in memory of its own; None where they were not counted."""
        return None if self._counted is None else self.root.whole.activation_bytes

    @property
    def unknown_ops(self) -> dict[str, int]:
        """Operations whose cost nobody knows, and how often they ran; not in `total_macs`."""
        found: dict[str, int] = {}
        for call in [] if self.facts is None else self.facts.calls:
            for name, count in call.unknown_ops.items():
                found[name] = found.get(name, 0) + count
        return found

    def training_memory(self, optimizer: str = "Adam") -> TrainingMemory:
        """What one training step holds in memory, for this input and these modes."""
        if self.facts is None:
            raise InvalidArgument("the memory of training depends on the input: give summary one.")
        if self.facts.no_costs is not None:
            raise self.facts.no_costs
        return estimate(self.root.whole, optimizer)

    # As data

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A dict for each row. Numbers are its own and add up to the totals; `*_below` include all below it."""
        return [self._row(row) for row in self.root.walk()]

    def _row(self, row: Row) -> dict[str, Any]:
        ran = self._counted is not None
        trainable = None if not row.whole.params else row.whole.trainable_params == row.whole.params
        return {
            "name": row.name,
            "type": row.type,
            "depth": row.depth,
            "call": row.call,
            "input": plain(row.input),
            "kwargs": plain(row.kwargs),
            "output": plain(row.output),
            "params": row.own.params,
            "trainable_params": row.own.trainable_params,
            "param_bytes": row.own.param_bytes,
            "macs": row.own.macs if ran else None,
            "flops": 2 * row.own.macs if ran else None,
            "activation_bytes": row.own.activation_bytes if ran else None,
            "saved_bytes": row.own.saved_bytes if ran else None,
            "params_below": row.whole.params,
            "macs_below": row.whole.macs if ran else None,
            "trainable": trainable,
            "dtype": ", ".join(row.dtypes) or None,
            "device": ", ".join(row.devices) or None,
            "note": row.note,
        }

    def to_dict(self) -> dict[str, Any]:
        """Rows and totals in plain Python values, ready for JSON."""
        return {
            "rows": self.rows,
            "total_params": self.total_params,
            "trainable_params": self.trainable_params,
            "total_macs": self.total_macs,
            "param_bytes": self.param_bytes,
            "activation_bytes": self.activation_bytes,
            "unknown_ops": self.unknown_ops,
        }

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame; its columns add up to the totals."""
        pandas = need("pandas", "'hookline[pandas]'", "Summary.to_pandas")
        return pandas.DataFrame(self.rows)

    # As a picture

    def _table(self) -> tuple[tuple[str, ...], list[Line]]:
        root, depth = self.root, self._depth
        if depth is None:
            root = root.cut(self._fitting())
        return shown(self.columns, lines_of(root, self.columns))

    def _fitting(self) -> int:
        """The greatest depth whose rows fit a screen; 1 where none does."""
        deepest = max(row.depth for row in self.root.walk())
        counts = [0] * (deepest + 1)
        for row in self.root.walk():
            counts[row.depth] += 1
        fits = [depth for depth in range(1, deepest + 1) if sum(counts[: depth + 1]) <= ONE_SCREEN]
        return max(fits, default=1)

    def _totals(self) -> dict[str, str]:
        total = self.root.whole
        trained = "all" if total.trainable_params == total.params else f"{total.trainable_params:,}"
        totals = {"Parameters": f"{total.params:,} ({trained} trainable), {in_bytes(total.param_bytes)}"}
        if self.facts is not None:
            first = self.facts.calls[0]
            mode = "training" if self.facts.training else "eval"
            given = arguments(first.input, first.kwargs)
            if self._counted is None:
                totals["Input"] = given
            else:
                compute = f"{in_units(total.macs, 'MACs')} = {in_units(2 * total.macs, 'FLOPs')}"
                totals["Compute"] = f"{compute} for {given} in {mode} mode"
                totals["Activations"] = f"{in_bytes(total.activation_bytes)} put out by modules"
                if self.facts.error is None:
                    totals["Training"] = str(self.training_memory())
        if unknown := self.unknown_ops:
            totals["Not counted"] = ", ".join(f"{name} ({count} x)" for name, count in unknown.items())
        if self._depth is None:
            deepest, fitting = max(row.depth for row in self.root.walk()), self._fitting()
            if fitting < deepest:
                totals["Shown"] = f"depth {fitting} of {deepest}; depth={deepest} shows all"
        if self.notes:
            totals["Note"] = "; ".join(self.notes)
        return totals

    def __str__(self) -> str:
        plain = sys.stdout is None or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb"
        return self.to_text() if plain else self._in_colour()

    def to_text(self) -> str:
        """The table in plain characters, as it goes into a pipe or a log."""
        return f"{plain_table(*self._table())}\n{plain_footer(self._totals())}"

    def _in_colour(self) -> str:
        from rich.console import Console

        out = StringIO()
        Console(file=out, force_terminal=True, width=_terminal_width()).print(self)
        return out.getvalue().rstrip("\n")

    __repr__ = __str__

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        columns, lines = self._table()
        totals = self._totals()
        if gone := left_out(columns, lines, options.max_width):
            totals["Left out"] = (
                f"{', '.join(gone)}: lines of {options.max_width} characters have no room for them"
            )
        yield rich_table(columns, lines, options.max_width)
        yield rich_footer(totals)

    def _repr_html_(self) -> str:
        return html_table(*self._table(), self._totals(), self.root.type)


def _terminal_width() -> int:
    import shutil

    return max(shutil.get_terminal_size((120, 40)).columns, NARROWEST)


def failed(facts: RunFacts, columns: tuple[str, ...] | None = None) -> ForwardError:
    """The error for a run that ended early: where, with what, and what was seen up to there."""
    assert facts.error is not None
    kinds = {module.name: module.type for module in facts.modules}
    if facts.failed_in is None:
        return ForwardError("", kinds[""], "", facts.error)
    call = facts.calls[facts.failed_in]
    partial = Summary(tree_of(facts.modules, facts.calls), facts, None, columns)
    shown_part = f"The summary up to there:\n{partial.to_text()}"
    error = ForwardError(
        call.name, kinds[call.module], arguments(call.input, call.kwargs), facts.error, shown_part
    )
    error.summary = partial
    return error
