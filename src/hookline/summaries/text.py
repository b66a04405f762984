"""Text: a summary as plain text for a pipe, and as a rich table for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline.summaries.columns import COLUMNS, Line

if TYPE_CHECKING:
    from rich.table import Table

BLOCKS = " ▏▎▍▌▋▊▉█"


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


def rich_table(columns: tuple[str, ...], lines: list[Line]) -> Table:
    """The table for a terminal: subtotals dim, what a name shares with the one above it dim, bars for shares."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(
            COLUMNS[name].heading,
            justify="right" if COLUMNS[name].right else "left",
            no_wrap=True,
            overflow="ellipsis" if name in {"input", "output", "note", "type"} else "fold",
            style={"type": "cyan", "note": "yellow"}.get(name),
        )
    for line in lines:
        cells: list[Any] = []
        for name, cell in zip(columns, line.cells, strict=True):
            if name == "name":
                cells.append(_name(cell, line))
            elif name == "share":
                cells.append(Text.assemble(cell, " ", (_bar(cell), "green")))
            else:
                cells.append(Text(cell, style="dim" if line.subtotal and COLUMNS[name].right else ""))
        table.add_row(*cells)
    return table


def _name(cell: str, line: Line) -> Any:
    from rich.text import Text

    above, dot, own = cell.rpartition(".")
    return Text.assemble(
        (above + dot, "dim"), (own, "bold" if line.subtotal else "italic" if not line.row.type else "")
    )


def _bar(share: str, width: int = 8) -> str:
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
