"""Console: the latest step as a table in the terminal, from time to time."""

from __future__ import annotations

import time
from typing import Any

from hookline.rows import Row
from hookline.site import label_of

COLUMNS = ("mean", "std", "min", "max", "near_zero")


class Console:
    """A sink that prints the rows of one kind every so many `seconds`, and those of the last step at the end."""

    def __init__(self, kind: str = "output", *, seconds: float = 10.0, file: Any = None) -> None:
        self._kind, self._seconds = kind, seconds
        self._file = file
        self._printed = float("-inf")
        self._waiting: list[Row] = []

    def write(self, rows: list[Row]) -> None:
        """Prints the step if it is time, else remembers it."""
        mine = [row for row in rows if row["kind"] == self._kind]
        self._waiting = mine or self._waiting  # a step may have nothing but numbers that were logged
        if mine and time.monotonic() - self._printed >= self._seconds:
            self._print()

    def close(self) -> None:
        """Prints the last step if it was not yet."""
        if self._waiting:
            self._print()

    def _print(self) -> None:
        # Here, since whoever imports hookline.sinks need not want a terminal.
        from rich.console import Console as Screen
        from rich.table import Table
        from rich.text import Text

        rows, self._waiting = self._waiting, []
        table = Table(title=f"{self._kind}, step {rows[-1]['step']:,}", title_justify="left")
        table.add_column("site")
        for name in (*COLUMNS, "nan, inf"):
            table.add_column(name, justify="right")
        for row in rows:
            bad = row["nan"] + row["inf"]
            numbers = [f"{row[name]:.1%}" if name == "near_zero" else f"{row[name]:.4g}" for name in COLUMNS]
            site = Text(label_of(row))  # no markup, whatever is in it
            table.add_row(site, *numbers, f"{bad:,}" if bad else "", style="red" if bad else "")
        Screen(file=self._file).print(table)
        self._printed = time.monotonic()
