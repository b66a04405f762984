"""Padding look: an embedding whose padding index is a word that matters.

What pads stands at the end or at the beginning of a row, never between other words. An index that stands there, in
an embedding that gives it no gradient, is told where another one pads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hookline.backends.torch.compat import without_dispatch
from hookline.wiring import Place

MOST, ROWS = 16, 256
SHORTEST = 3
"""Places are noted; rows are looked at; words are in a row at least."""
BETWEEN = 0.5
"""The share of an index's occurrences that are between other words."""
PADDED = 0.1
"""The share of rows that end with what pads, one more time at least in some of them."""


class Paddings:
    """Which embeddings have the wrong padding index; `found` are the places."""

    def __init__(self, place: Callable[[str, str], Place]) -> None:
        self.found: list[Place] = []
        self._place = place

    def see(self, name: str, args: Any) -> None:
        """An operator has run."""
        if name != "embedding" or len(args) < 3 or not isinstance(args[2], int) or args[2] < 0:
            return
        words, index = args[1], args[2]
        if words.ndim != 2 or words.shape[1] < SHORTEST or words.is_meta or len(self.found) >= MOST:
            return
        with without_dispatch(), torch.no_grad():
            other = _pads_instead(words.detach()[:ROWS], index)
        if other is not None:
            what = f"{index} stands between other words, and {other} at the end of rows"
            place = self._place("embedding", what)
            if place not in self.found:
                self.found.append(place)


def _pads_instead(words: torch.Tensor, index: int) -> int | None:
    """The index that pads in place of this one; None where this one may, or nothing does.

    >>> _pads_instead(torch.tensor([[5, 1, 4, 0, 0], [1, 3, 2, 6, 0], [6, 1, 3, 2, 2]]), 1)
    0
    >>> _pads_instead(torch.tensor([[5, 1, 4, 0, 0], [1, 3, 2, 6, 0], [6, 1, 3, 2, 2]]), 0)
    """
    is_it = words == index
    if not bool(is_it.any()):
        return None
    others = (~is_it).long()
    before, behind = others.cumsum(1), others.flip(1).cumsum(1).flip(1)
    between = is_it & (before > 0) & (behind > 0)
    if float(between.sum() / is_it.sum()) < BETWEEN:
        return None
    last = words[:, -1]
    candidate = int(last.mode().values)
    pads = words == candidate
    # It pads the rows that it ends if all of it is in one piece, up to the end.
    whole = (pads.long().flip(1).cumprod(1).sum(1) == pads.sum(1)) & pads[:, -1]
    ends = pads.any(1)
    is_padding = bool((whole == ends).all()) and bool((pads[:, -1] & pads[:, -2]).any())
    return candidate if is_padding and candidate != index and float(whole.float().mean()) >= PADDED else None
