"""Columns: what a summary can show of a row, by name.

To add one, add an entry to COLUMNS.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from hookline.errors import InvalidArgument
from hookline.summaries.numbers import arguments, in_bytes, percent, scaled, shapes
from hookline.summaries.tree import Cost, Row

WIDEST = 44
"""A cell of text that is longer is cut, with an ellipsis; `to_dict` has it whole."""


class Column(NamedTuple):
    """A column: its heading, how a cell is made from (row, cost to show, total), and its alignment."""

    heading: str
    cell: Callable[[Row, Cost, Cost], str]
    right: bool = False


def _name(row: Row, cost: Cost, total: Cost) -> str:
    return row.name or "(model)"


def _input(row: Row, cost: Cost, total: Cost) -> str:
    return _short(arguments(row.input, row.kwargs)) if row.call else ""


def _output(row: Row, cost: Cost, total: Cost) -> str:
    return _short(shapes(row.output)) if row.returned else ""


def _trainable(row: Row, cost: Cost, total: Cost) -> str:
    if not cost.params:
        return ""
    return {0: "no", cost.params: "yes"}.get(cost.trainable_params, "in part")


def _share(row: Row, cost: Cost, total: Cost) -> str:
    # Of the compute, where there is any; a table of parameters alone has shares of those.
    return percent(cost.macs, total.macs) if total.macs else percent(cost.params, total.params)


def _some(number: int, text: str) -> str:
    return text if number else ""


COLUMNS: dict[str, Column] = {
    "name": Column("Name", _name),
    "type": Column("Type", lambda row, cost, total: row.type),
    "input": Column("Input", _input),
    "output": Column("Output", _output),
    "params": Column("Params", lambda row, cost, total: _some(cost.params, f"{cost.params:,}"), True),
    "trainable": Column("Trainable", _trainable),
    "dtype": Column("Dtype", lambda row, cost, total: ", ".join(row.dtypes)),
    "device": Column("Device", lambda row, cost, total: ", ".join(row.devices)),
    "macs": Column("MACs", lambda row, cost, total: _some(cost.macs, scaled(cost.macs)), True),
    "flops": Column("FLOPs", lambda row, cost, total: _some(cost.macs, scaled(2 * cost.macs)), True),
    "activation_bytes": Column(
        "Activations", lambda row, cost, total: _some(cost.activation_bytes, in_bytes(cost.activation_bytes)), True
    ),
    "saved_bytes": Column(
        "Kept for backward", lambda row, cost, total: _some(cost.saved_bytes, in_bytes(cost.saved_bytes)), True
    ),
    "param_bytes": Column(
        "Param bytes", lambda row, cost, total: _some(cost.param_bytes, in_bytes(cost.param_bytes)), True
    ),
    "share": Column("Share", _share, True),
    "note": Column("", lambda row, cost, total: row.note),
}

WITHOUT_RUN = ("name", "type", "params", "param_bytes", "share", "note")
WITHOUT_COSTS = ("name", "type", "output", "params", "share", "note")
DEFAULT = ("name", "type", "output", "params", "macs", "share", "note")
COSTS = {"macs", "flops", "activation_bytes", "saved_bytes"}
"""Columns of what a run costs."""


def chosen(columns: Iterable[str] | str) -> tuple[str, ...]:
    """The names of the columns to show; InvalidArgument where one does not exist.

    >>> chosen("name,params")
    ('name', 'params')
    """
    names = tuple(part.strip() for part in columns.split(",")) if isinstance(columns, str) else tuple(columns)
    for name in names:
        if name not in COLUMNS:
            near = difflib.get_close_matches(str(name), COLUMNS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise InvalidArgument(f"no column is called {name!r}.{hint} There are {', '.join(COLUMNS)}.")
    if not names:
        raise InvalidArgument(f"columns={columns!r} names no column. There are {', '.join(COLUMNS)}.")
    return names


class Line(NamedTuple):
    """A line of the table: the cells as text, the row it is of, and whether it sums up lines below it."""

    cells: list[str]
    row: Row
    subtotal: bool
    cost: Cost


def lines_of(root: Row, columns: tuple[str, ...]) -> list[Line]:
    """The lines of a table. Those that are not subtotals add up to the totals, in every column.

    A row with rows below it shows the sum of all; what it costs itself has a line of its own, where
    one of the columns shows it.
    """
    total = root.whole
    lines: list[Line] = []
    for row in root.walk():
        lines.append(_line(row, row.whole, total, columns, subtotal=bool(row.children)))
        if row.children and row.own != Cost():
            itself = Row(f"{row.name or '(model)'} itself", "", row.depth + 1, own=row.own, whole=row.own)
            line = _line(itself, row.own, total, columns, subtotal=False)
            if any(cell for name, cell in zip(columns, line.cells, strict=True) if COLUMNS[name].right):
                lines.append(line)
    return lines


def _line(row: Row, cost: Cost, total: Cost, columns: tuple[str, ...], *, subtotal: bool) -> Line:
    return Line([COLUMNS[name].cell(row, cost, total) for name in columns], row, subtotal, cost)


def _short(text: str) -> str:
    return text if len(text) <= WIDEST else text[: WIDEST - 3] + "..."


def shown(columns: tuple[str, ...], lines: list[Line]) -> tuple[tuple[str, ...], list[Line]]:
    """Without the notes where there are none."""
    if columns[-1] != "note" or any(line.cells[-1] for line in lines):
        return columns, lines
    return columns[:-1], [Line(line.cells[:-1], *line[1:]) for line in lines]
