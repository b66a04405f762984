"""HTML: a summary for a notebook, readable on light and dark pages."""

from __future__ import annotations

from html import escape

from hookline.summaries.columns import COLUMNS, Line

# Colours are those of the page (currentColor and shades of it): a notebook may be light or dark.
STYLE = """
.hookline-summary{font:13px/1.35 ui-monospace,SFMono-Regular,Menlo,monospace;border-collapse:collapse}
.hookline-summary th,.hookline-summary td{padding:1px 10px 1px 0!important;text-align:left!important}
.hookline-summary td{white-space:nowrap}
.hookline-summary th{border-bottom:1px solid currentColor}
.hookline-summary .right{text-align:right!important}
.hookline-summary .above,.hookline-summary .subtotal .right{opacity:.55}
.hookline-summary .subtotal .own{font-weight:bold}
.hookline-summary .note{opacity:.75;font-style:italic}
.hookline-summary .bar{display:inline-block;height:.7em;background:#2a9d8f;vertical-align:baseline}
.hookline-summary .track{display:inline-block;width:60px;margin-left:6px;text-align:left}
.hookline-summary tfoot td{white-space:normal}
.hookline-summary tfoot tr:first-child td{border-top:1px solid currentColor}
"""


def html_table(columns: tuple[str, ...], lines: list[Line], totals: dict[str, str], title: str) -> str:
    """A table of its own, with its style; nothing is loaded from anywhere."""
    heads = "".join(f'<th class="{_side(name)}" scope="col">{COLUMNS[name].heading}</th>' for name in columns)
    rows = "".join(_row(columns, line) for line in lines)
    foot = "".join(
        f'<tr><td><b>{escape(name)}</b></td><td colspan="{len(columns) - 1}">{escape(text)}</td></tr>'
        for name, text in totals.items()
    )
    return (
        f'<style>{STYLE}</style><table class="hookline-summary" aria-label="Summary of {escape(title)}">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody><tfoot>{foot}</tfoot></table>"
    )


def _row(columns: tuple[str, ...], line: Line) -> str:
    cells = "".join(_cell(name, cell) for name, cell in zip(columns, line.cells, strict=True))
    return f'<tr class="subtotal">{cells}</tr>' if line.subtotal else f"<tr>{cells}</tr>"


def _cell(name: str, cell: str) -> str:
    text = escape(cell)
    if name == "name":
        above, dot, own = text.rpartition(".")
        text = f'<span class="above">{above}{dot}</span><span class="own">{own}</span>'
    elif name == "share":
        width = float(cell.rstrip(" %").lstrip("<") or 0) * 0.6
        bar = f'<span class="bar" style="width:{width:.1f}px"></span>' if cell else ""
        text += f'<span class="track">{bar}</span>'
    return f'<td class="{"note" if name == "note" else _side(name)}">{text}</td>'


def _side(name: str) -> str:
    return "right" if COLUMNS[name].right else "left"
