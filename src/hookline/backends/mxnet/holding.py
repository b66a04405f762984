"""Holding: hybridized blocks run as they are written for as long as a tap sits inside of them.

A hybridized block runs one compiled graph and never calls what is in it, so hooks there would be silent. A
block with a tap below it is therefore taken out of its compiled graph, and it alone: its other parts go on
running compiled. Outputs, gradients, running statistics and Dropout's random numbers are to the last bit the
same (tests/frameworks/mxnet/test_hybridized.py); the compiled graph is kept and runs again afterwards.

A graph that `optimize_for` has rewritten may compute something else, and raises Unsupported.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from hookline.backends.mxnet import blocks, compat
from hookline.backends.protocol import Undo
from hookline.errors import Unsupported


class Held:
    """How a block was hybridized before, and how many taps hold it."""

    def __init__(self, block: Any) -> None:
        self.taps = 0
        self.active = compat.is_active(block)
        self.hybridized = compat.hybridizing(block)


_held: WeakKeyDictionary[Any, Held] = WeakKeyDictionary()


def hold_above(block: Any) -> Undo:
    """Has every hybridized block around this one run as it is written, until the returned function is called."""
    around = [above for above in blocks.ancestors(block) if compat.is_hybrid(above)]
    for above in around:
        if compat.is_active(above) and compat.partitioned_for(above) is not None:
            raise Unsupported(
                backend="mxnet",
                feature="a hook inside of a block that was optimized for another backend",
                why=f"{above.name!r} runs a graph rewritten for {compat.partitioned_for(above)!r}, and as it is "
                "written it may give other numbers",
                instead="attach to that block itself, or call its hybridize(False) before",
            )
    for above in around:
        held = _held.setdefault(above, Held(above))
        held.taps += 1
        compat.set_active(above, False)

    def release() -> None:
        while around:
            above = around.pop()
            held = _held[above]
            held.taps -= 1
            if not held.taps:
                _note(above, held)
                compat.set_active(above, held.active)
                del _held[above]

    return release


def hold_again(block: Any) -> None:
    """To be called when a block with taps was hybridized: what is around it may have been as well."""
    for above in blocks.ancestors(block):
        if (held := _held.get(above)) is not None:
            _note(above, held)
            compat.set_active(above, False)


def _note(block: Any, held: Held) -> None:
    """Notes what somebody asked for by `hybridize` meanwhile."""
    if compat.hybridizing(block) is not held.hybridized:
        held.hybridized = compat.hybridizing(block)
        held.active = compat.is_active(block)
