"""Cells: the tree of a MindSpore model, its modes, and why a cell of it may stay silent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
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


def own_parameters(module: nn.Cell) -> dict[str, Any]:
    """A cell's own parameters by attribute, without moving statistics."""
    found = compat.parameters(module).items()
    return {name: parameter for name, parameter in found if not compat.is_state(name, parameter)}


def tensors_of(model: nn.Cell) -> dict[str, Any]:
    """Every parameter and buffer by its dotted name, tied ones under each of their names."""
    found = {}
    for name, cell in every(model):
        for own, tensor in {**compat.parameters(cell), **compat.buffers(cell)}.items():
            found[f"{name}.{own}" if name else own] = tensor
    return found


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


def forward_of(cell: nn.Cell) -> tuple[Callable[..., Any], str]:
    """The function that runs when the cell is called, and the class or instance that has it."""
    if "construct" in vars(cell):
        return vars(cell)["construct"], f"this {type(cell).__name__} object"
    for base in type(cell).__mro__:
        if "construct" in vars(base):
            found: Callable[..., Any] = vars(base)["construct"]
            return getattr(found, "__wrapped__", found), base.__name__
    raise AssertionError("nn.Cell itself has a construct")


@contextmanager
def evaluating(model: nn.Cell) -> Iterator[None]:
    """The model in evaluation mode; each cell's own mode comes back."""
    modes = [(cell, bool(cell.training)) for _, cell in every(model)]
    try:
        model.set_train(False)
        yield
    finally:
        for cell, training in modes:
            cell.training = training
