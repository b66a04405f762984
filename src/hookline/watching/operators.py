"""Watched operators: what `watch(..., ops=...)` reduces, each operator a site of its own."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from hookline.backends.nouns import Tensor, Tree
from hookline.backends.operators import FORWARD, Operator, OpSite
from hookline.hooks.ops import Chosen
from hookline.reporting import warn
from hookline.watching.steps import Key

if TYPE_CHECKING:
    from hookline.watching.block import Watch


class WatchedOps:
    """Reduces the outputs of operators: rows of kind "output" forward and "grad" backward.

    An operator with several outputs has rows "output", "output1" and so on. Whole numbers, such as
    indices, are not reduced.
    """

    inputs = False
    sources = False

    def __init__(self, watch: Watch, chosen: Chosen) -> None:
        self._watch, self._chosen = watch, chosen
        self.broken: dict[str, str] = {}
        self.counts: dict[str, int] = {}

    @property
    def key(self) -> Hashable:
        return self._chosen.patterns, False, self._watch.grads

    def wants(self, operator: Operator, phase: str) -> bool:
        return operator in self._chosen and (phase == FORWARD or self._watch.grads)

    def is_mine(self) -> bool:
        return self._watch.session.sees_this_context()

    def before(self, step: OpSite, call: int, tensors: Sequence[Any], source: str | None) -> None:
        """Inputs are not watched."""

    def after(self, step: OpSite, call: int, output: Tree, source: str | None) -> None:
        watch = self._watch
        if not watch.is_open or step.site in self.broken:
            return
        self.counts[step.site] = self.counts.get(step.site, 0) + 1
        kind = "output" if step.phase == FORWARD else "grad"
        for index, value in enumerate(output if isinstance(output, (tuple, list)) else (output,)):
            if isinstance(value, watch.backend.tensor) and watch.backend.has_fractions(value):
                key = Key(step.site, f"{kind}{index}" if index else kind, call, watch.mode)
                self._reduce(key, value, scaled=step.phase != FORWARD)

    def _reduce(self, key: Key, tensor: Tensor, *, scaled: bool) -> None:
        try:
            self._watch.gathered.add(key, self._watch.unscaled(tensor) if scaled else tensor)
        except Exception as error:  # whatever it is, training goes on
            failed = f"failed and stops: {type(error).__name__}: {error}"
            self.broken[key.site] = f"measuring it {failed}"
            warn(f"watching operator {key.site!r} {failed}", stacklevel=2)
