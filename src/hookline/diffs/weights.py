"""Weights: carried from a model of one framework to one of another by a neutral file, for a comparison.

The file is safetensors. Names are the model's own, with torch's word for the weight; axes are torch's
(`backends/neutral.py`). Its metadata says of which framework it is, and of each weight the type of its module.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline.backends import named, resolve
from hookline.backends.neutral import LAYOUT, Form
from hookline.backends.protocol import Backend
from hookline.diffs.mapping import Map, as_map
from hookline.diffs.rules import arranged
from hookline.diffs.weight_pairs import Weight, weight_pairs
from hookline.errors import InvalidArgument, RunError, printable
from hookline.recording import seals
from hookline.recording.files import UNREADABLE, write_tensors

FIELD = "hookline_weights"
VERSION = 1
SHOWN = 10
"""So many names are shown of those that could not be placed."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Loaded:
    """What `load_weights` did.

    `placed` has for each weight of the file the weight of the model that it went into, both under their neutral
    names. `unplaced` are weights of the file that went nowhere, `unfilled` weights of the model that nothing went
    into, `misfits` says of pairs why they could not be: their shapes.
    """

    placed: dict[str, str] = field(default_factory=dict)
    unplaced: list[str] = field(default_factory=list)
    unfilled: list[str] = field(default_factory=list)
    misfits: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        told = [f"{len(self.placed)} weights placed"]
        if self.misfits:
            told.append(f"of another shape: {_some([f'{name} ({why})' for name, why in self.misfits.items()])}")
        if self.unplaced:
            told.append(f"of the file, not placed: {_some(self.unplaced)}")
        if self.unfilled:
            told.append(f"of the model, not filled: {_some(self.unfilled)}")
        return "; ".join(told)


@dataclass(frozen=True)
class _Slot:
    """A place of a model for an array of a neutral file: a tensor, or a part of one."""

    name: str
    type: str
    tensor: Any
    form: Form
    numbers: Array


def save_weights(model: Any, path: str | os.PathLike[str]) -> Path:
    """Writes a model's parameters and running statistics to a neutral file, and returns its path.

    `load_weights` puts them into a model of any framework.
    """
    backend, path = resolve(model), Path(path)
    slots = _slots(backend, model)
    first: dict[tuple[Any, ...], str] = {}
    arrays: dict[str, Array] = {}
    tied: dict[str, str] = {}
    for name, slot in slots.items():
        known = first.setdefault((id(slot.tensor), slot.form.name, slot.numbers.shape, slot.numbers.strides), name)
        if known == name:
            arrays[name] = np.ascontiguousarray(slot.numbers)
        else:
            tied[name] = known
    told = {
        "version": VERSION,
        "framework": backend.name,
        "layout": LAYOUT,
        "weights": {name: {"type": slot.type} for name, slot in slots.items()},
        "tied": tied,
    }
    write_tensors(path, arrays, {FIELD: json.dumps(told)}, "numpy")
    return path


def load_weights(model: Any, path: str | os.PathLike[str], map: Any = None, strict: bool = True) -> Loaded:
    """Puts the weights of a neutral file into a model of any framework, and says what went where.

    Weights with the same name belong together; others are found by the type, the shapes and the order of their
    modules, or by `map`, from the file's names of weights or modules to the model's. Any safetensors file with
    torch's axes will do, but tells no order. With `strict` nothing is written unless every weight of both
    sides has its counterpart.
    """
    backend, path = resolve(model), Path(path)
    arrays, types = _read(path)
    slots = _slots(backend, model)
    given = as_map(map)
    pairs = weight_pairs(
        {name: Weight(array.shape, types.get(name, "")) for name, array in arrays.items()},
        {name: Weight(slot.numbers.shape, slot.type) for name, slot in slots.items()},
        given,
        in_order=bool(types),
    )
    loaded, ready = _fitted(backend, arrays, slots, pairs, given or Map())
    if strict and (loaded.unplaced or loaded.unfilled or loaded.misfits):
        raise InvalidArgument(
            f"the weights of {path} do not fit this model, nothing was written. {loaded}. Say by "
            "map={file's name: model's name} what belongs together, or give strict=False to place what fits. "
            "Weights whose shapes are not known before the first call are not among the model's: call it once."
        )
    for tensor, numbers in ready:
        backend.write_weight(tensor, backend.fitted(backend.from_host(numbers), tensor))
    return loaded


def _slots(backend: Backend, model: Any) -> dict[str, _Slot]:
    """Every place of a model by its neutral name, in order of definition."""
    modules = dict(backend.named_modules(model))
    found: dict[str, _Slot] = {}
    for name, tensor in backend.tensors_of(model).items():
        owner = _owner(name, modules)
        own = name[len(owner) :].removeprefix(".")
        module = modules[owner]
        numbers = backend.host(tensor)
        for form in backend.forms_of(module).get(own, (Form(own),)):
            neutral = f"{owner}.{form.name}".removeprefix(".")
            kind = form.type or type(module).__name__
            found[neutral] = _Slot(neutral, kind, tensor, form, form.view(numbers))
    return found


def _owner(name: str, modules: Mapping[str, Any]) -> str:
    """The longest name of a module that a weight's begins with."""
    owner = name
    while owner and owner not in modules:
        owner = owner.rpartition(".")[0]
    return owner


def _read(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays of a file by name, and the types of their modules where it tells them."""
    try:
        told = json.loads((seals.header_of(path).get("__metadata__") or {}).get(FIELD, "{}"))
        if told.get("version", 0) > VERSION:
            raise RunError(
                f"{path} was written by a newer hookline (format {told['version']}, this one reads up to "
                f"{VERSION}). Upgrade hookline to read it."
            )
        seals.check(path)
        found = named("numpy").read_safetensors(path)
        found.pop("", None)  # the metadata
        found |= {name: found[other] for name, other in told.get("tied", {}).items()}
        types = {name: str(one["type"]) for name, one in told.get("weights", {}).items()}
        # A file has its tensors in no order that means anything; the metadata has them in that of the model.
        return {name: found[name] for name in dict.fromkeys([*types, *found]) if name in found}, types
    except RunError:
        raise
    except UNREADABLE as error:
        raise RunError(f"{path} is no file of weights, or is damaged: {printable(error)}") from error


def _fitted(
    backend: Backend,
    arrays: Mapping[str, Array],
    slots: Mapping[str, _Slot],
    pairs: Mapping[str, str],
    given: Map,
) -> tuple[Loaded, list[tuple[Any, Array]]]:
    """What goes where, and for each tensor all its numbers; nothing is written yet."""
    loaded = Loaded(unfilled=[name for name in slots if name not in set(pairs.values())])
    ready: dict[int, tuple[Any, Array]] = {}
    written: dict[int, dict[str, Array]] = {}
    for name, array in arrays.items():
        if name not in pairs:
            loaded.unplaced.append(name)
            continue
        slot = slots[pairs[name]]
        array = arranged(array, given.layout(name), back=True)
        if array.shape != slot.numbers.shape:
            loaded.misfits[name] = f"expected {slot.numbers.shape} for {slot.name}, got {array.shape}"
            continue
        before = written.setdefault(id(slot.tensor), {}).setdefault(slot.form.name, array)
        if before is not array and not np.array_equal(before, array, equal_nan=True):
            loaded.misfits[name] = f"{slot.name} is tied in the model, and in the file it is not"
            continue
        _, whole = ready.setdefault(id(slot.tensor), (slot.tensor, np.array(backend.host(slot.tensor))))
        slot.form.filled(whole, array)
        loaded.placed[name] = slot.name
    return loaded, list(ready.values())


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
