"""Drawing: calls and what feeds them, as an SVG; by graphviz's `dot` where it is installed, else our own."""

from __future__ import annotations

import shutil
import subprocess
from html import escape
from typing import NamedTuple

WIDE, HIGH, GAP, LANE = 330, 34, 22, 13
MOST_LANES = 24


class Node(NamedTuple):
    """A box: its number, two lines of text, and the numbers of the boxes that feed it."""

    number: int
    name: str
    type: str
    output: str
    fed_by: tuple[int, ...]


def drawn(nodes: list[Node], title: str) -> str:
    """The SVG of a graph."""
    dot = shutil.which("dot")
    if dot is not None:
        done = subprocess.run(
            [dot, "-Tsvg"], input=as_dot(nodes, title), capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return done.stdout
    return own_svg(nodes, title)


def as_dot(nodes: list[Node], title: str) -> str:
    """The graph in graphviz's language.

    >>> print(as_dot([Node(1, "conv", "Conv2d", "1x8", ()), Node(2, "act", "ReLU", "1x8", (1,))], "Net"))
    digraph "Net" {
      node [shape=box, style=rounded, fontname="monospace", fontsize=10];
      n1 [label="conv\\nConv2d 1x8"];
      n2 [label="act\\nReLU 1x8"];
      n1 -> n2;
    }
    """
    lines = [
        f"digraph {_quoted(title)} {{",
        '  node [shape=box, style=rounded, fontname="monospace", fontsize=10];',
    ]
    for node in nodes:
        label = _quoted(f"{node.name}\n{node.type} {node.output}").replace("\n", "\\n")
        lines.append(f"  n{node.number} [label={label}];")
    known = {node.number for node in nodes}
    lines += [f"  n{source} -> n{node.number};" for node in nodes for source in node.fed_by if source in known]
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def own_svg(nodes: list[Node], title: str) -> str:
    """One column in order of execution; what skips boxes runs along the right in lanes of its own."""
    place = {node.number: row for row, node in enumerate(nodes)}
    edges = [(place[source], place[node.number]) for node in nodes for source in node.fed_by if source in place]
    lanes = _lanes([edge for edge in edges if edge[1] - edge[0] > 1])
    width = WIDE + 20 + LANE * (max(lanes.values(), default=-1) + 2)
    height = len(nodes) * (HIGH + GAP) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" '
        'font-family="ui-monospace,monospace" font-size="11" fill="none" stroke="currentColor">',
        f"<title>Order of execution of {escape(title)}</title>",
        '<defs><marker id="hookline-arrow" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0,0 L6,3 L0,6 z" fill="currentColor" stroke="none"/></marker></defs>',
    ]
    parts += [_box(node, row) for row, node in enumerate(nodes)]
    parts += [_arrow(start, end, lanes.get((start, end))) for start, end in edges]
    return "\n".join([*parts, "</svg>"])


def _lanes(edges: list[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """A lane for each edge, so that no two in one lane overlap; short edges stay near the boxes.

    >>> _lanes([(0, 5), (1, 3), (5, 9)])
    {(1, 3): 0, (5, 9): 0, (0, 5): 1}
    """
    taken: list[list[tuple[int, int]]] = []
    lanes: dict[tuple[int, int], int] = {}
    for start, end in sorted(set(edges), key=lambda edge: (edge[1] - edge[0], edge)):
        fitting = (n for n, lane in enumerate(taken) if all(end <= a or start >= b for a, b in lane))
        number = next(fitting, len(taken))
        if number == len(taken):
            taken.append([])
        taken[number].append((start, end))
        lanes[start, end] = min(number, MOST_LANES)
    return lanes


def _box(node: Node, row: int) -> str:
    top = 5 + row * (HIGH + GAP)
    text = f"{node.type}  {node.output}"
    return (
        f'<g><rect x="5" y="{top}" width="{WIDE}" height="{HIGH}" rx="5" stroke-opacity=".6"/>'
        f'<g fill="currentColor" stroke="none"><text x="13" y="{top + 14}" font-weight="bold">'
        f"{escape(_cut(node.name))}</text>"
        f'<text x="13" y="{top + 28}" opacity=".75">{escape(_cut(text))}</text></g>'
        f"<title>{escape(node.name)} {escape(text)}</title></g>"
    )


def _cut(text: str, most: int = 46) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _arrow(start: int, end: int, lane: int | None) -> str:
    style = 'stroke-opacity=".7" marker-end="url(#hookline-arrow)"'
    below, above = 5 + start * (HIGH + GAP) + HIGH, 5 + end * (HIGH + GAP)
    if lane is None:
        return f'<path d="M{WIDE / 2:g},{below} V{above}" {style}/>'
    side, x = WIDE + 5, WIDE + 5 + (lane + 1) * LANE
    out, into = below - HIGH / 2, above + HIGH / 2
    away = f"M{side},{out:g} C{x},{out:g} {x},{out:g} {x},{out + 12:g}"
    back = f"V{into - 12:g} C{x},{into:g} {x},{into:g} {side},{into:g}"
    return f'<path d="{away} {back}" {style}/>'
