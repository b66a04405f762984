"""Inserting: operators that look at values, put into a graph of ATen operators after each of its nodes.

The graph is that of inductor, after its own passes and before code is made of it. A node tells the class of the
module that it comes from, and so which module that is (classes.py), and the line of code. What is put in is a
chain: each takes what the one before gave, so that they run in the order of the graph.
"""

from __future__ import annotations

import operator as python
import re
import weakref
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import fx

from hookline.backends.operators import BACKWARD, FORWARD, Operator, OpSite, Scope
from hookline.backends.torch import compat
from hookline.backends.torch.compiled.classes import module_of
from hookline.backends.torch.compiled.listened import Listened, listened_models, told
from hookline.backends.torch.eager.attribution import is_library
from hookline.trees import leaves

LINE = re.compile(r'File "([^"]+)", line (\d+)')
OURS = "hookline"


class Insertion(NamedTuple):
    """Where a graph hands values over: `keys` say what the tensors are of the output, None where there is one."""

    model: weakref.ref[Listened]
    step: OpSite
    call: int
    after: bool
    keys: tuple[int, ...] | None
    size: int
    source: str | None


_places: list[Insertion] = []


@cache
def define() -> Any:
    """The operator that hands values over; made known to torch when a graph needs it."""
    library = torch.library.Library(OURS, "FRAGMENT")  # type: ignore[no-untyped-call]
    schema = "operator_seen(Tensor? before, Tensor[] values, int place) -> Tensor"
    # A CUDA graph would run it once, when it is captured.
    library.define(schema, tags=(torch.Tag.cudagraph_unsafe,))  # type: ignore[no-untyped-call]
    library.impl("operator_seen", _seen, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"{OURS}::operator_seen", lambda before, values, place: _token(), lib=library)
    seen = torch.ops.hookline.operator_seen.default
    fx.node.has_side_effect(seen)
    return library, seen


def _token() -> torch.Tensor:
    return torch.empty(0)


def _seen(before: torch.Tensor | None, values: list[torch.Tensor], place: int) -> torch.Tensor:
    """Runs with the graph."""
    model, step, call, after, keys, size, source = _places[place]
    listened = model()
    for listener in () if listened is None else told(listened, step):
        if not after:
            if listener.inputs:
                listener.before(step, call, values, source)
        elif keys is None:
            listener.after(step, call, values[0], source)
        else:
            output: list[Any] = [None] * size
            for key, value in zip(keys, values, strict=True):
                output[key] = value
            listener.after(step, call, tuple(output), source)
    return _token()


def insert(graph: fx.Graph) -> None:
    """Puts into `graph` what the models that it belongs to have to tell."""
    frame = compat.module_under_compilation()
    for model in listened_models():
        if id(frame) in model.names or any(_owner(node, model) is not None for node in graph.nodes):
            _Graph(graph, model, model.names.get(id(frame), "")).insert()


