"""Text: a summary as plain text for a pipe, and as a rich table for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from hookline.summaries.columns import COLUMNS, Line

if TYPE_CHECKING:
    from rich.table import Table

BLOCKS = " ▏▎▍▌▋▊▉█"
MAY_SHRINK = {"type", "input", "output", "dtype", "device", "note", "name"}
"""Columns of text, which a narrow terminal cuts, the name last. Numbers and their units are never cut."""
MAY_GO = ("note", "device", "dtype", "trainable", "type", "input", "output")
"""What is left out where that is not enough, the first one first; then columns of numbers, from the right."""
LEAST, LEAST_NAME, BAR, BETWEEN = 6, 12, 8, 3
"""Characters that a cut column keeps, those of a bar, and those between columns."""


def plain_table(columns: tuple[str, ...], lines: list[Line]) -> str:
    """The table in plain characters, as wide as it needs to be."""
    headings = [COLUMNS[name].heading for name in columns]
    cells = [headings, *(line.cells for line in lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    text = [_joined(row, widths, columns) for row in cells]
    return "\n".join([rule, text[0], rule, *text[1:], rule])


def _joined(row: list[str], widths: list[int], columns: tuple[str, ...]) -> str:
    placed = [
        cell.rjust(width) if COLUMNS[name].right else cell.ljust(width)
        for cell, width, name in zip(row, widths, columns, strict=True)
    ]
    return "  ".join(placed).rstrip()


def plain_footer(totals: dict[str, str]) -> str:
    """The totals, one a line."""
    width = max(map(len, totals))
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in totals.items())


def rich_table(columns: tuple[str, ...], lines: list[Line], width: int) -> Table:
    """The table for a terminal of that width: subtotals dim, the path before a name dim, bars for shares."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    layout = _layout(columns, lines, width)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name, wide in layout.widths.items():
        column = COLUMNS[name]
        table.add_column(
            column.heading,
            justify="right" if column.right else "left",
            no_wrap=True,
            width=wide,
            style={"type": "cyan", "note": "yellow"}.get(name),
        )
        if name == "share" and layout.bar:
            table.add_column("", no_wrap=True, width=BAR, style="green")
    for line in lines:
        texts = dict(zip(columns, line.cells, strict=True))
        cells: list[Any] = []
        for name, wide in layout.widths.items():
            if name == "name":
                cells.append(_name(texts[name], line, wide))
            else:
                cells.append(Text(texts[name], style="dim" if line.subtotal and COLUMNS[name].right else ""))
            if name == "share" and layout.bar:
                cells.append(_bar(texts[name]))
        table.add_row(*cells)
    return table


def left_out(columns: tuple[str, ...], lines: list[Line], width: int) -> list[str]:
    """The columns that a terminal of that width has no room for."""
    there = _layout(columns, lines, width).widths
    return [name for name in columns if name not in there]


class _Layout(NamedTuple):
    """How wide each column is that is shown, and whether the bar is."""

    widths: dict[str, int]
    bar: bool

    @property
    def whole(self) -> int:
        return sum(self.widths.values()) + BETWEEN * len(self.widths) + (BAR + BETWEEN if self.bar else 0)


def _layout(columns: tuple[str, ...], lines: list[Line], width: int) -> _Layout:
    """What fits: the bar goes first, then text is cut (the longest, names last), then columns are left out."""
    from rich.cells import cell_len

    cells = zip(*(line.cells for line in lines), strict=True)
    wanted = {
        name: max(cell_len(COLUMNS[name].heading), *map(cell_len, column))
        for name, column in zip(columns, cells, strict=True)
    }
    found = _Layout(dict(wanted), "share" in wanted)
    if found.whole > width:
        found = found._replace(bar=False)
    going = [name for name in MAY_GO if name in wanted]
    going += [name for name in reversed(columns) if name != "name" and name not in going]
    while not _cut(found, width) and going and len(wanted) > 1:
        wanted.pop(going.pop(0), None)
        found = _Layout(dict(wanted), bar=False)
    return found


def _cut(layout: _Layout, width: int) -> bool:
    """Cuts columns of text until the table fits; whether it does."""
    widths = layout.widths
    while layout.whole > width:
        least = {name: min(wide, LEAST_NAME if name == "name" else LEAST) for name, wide in widths.items()}
        longer = [name for name in widths if name in MAY_SHRINK and widths[name] > least[name]]
        if not longer:
            return False
        widths[max(longer, key=lambda name: (name != "name", widths[name]))] -= 1
    return True


def _name(cell: str, line: Line, width: int) -> Any:
    from rich.cells import cell_len
    from rich.text import Text

    if cell_len(cell) > width:  # the end tells more: layers of one block begin alike
        while cell_len(cell) >= width:
            cell = cell[1:]
        cell = f"…{cell}"
    above, dot, own = cell.rpartition(".")
    return Text.assemble(
        (above + dot, "dim"), (own, "bold" if line.subtotal else "italic" if not line.row.type else "")
    )


def _bar(share: str, width: int = BAR) -> str:
    """A bar for a share like `33.3 %`, in eighths of a character.

    >>> _bar("50.0 %").rstrip(), len(_bar("50.0 %"))
    ('████', 8)
    """
    eighths = round(float(share.rstrip(" %").lstrip("<") or 0) / 100 * width * 8)
    return ("█" * (eighths // 8) + BLOCKS[eighths % 8].strip()).ljust(width)


def rich_footer(totals: dict[str, str]) -> Table:
    """The totals beside their names."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for name, text in totals.items():
        grid.add_row(name, Text(text, style="yellow" if name in {"Not counted", "Note"} else ""))
    return grid
