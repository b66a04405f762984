"""Modules: the tree of a MindSpore model, and why a cell of it may stay silent."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from mindspore import nn

from hookline.backends.capabilities import capabilities
from hookline.backends.mindspore import compat

HOLDERS = (nn.CellList, nn.CellDict)


def walk(model: nn.Cell) -> Iterator[tuple[str, nn.Cell]]:
    """(name, cell) for every cell under every name, parents first; Unsupported in graph mode.

    `cells_and_names` gives a shared cell one name only, and leaves out empty containers.
    """
    if compat.compiles():
        raise capabilities()["mindspore"].unsupported("compiled", "a hook in graph mode")
    return every(model)


def every(model: nn.Cell) -> Iterator[tuple[str, nn.Cell]]:
    """As `walk`, in any mode: to look at a model, not to attach to it."""
    return _below(model, "", ())


def _below(cell: nn.Cell, name: str, above: tuple[int, ...]) -> Iterator[tuple[str, nn.Cell]]:
    yield name, cell
    if id(cell) in above:
        return
    dot = f"{name}." if name else ""
    for own, part in compat.parts(cell).items():
        if id(part) not in above:
            yield from _below(part, dot + own, (*above, id(cell)))


def has_construct(module: nn.Cell) -> bool:
    """Whether a cell can be called; those that only hold others can't."""
    return not isinstance(module, HOLDERS) and type(module).construct is not nn.Cell.construct


def why_silent(modules: dict[str, Any], name: str, silent: Collection[str] = ()) -> str | None:
    """What is known of a cell that never fired."""
    cell = modules[name]
    if not has_construct(cell):
        return f"{type(cell).__name__} only holds cells and has no construct of its own"
    compiled = [above or "(model)" for above in _above(name) if _is_jitted(modules[above])]
    if compiled:
        return f"{compiled[0]!r} is compiled by ms.jit, and compiled code calls no cell in Python"
    return None


def _above(name: str) -> Iterator[str]:
    while name:
        name = name.rpartition(".")[0]
        yield name


def _is_jitted(cell: nn.Cell) -> bool:
    return bool(getattr(type(cell).construct, "__wrapped_by_jit__", False))
