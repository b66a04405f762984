"""Rules: one line of a map, a name or a glob of A with that of B, and the layout of B's arrays."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline.errors import InvalidArgument, near

Layout = str | tuple[int, ...] | None
"""How B's array becomes A's: as it is; "transposed", the last two axes exchanged; "channels_last", where the last
axis comes second; or the axes, as numpy's `transpose` takes them. An array with too few axes, or another number of
them than are listed, stays as it is."""

LAYOUTS = ("transposed", "channels_last")

# "**." at the beginning of a part may stand for nothing at all, as in all patterns of hookline.
_WILD = re.compile(r"(?<![^.])\*\*\.|\*\*|\*|\?")
_REGEX = {"**.": r"((?:.*\.)?)", "**": "(.*)", "*": r"([^.]*)", "?": r"([^.])"}


@dataclass(frozen=True)
class Rule:
    """One line of a map: `a` is a name or a glob of A, `b` that of B, None where B has no such place.

    `note` is what a reader of the file should know.
    """

    a: str
    b: str | None
    layout: Layout = None
    note: str = ""

    def __post_init__(self) -> None:
        if "[" in self.a + (self.b or ""):
            raise InvalidArgument(
                f"expected *, ** and ? as wildcards of a map, got brackets in {self.a!r} = {self.b!r}. "
                "Write a rule for each of the names."
            )
        if self.b is not None and _wilds(self.a) != _wilds(self.b):
            raise InvalidArgument(
                f"expected the same wildcards in the same order on both sides of a rule, got {self.a!r} = "
                f"{self.b!r}: the first * of one stands for the first * of the other."
            )

    @property
    def is_glob(self) -> bool:
        """Whether it may mean several names."""
        return bool(_wilds(self.a))

    def means(self, name: str) -> bool:
        """Whether it is about this name of A."""
        return bool(self._pattern.fullmatch(name))

    def other(self, name: str) -> str | None:
        """B's name for a name of A that the rule means.

        >>> Rule("encoder.*.attn", "blocks.*.attention").other("encoder.3.attn")
        'blocks.3.attention'
        >>> Rule("**.fc", "net.**.dense").other("fc")
        'net.dense'
        """
        met = self._pattern.fullmatch(name)
        if met is None or self.b is None:
            return None
        caught = iter(one.removesuffix(".") for one in met.groups())
        return _WILD.sub(lambda wild: _put(next(caught), wild[0]), self.b).removesuffix(".")

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        found, at = "", 0
        for wild in _WILD.finditer(self.a):
            found += re.escape(self.a[at : wild.start()]) + _REGEX[wild[0]]
            at = wild.end()
        return re.compile(found + re.escape(self.a[at:]), re.DOTALL)


def arranged(array: NDArray[Any], layout: Layout, back: bool = False) -> NDArray[Any]:
    """B's array with its axes in A's order; with `back`, A's in that of B.

    >>> arranged(np.zeros((2, 5, 6, 3)), "channels_last").shape, arranged(np.zeros((2, 5)), (1, 0)).shape
    ((2, 3, 5, 6), (5, 2))
    """
    if layout == "transposed":
        return np.swapaxes(array, -1, -2) if array.ndim >= 2 else array
    if layout == "channels_last":
        axes = (1, -1) if back else (-1, 1)
        return np.moveaxis(array, *axes) if array.ndim >= 3 else array
    if not isinstance(layout, tuple) or len(layout) != array.ndim:
        return array
    return np.transpose(array, tuple(np.argsort(layout).tolist()) if back else layout)


def as_layout(given: Any, who: str) -> Layout:
    """The layout that is meant by a word or by axes; `who` has it."""
    if given is None or given in LAYOUTS:
        return given  # type: ignore[no-any-return]
    axes = list(given) if isinstance(given, list | tuple) else []
    if axes and all(type(axis) is int for axis in axes) and sorted(axes) == list(range(len(axes))):
        return tuple(axes)
    raise InvalidArgument(
        f"expected {' or '.join(map(repr, LAYOUTS))} or axes such as [3, 2, 0, 1] as the layout of {who!r}, "
        f"got {given!r}.{near(given, LAYOUTS)}"
    )


def _wilds(glob: str) -> list[str]:
    return [wild.rstrip(".") for wild in _WILD.findall(glob)]


def _put(caught: str, wild: str) -> str:
    """What was caught, in place of a wildcard: "**." keeps its dot, unless it stands for nothing."""
    return f"{caught}." if caught and wild == "**." else caught
