"""Peers' page: what was found of hookline and other tools, as Markdown and as a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.harness import Line
from bench.peers import MODELS, Comparison, Found
from bench.report import facts, markdown_table, sentence
from bench.tools import TOOLS

OURS = "hookline"
LEAST = 0.9
"""Where the axes of ratios, which are logarithmic, begin."""
COLORS = {True: "#00796b", False: "#b0bec5"}
WORKS = {
    "Statistics of all outputs": (
        ("statistics, three or more", "ResNet-50"),
        ("statistics, with a histogram", "ResNet-50"),
        ("statistics, three or more", "1000 tiny modules"),
        ("statistics, with a histogram", "1000 tiny modules"),
    ),
    "A training step that is watched, and a summary": (("training", "ResNet-50"), ("summary", "ResNet-50")),
}
HEAD = """# Beside other tools

The same work with hookline and with other tools, written by `make bench-peers`. A ratio is the processor time with
the tool to that without it, the median of rounds (and its quartiles), measured side by side in one process; each
tool has a process of its own. Attaching and detaching are in the time.

After the first step that `wandb.watch` has seen, every step in that process takes more than twice as long, of any
model, and so does the plain one that its ratio is to. bench/RESULTS.md has it beside a step of another process.
"""
RECORDING = """## Recording the output of every leaf module

*Wrong* counts values of ResNet-50 that differ from copies taken at the moment of each call (its ReLUs work in
place), *not kept* earlier calls of a module that is called several times. *Peak* is by how much the process grows
in the first recording of ResNet-50. *After an exception* says what is left on a model whose forward raised.
*Compiled* is a model of four layers that was compiled (`aot_eager`) and run before it was recorded.
"""


def write(comparison: Comparison, page: Path, plot: Path) -> None:
    """Writes both files."""
    draw(comparison.found, plot)
    page.write_text(as_page(comparison, plot.name))


def as_page(comparison: Comparison, plot: str) -> str:
    """The page as Markdown."""
    found = comparison.found
    known = [*facts([tool.package for tool in TOOLS.values()], clock=False), sentence(comparison.load)]
    parts = [HEAD, *(f"- {fact}" for fact in known), "", f"![ratios of recording, by tool]({plot})", ""]
    parts += [RECORDING, _recording(found), ""]
    for title, columns in WORKS.items():
        parts += [f"## {title}\n", _timings(found, columns), ""]
    parts += ["## Import in a new process\n", _imports(comparison.imports), ""]
    parts += ["## Where others are faster or smaller\n", *(better(comparison) or ["- Nowhere in this run."]), ""]
    parts += [
        "## What was called\n",
        *(f"- {tool.name}: {tool.note}." for tool in TOOLS.values() if tool.note),
        "",
    ]
    return "\n".join(parts)


def better(comparison: Comparison) -> list[str]:
    """Where a tool took less than hookline, a line for each kind of work."""
    found = comparison.found
    ours = next(one for one in found if one.tool == OURS)
    told = []
    for (work, subject), mine in ours.lines.items():
        faster = [
            f"{one.tool} {line.ratio}"
            for one in found
            if (line := one.lines.get((work, subject))) is not None and _ratio(line) < _ratio(mine)
        ]
        if faster:
            told.append(f"- {sentence(work)[:-1]}, {subject}: {', '.join(faster)}; hookline {mine.ratio}.")
    peaks = {one.tool: one.facts.get("peak", "") for one in found}
    imports = {line.case: line.unit for line in comparison.imports}
    return told + _smaller("Peak memory", peaks) + _smaller("Import", imports)


def _smaller(title: str, told: dict[str, str]) -> list[str]:
    """A line with the tools whose number is smaller than hookline's."""
    ours = told[OURS]
    smaller = [f"{tool} {text}" for tool, text in told.items() if _number(text) < _number(ours)]
    return [f"- {title}: {', '.join(smaller)}; hookline {ours}."] if smaller else []


def draw(found: list[Found], path: Path) -> None:
    """Bars of the ratios of recording, a panel for each model."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(9, 2.6), layout="constrained")
        recording = [one for one in found if any(work == "record" for work, _ in one.lines)]
        for axes, subject in zip(figure.subplots(1, len(MODELS), sharey=True), MODELS, strict=True):
            _bars(axes, subject, recording)
        figure.savefig(path, dpi=130, metadata={"Software": None})


def _bars(axes: Any, subject: str, found: list[Found]) -> None:
    names = [one.tool for one in reversed(found)]
    ratios = [_ratio(one.lines["record", subject]) for one in reversed(found)]
    known = [LEAST if ratio == float("inf") else ratio for ratio in ratios]
    bars = axes.barh(names, known, color=[COLORS[name == OURS] for name in names])
    texts = ["can't" if ratio == float("inf") else f"{ratio:.2f}x" for ratio in ratios]
    axes.bar_label(bars, texts, padding=2)
    axes.set_xscale("log")
    axes.set_xlim(LEAST, max(known) ** 1.4 * 1.2)
    axes.xaxis.set_major_formatter("{x:g}x")
    axes.minorticks_off()
    axes.axvline(1, color="#455a64", linewidth=0.8)
    axes.set_title(f"record, {subject}", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def _recording(found: list[Found]) -> str:
    subjects = [("record", subject) for subject in MODELS]
    head = ["tool", *MODELS, "values of ResNet-50", "peak", "after an exception", "compiled"]
    rows = [
        [
            one.tool,
            *(_shown(one.lines[place]) for place in subjects),
            one.lines[subjects[0]].note,
            *(one.facts.get(fact, "") for fact in ("peak", "exception", "compiled")),
        ]
        for one in found
        if subjects[0] in one.lines
    ]
    return markdown_table(head, rows)


def _timings(found: list[Found], columns: tuple[tuple[str, str], ...]) -> str:
    rows = [
        [one.tool, *(_shown(one.lines[place]) if place in one.lines else "" for place in columns)]
        for one in found
        if any(place in one.lines for place in columns)
    ]
    return markdown_table(["tool", *(f"{work}, {subject}" for work, subject in columns)], rows)


def _imports(lines: list[Line]) -> str:
    return markdown_table(["tool", "time", ""], [[line.case, line.unit, line.note] for line in lines])


def _shown(line: Line) -> str:
    return f"{line.ratio} ({line.iqr})" if line.iqr else f"can't: {line.note}"


def _ratio(line: Line) -> float:
    return float(line.ratio[:-1]) if line.ratio.endswith("x") else float("inf")


def _number(text: str) -> float:
    """The number that a text with a unit begins with; infinity where it is something else."""
    return float(text.split()[0]) if text.endswith((" MB", " ms")) else float("inf")
