"""Report: tables of results as plain text and as Markdown, and on what machine they were measured."""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.harness import Line

HEADS = ("case", "ratio", "IQR", "best", "unit", "goal", "reached?", "note")
CLOCK = (
    "Clock: CPU time of the process; torch on one thread; all cases of a table in shuffled rounds; "
    "ratio = median over rounds of the ratio to the table's first case in the same round; IQR = the quartiles "
    "of that; best = the ratio of the fastest rounds; unit = what is added to the first case, without sign "
    "the time itself"
)
PACKAGES = ("hookline", "torch", "nnsight", "captum", "fastai", "transformers")


@dataclasses.dataclass
class Result:
    """A measured table."""

    title: str
    lines: list[Line]
    note: str
    rounds: int
    load: str = ""


def as_text(result: Result) -> str:
    """A table for the terminal."""
    rows = _cells(result)
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADS))]
    shown = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    head = f"{result.title} ({result.rounds} rounds)"
    parts = [head, "-" * len(head), *shown]
    return "\n".join([*parts, *filter(None, (result.note, sentence(result.load)))]) + "\n"


def as_markdown(results: list[Result], load: str = "") -> str:
    """A whole file: the machine and its load, then all tables."""
    known = [*facts(), *filter(None, (sentence(load),))]
    parts = ["# Timings\n", "Written by `python -m bench --write`.\n", *(f"- {fact}" for fact in known), ""]
    for result in results:
        head, *rows = _cells(result)
        told = " ".join(filter(None, (f"{result.rounds} rounds.", result.note, sentence(result.load))))
        parts += [f"## {result.title}\n", told + "\n"]
        parts += [markdown_table(head, rows), ""]
    return "\n".join(parts)


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    """A table as Markdown."""
    return "\n".join(map(_markdown_row, (head, ["---"] * len(head), *rows)))


def facts(packages: Sequence[str] = PACKAGES, *, clock: bool = True) -> list[str]:
    """What decides timings, and nothing that tells whose machine it is; with `clock`, how they are taken."""
    versions = ", ".join(f"{name} {_version(name)}" for name in packages)
    known = [
        f"CPU: {_cpu()}, {os.cpu_count()} cores, {platform.machine()}",
        f"Python {platform.python_version()}; {versions}",
        f"Date: {datetime.date.today().isoformat()}",
    ]
    if clock:
        known.append(CLOCK)
    return known


def sentence(text: str) -> str:
    """The text with a capital and a full stop."""
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _cells(result: Result) -> list[list[str]]:
    return [list(HEADS), *([str(value) for value in dataclasses.astuple(line)] for line in result.lines)]


def _markdown_row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown"
