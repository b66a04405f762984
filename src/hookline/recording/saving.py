"""Saving: a recording as one safetensors file.

Tensors are the file's tensors; structure, names and audit are JSON in its metadata.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.backends import named
from hookline.branches import Branch, inside
from hookline.recording.calls import MISSING, Call, SiteRecord, loaded
from hookline.recording.files import write_tensors
from hookline.trees import Slot

if TYPE_CHECKING:
    from hookline.recording.recording import Recording

VERSION = 1
TREES = ("_output", "_input", "_kwargs", "_template_in", "_template_out")
GRADS = ("_grads_in", "_grads_out")


def save_recording(recording: Recording, path: Path) -> Path:
    """Writes `recording` to `path` and returns it."""
    backend = named(recording.backend)
    backend.framework.need("save")
    writer = _Writer(backend.tensor)
    sites = [_site_to_json(site, writer) for site in recording._asked.values()]
    header = {"version": VERSION, "backend": recording.backend, "names": recording.names, "sites": sites}
    write_tensors(path, writer.tensors, {"hookline": json.dumps(header)}, recording.backend)
    return path


class _Writer:
    """Turns structures into JSON and gathers their tensors under numbers."""

    def __init__(self, tensor: type) -> None:
        self._tensor = tensor
        self.tensors: dict[str, Any] = {}

    def tree(self, tree: Any, above: tuple[int, ...] = ()) -> Any:
        if isinstance(tree, self._tensor):
            key = str(len(self.tensors))
            self.tensors[key] = tree
            return {"tensor": key}
        if tree is None or isinstance(tree, (bool, int, float, str)):
            return {"value": tree}
        if isinstance(tree, complex):
            return {"complex": [tree.real, tree.imag]}
        if isinstance(tree, Slot):
            return {"slot": tree.index}
        if isinstance(tree, Branch):
            tree = tree.made(tree.children)
        if (branch := inside(tree, above)) is None:
            return {"opaque": _shown(tree)}
        keys, children, _ = branch
        items = [self.tree(child, (*above, id(tree))) for child in children]
        if hasattr(tree, "_fields"):
            return {"namedtuple": type(tree).__name__, "keys": keys, "items": items}
        if isinstance(tree, (tuple, list)):
            return {"tuple" if isinstance(tree, tuple) else "list": items}
        if dataclasses.is_dataclass(tree) and not isinstance(tree, dict):
            return {"dataclass": type(tree).__name__, "keys": keys, "items": items}
        return {"dict": [self.tree(key) for key in keys], "items": items}


def _shown(thing: Any) -> str:
    try:
        return repr(thing)
    except Exception:  # a user's __repr__, or a chain of objects without end
        return f"<a {type(thing).__name__}>"


def _site_to_json(site: SiteRecord, writer: _Writer) -> dict[str, Any]:
    return {
        "name": site.name,
        "aliases": site.aliases,
        "why": site.why,
        "op": site.op,
        "type": site.type,
        "calls": [_call_to_json(call, writer) for call in site.calls],
        "param_grads": None if site._param_grads is None else writer.tree(loaded(site._param_grads)),
    }


def _call_to_json(call: Call, writer: _Writer) -> dict[str, Any]:
    saved: dict[str, Any] = {"order": call.order, "ended": call.ended}
    for name in TREES:
        if (value := getattr(call, name)) is not MISSING:
            saved[name] = writer.tree(loaded(value))
    for name in GRADS:
        if (grads := getattr(call, name)) is not None:
            saved[name] = writer.tree(loaded(grads))
    return saved
