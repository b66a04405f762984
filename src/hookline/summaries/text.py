"""Text: a summary as plain text for a pipe, and as a rich table for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline.summaries.columns import COLUMNS, Line

if TYPE_CHECKING:
    from rich.table import Table

BLOCKS = " ▏▎▍▌▋▊▉█"
MAY_SHRINK = {"type", "input", "output", "note"}
LEAST, BAR = 6, 8
"""Characters that a shrunk column keeps, and those of a bar."""


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

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name, wide in _widths(columns, lines, width).items():
        column = COLUMNS[name]
        table.add_column(
            column.heading,
            justify="right" if column.right else "left",
            no_wrap=True,
            width=wide,
            style={"type": "cyan", "note": "yellow"}.get(name),
        )
        if name == "share":
            table.add_column("", no_wrap=True, width=BAR, style="green")
    for line in lines:
        cells: list[Any] = []
        for name, cell in zip(columns, line.cells, strict=True):
            if name == "name":
                cells.append(_name(cell, line))
            else:
                cells.append(Text(cell, style="dim" if line.subtotal and COLUMNS[name].right else ""))
            if name == "share":
                cells.append(_bar(cell))
        table.add_row(*cells)
    return table


def _widths(columns: tuple[str, ...], lines: list[Line], width: int) -> dict[str, int]:
    """How wide each column is: a narrow terminal cuts text, the longest first, and never a number or a name."""
    cells = zip(*(line.cells for line in lines), strict=True)
    widths = {
        name: max(len(COLUMNS[name].heading), *map(len, column))
        for name, column in zip(columns, cells, strict=True)
    }
    room = width - 3 * len(columns) - (BAR + 3 if "share" in columns else 0)
    shrinking = [name for name in columns if name in MAY_SHRINK]
    while sum(widths.values()) > room and shrinking:
        longest = max(shrinking, key=lambda name: widths[name])
        if widths[longest] <= LEAST:
            break
        widths[longest] -= 1
    return widths


def _name(cell: str, line: Line) -> Any:
    from rich.text import Text

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
