"""bar: a progress bar for whoever sits at a terminal, and nothing for a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


@contextmanager
def shown(label: str) -> Iterator[Callable[[float], None]]:
    """A function that is told the share that is done."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda share: None
        return
    with click.progressbar(length=100, label=label, file=sys.stderr) as bar:
        yield lambda share: bar.update(max(0, round(100 * share) - bar.pos))
