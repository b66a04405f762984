"""Dehybridize: hybridized blocks run as they are written for as long as a tap sits inside of them.

A hybridized block runs one compiled graph and never calls what is in it, so hooks there would be silent. With a
tap inside, it runs as it is written, and so does all that is in it: compiling each part for itself would take
longer than it saves. Outputs, gradients, running statistics and Dropout's random numbers are the same
(test_mxnet_hybridized.py), but where oneDNN chooses other kernels for a graph than for its
operators one by one: these may round otherwise, and `remarks` says so. The compiled graph is kept and runs again
afterwards. No tap is ever part of a graph, so none can go on running in one.

A graph that `optimize_for` has rewritten may compute something else, and raises Unsupported.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from hookline.backends.changing import changing
from hookline.backends.mxnet import compat, modules
from hookline.backends.nouns import Module
from hookline.backends.undoing import Undoing
from hookline.errors import Unsupported


class Held:
    """How a block was hybridized before, and which attachments hold it."""

    def __init__(self, block: Module) -> None:
        self.by: list[object] = []
        self.active = compat.is_active(block)
        self.hybridized = compat.hybridizing(block)


_held: WeakKeyDictionary[Any, Held] = WeakKeyDictionary()

_taken_apart: WeakSet[Any] = WeakSet()
"""Blocks that are compiled, alone or as a part, and had to run as written for the taps that came last."""

AS_WRITTEN = (
    "this net is hybridized, and with hooks inside it runs as it is written; for its compiled graph oneDNN may "
    "choose other kernels, which differ in the last digits (MXNET_MKLDNN_ENABLED=0 does without them)"
)


def remarks(modules: dict[str, Any]) -> dict[str, str]:
    """What taps changed by having a net run as it is written: {site: sentence}."""
    if not compat.has_layouts_of_its_own():
        return {}
    return {name: AS_WRITTEN for name, block in modules.items() if block in _taken_apart}


def hold_around(undoing: Undoing, tapped: Iterable[Any], *, themselves: bool = False) -> None:
    """Has all blocks around these, and all in them, run as written.

    With `themselves` also those that nothing is around.
    """
    tapped = list(tapped)
    around = {id(above): above for block in tapped for above in modules.ancestors(block)}
    if themselves:
        around |= {id(block): block for block in tapped}
    for above in around.values():
        _refuse_if_rewritten(above)
        _refuse_if_listened_to(above)
    within = {id(block): block for above in around.values() for block in modules.below(above)}
    holding = [block for block in (around | within).values() if compat.is_hybrid(block)]
    mine = object()
    undoing.noted(_release, holding, mine)
    _hold(holding, mine)
    for block in tapped:
        (_taken_apart.add if _would_be_compiled(block) else _taken_apart.discard)(block)


@changing
def _hold(holding: list[Any], mine: object) -> None:
    for block in holding:
        held = _held.setdefault(block, Held(block))
        held.by = [*held.by, mine]
        compat.set_active(block, False)


@changing
def _release(holding: list[Any], mine: object) -> None:
    for block in holding:
        if (held := _held.get(block)) is None:
            continue
        held.by = [other for other in held.by if other is not mine]
        if not held.by:
            _note(block, held)
            compat.set_active(block, held.active)
            _held.pop(block, None)


def hold_again() -> None:
    """To be called when a block with taps was hybridized: what is around and beside it was, maybe, as well."""
    for block, held in list(_held.items()):
        _note(block, held)
        compat.set_active(block, False)
        if held.active:
            _taken_apart.add(block)


def _would_be_compiled(block: Module) -> bool:
    """Whether a block that runs as written would be compiled without taps, alone or as a part."""
    around = (_held.get(above) for above in (block, *modules.ancestors(block)))
    return any(held is not None and held.active for held in around)


def _refuse_if_rewritten(block: Module) -> None:
    if compat.is_hybrid(block) and compat.is_active(block) and compat.partitioned_for(block) is not None:
        raise Unsupported(
            backend="mxnet",
            feature="a hook inside of a block that was optimized for another backend",
            why=f"{block.name!r} runs a graph rewritten for {compat.partitioned_for(block)!r}, and as it is "
            "written it may give other numbers",
            instead="attach to that block itself, or call its hybridize(False) before",
        )


def _refuse_if_listened_to(block: Module) -> None:
    if compat.is_hybrid(block) and compat.op_hook(block) is not None:
        raise Unsupported(
            backend="mxnet",
            feature="a hook inside of a block with an op hook",
            why=f"an op hook needs the compiled graph of {block.name!r}, and with a hook inside it runs as it is "
            "written",
            instead="use one after the other, or attach to the outermost block alone",
        )


def _note(block: Module, held: Held) -> None:
    """Notes what somebody asked for by `hybridize` meanwhile."""
    if compat.hybridizing(block) is not held.hybridized:
        held.hybridized = compat.hybridizing(block)
        held.active = compat.is_active(block)
