"""Entries: what is known of each place of one side, before places are aligned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """What is known of one place of one side: a site, as the alignment needs it.

    `order` is its place in the order of execution, `type` the name of the module's class, `calls` how often it was
    called. `shapes` are those of the tensors of its first output, `numbers` their norms, for alignment by values.
    """

    name: str
    type: str = ""
    order: int = 0
    calls: int = 1
    shapes: tuple[tuple[int, ...], ...] = ()
    numbers: Sequence[float] = ()