class _Graph:
    """One graph of one model; `frame` is the module whose forward it was made of."""

    def __init__(self, graph: fx.Graph, model: Listened, frame: str) -> None:
        self.graph, self.model, self.frame = graph, model, frame
        self.backward = any("tangents" in node.name for node in graph.nodes if node.op == "placeholder")
        self._scopes = model.scopes(compat.compilation())
        self._token: fx.Node | None = None

    def insert(self) -> None:
        self.model.looked.add(self.model.key)
        seen = define()[1]
        for node in list(self.graph.nodes):
            phase = self._phase(node)
            if phase is None:
                continue
            module, call = self._owner(node)
            operator = _operator(node.target)
            scope = self._scopes.get((module, call, phase))
            if scope is None:
                scope = self._scopes[module, call, phase] = Scope(module, call, OpSite.start(module, phase))
            scope.step = scope.step.then(node.target, operator, wanted=self.model.wants(module, operator, phase))
            if scope.step.wanted:
                self._tell(seen, node, scope)

    def _owner(self, node: fx.Node) -> tuple[str, int]:
        """The module that a node comes from, and which call of it."""
        owner = _owner(node, self.model)
        if owner is None and "seq_nr" not in node.meta:  # inductor made it of others, which it takes the place of
            owners = [_owner(one, self.model) for one in node.all_input_nodes]
            owner = next((one for one in reversed(owners) if one is not None), None)
        return (self.frame, 0) if owner is None else owner

    def _phase(self, node: fx.Node) -> str | None:
        """Of which phase a node is; None for what is no operator, or repeats one of the forward."""
        if node.op != "call_function" or node.target is python.getitem or _is_ours(node.target):
            return None
        tag = node.meta.get("partitioner_tag")
        if not self.backward:
            return BACKWARD if tag == "is_backward" else FORWARD
        return None if tag == "is_forward" else BACKWARD

    def _tell(self, seen: Any, node: fx.Node, scope: Scope) -> None:
        source = _line(node)
        inputs = [arg for arg in leaves((node.args, node.kwargs), fx.Node) if _is_tensor(arg)]
        if inputs and self.model.inputs:
            with self.graph.inserting_before(node):
                self._put(seen, inputs, scope, after=False, keys=None, size=0, source=source)
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            with self.graph.inserting_after(node):
                self._put(seen, [node], scope, after=True, keys=None, size=1, source=source)
        elif isinstance(value, (tuple, list)):
            keys = tuple(key for key, one in enumerate(value) if isinstance(one, torch.Tensor))
            if not keys:
                return
            parts, last = self._parts(node, value, keys)
            with self.graph.inserting_after(last):
                self._put(seen, parts, scope, after=True, keys=keys, size=len(value), source=source)

    def _parts(self, node: fx.Node, value: Any, keys: tuple[int, ...]) -> tuple[list[fx.Node], fx.Node]:
        """The nodes of the single outputs of a node with several, and the last of them."""
        order = {one: place for place, one in enumerate(self.graph.nodes)}
        there = {user.args[1]: user for user in node.users if user.target is python.getitem}
        last = max([node, *there.values()], key=order.__getitem__)
        parts = []
        for key in keys:
            part = there.get(key)
            if part is None:
                with self.graph.inserting_after(node):
                    part = self.graph.call_function(python.getitem, (node, key))
                part.meta["val"] = value[key]
                last = part if last is node else last
            parts.append(part)
        return parts, last

    def _put(self, seen: Any, values: list[fx.Node], scope: Scope, **facts: Any) -> None:
        _places.append(Insertion(weakref.ref(self.model), scope.step, scope.call, **facts))
        made = self.graph.call_function(seen, (self._token, values, len(_places) - 1))
        with compat.fakes_of(values[0].meta["val"]):
            made.meta["val"] = _token()
        self._token = made


def _owner(node: fx.Node, model: Listened) -> tuple[str, int] | None:
    """The module that a node comes from, and which call of it; None where the graph's own frame made it."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    for key, (_, kind) in reversed(list(stack.items())):
        name = model.names.get(id(module_of(kind)))
        if name is not None:
            call = str(key).rpartition("@")[2] if "@" in str(key) else "0"
            return name, int(call)
    return None


def _operator(target: Any) -> Operator:
    name, _, overload = str(target).rpartition(".")
    return Operator(name, overload) if hasattr(target, "overloadpacket") else Operator(str(target))


def _is_ours(target: Any) -> bool:
    """Whether this stands for a door of hookline, or for the order in which such run."""
    return getattr(target, "namespace", "") == OURS or str(target) == "with_effects" or "_token" in str(target)


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _line(node: fx.Node) -> str | None:
    """The innermost line of the model's code that a node comes from."""
    trace = node.meta.get("stack_trace") or node.meta.get("fwd_stack_trace") or ""
    lines = [(file, number) for file, number in LINE.findall(trace) if not is_library(file)]
    return f"{Path(lines[-1][0]).name}:{lines[-1][1]}" if lines else None
