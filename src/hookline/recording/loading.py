"""Loading: a recording that `Recording.save` wrote, read back.

Nothing in the file is executed when it is read: a namedtuple or dataclass comes back as a plain class of the same
name and fields, an object that is neither data nor tensor as an Opaque with its repr.
"""

from __future__ import annotations

import dataclasses
import json
import keyword
from collections import namedtuple
from functools import lru_cache
from pathlib import Path
from typing import Any

from hookline.errors import RunError, printable
from hookline.recording import seals
from hookline.recording.budget import Cell
from hookline.recording.calls import Call, SiteRecord
from hookline.recording.files import UNREADABLE, reader_of
from hookline.recording.recording import Recording
from hookline.recording.saving import GRADS, TREES, VERSION
from hookline.trees import Slot

MOST_FIELDS = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Opaque:
    """What a saved recording tells of an object that is neither data nor tensor."""

    text: str


def load_recording(path: str | Path) -> Recording:
    """The Recording in a file that `Recording.save` wrote, in memory; RunError where it is none.

    Where the framework that it was made with is not installed, its tensors are arrays of numpy.
    """
    return _recording(Path(path), in_memory=True)


def open_recording(path: Path) -> Recording:
    """The same, but each tensor is read from the file when it is looked at."""
    return _recording(path.absolute(), in_memory=False)


class _InFile:
    """The tensors of a file by name, as cells that have not been read."""

    def __init__(self, path: Path, backend: str) -> None:
        self._path, self._backend = path, backend

    def __getitem__(self, key: str) -> Cell:
        cell = Cell(None)
        cell.path, cell.key, cell.framework = self._path, key, self._backend
        return cell


def _recording(path: Path, *, in_memory: bool) -> Recording:
    try:
        header = _header(path)
        if header["version"] > VERSION:
            raise RunError(
                f"{path} was written by a newer hookline (format {header['version']}, this one reads up to "
                f"{VERSION}). Upgrade hookline to read it."
            )
        backend = header["backend"]
        tensors: Any = _InFile(path, backend)
        if in_memory:
            seals.check(path)
            reader = reader_of(backend)
            backend, tensors = reader.name, reader.read_safetensors(path)
        sites = [_site_from_json(entry, tensors) for entry in header["sites"]]
        recording = Recording(sites, backend)
        for name in header["names"]:
            recording._fire(recording[name])
    except UNREADABLE as error:
        raise RunError(f"{path} is not a recording of hookline, or is damaged: {printable(error)}") from error
    return recording


def _header(path: Path) -> dict[str, Any]:
    try:
        header = json.loads(seals.header_of(path)["__metadata__"]["hookline"])
    except OSError as error:
        raise RunError(f"{path} can't be read: {error}") from error
    if not isinstance(header, dict) or type(header["version"]) is not int:
        raise ValueError("it has no header of hookline's")
    return header


def _tree(saved: Any, tensors: Any) -> Any:
    """The inverse of `_Writer.tree`."""
    if "tensor" in saved:
        if not saved["tensor"]:
            raise ValueError("a tensor without a name")
        return tensors[saved["tensor"]]
    if "value" in saved:
        return saved["value"]
    if "complex" in saved:
        return complex(*saved["complex"])
    if "slot" in saved:
        return Slot(saved["slot"])
    if "opaque" in saved:
        return Opaque(saved["opaque"])
    if "tuple" in saved or "list" in saved:
        items = [_tree(item, tensors) for item in saved.get("tuple", saved.get("list"))]
        return tuple(items) if "tuple" in saved else items
    items = [_tree(item, tensors) for item in saved["items"]]
    if "dict" in saved:
        return dict(zip((_tree(key, tensors) for key in saved["dict"]), items, strict=True))
    name, keys = saved.get("namedtuple", saved.get("dataclass")), saved["keys"]
    for word in (name, *keys):
        # These become a class and its fields; what is no plain name is no recording of ours.
        if not isinstance(word, str) or not word.isidentifier() or keyword.iskeyword(word) or "__" in word:
            raise ValueError(f"{word!r} is no name of a class or field")
    return _plain_class(name, tuple(keys), "namedtuple" in saved)(*items)


@lru_cache(maxsize=1000)
def _plain_class(name: str, keys: tuple[str, ...], is_tuple: bool) -> Any:
    """A class with these fields and nothing else."""
    if len(keys) > MOST_FIELDS:
        raise ValueError(f"{name!r} has {len(keys)} fields")
    return namedtuple(name, keys) if is_tuple else dataclasses.make_dataclass(name, keys)


def _site_from_json(saved: dict[str, Any], tensors: Any) -> SiteRecord:
    names = [saved["name"], *saved["aliases"], saved.get("op", ""), saved.get("type", ""), saved["why"] or ""]
    if not all(isinstance(name, str) for name in names):
        raise ValueError("a site has a name that is no text")
    site = SiteRecord(saved["name"], tuple(saved["aliases"]), None)
    site.why = saved["why"]
    site.op, site.type = saved.get("op", ""), saved.get("type", "")  # older files have none
    if saved["param_grads"] is not None:
        site._param_grads = _tree(saved["param_grads"], tensors)
    for entry in saved["calls"]:
        call = Call(site.name, entry["order"])
        call.ended = entry.get("ended", call.order)  # older files have none
        for name in (*TREES, *GRADS):
            if name in entry:
                setattr(call, name, _tree(entry[name], tensors))
        site.calls.append(call)
    return site
