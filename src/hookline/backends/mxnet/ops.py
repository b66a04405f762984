"""Operators of hybridized blocks: MXNet's op hook, with names as text, arrays that own their memory, and an end.

MXNet's own `register_op_hook` hands over bytes and a handle
that leaks if nobody wraps it, prints the exceptions of a callback and goes on, and can't be taken off again.

The values of one operator come one by one: inputs, if asked for, then outputs. They are gathered until the next
operator begins, and told together.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hookline.backends.mxnet import backward, compat, eager_ops, modules, taps
from hookline.backends.mxnet.graph_ops import Graph, Value
from hookline.backends.mxnet.values import snapshot
from hookline.backends.nouns import Model, Module, Tensor
from hookline.backends.operators import BACKWARD, FORWARD, Operator, OpListener, OpSite
from hookline.backends.protocol import Label
from hookline.backends.tap import Undo
from hookline.backends.undoing import Undoing
from hookline.errors import Unsupported

_EXPERIMENTAL = "register_op_hook is experimental"  # said at every call, whatever the flags are


def hook_operators(
    undoing: Undoing, model: Model, places: dict[str, Any], listener: OpListener, label: Label
) -> None:
    """Has `listener` told of each operator that runs in these blocks or their parts.

    Where all of them run in compiled graphs, that is MXNet's own op hook, with its names. Where they run as they
    are written, see `eager_ops.py`.
    """
    around = [_compiled_around(module) for module in places.values()]
    if not all(around):
        eager_ops.hook_operators(undoing, model, places, listener, label)
        return
    compiled = {id(block): block for found in around for block in found}
    names: dict[int, str] = {}
    inside: dict[int, Any] = {}
    for name, module in places.items():
        for below, part in modules.walk(module):
            names.setdefault(id(part), ".".join(filter(None, (name, below))))
            inside[id(part)] = part
    # A part that is called by itself runs a graph of its own.
    compiled |= {key: part for key, part in inside.items() if compat.is_hybrid(part) and compat.is_active(part)}
    for block in compiled.values():
        _refuse_if_it_would_be_silent(block)
    undoing.noted(backward.settle)
    for block in compiled.values():
        hook, ear = _hook_of(block), Ear(listener, names)
        undoing.noted(hook.without, ear)
        hook.ears.append(ear)
        taps.around_calls(undoing, block, hook.run, label._replace(site=names.get(id(block), "")))
        hook.attach()


def _compiled_around(module: Module) -> list[Any]:
    """The outermost compiled block that runs this one; none where it runs as it is written."""
    around = [block for block in (module, *modules.ancestors(module)) if compat.is_hybrid(block)]
    active = [block for block in around if compat.is_active(block)]
    inner = {id(block) for above in active for block in modules.below(above)}
    return [block for block in active if id(block) not in inner]


def _refuse_if_it_would_be_silent(block: Module) -> None:
    if flags := [name for name in ("static_alloc", "static_shape") if compat.flags(block).get(name)]:
        raise _unsupported(
            f"{block.name!r} is hybridized with {flags[0]}=True, and there MXNet leaves operators out",
            f"call its hybridize({flags[0]}=False) before",
        )
    if compat.op_hook(block) not in (None, _hooks.get(id(block))):
        raise _unsupported(
            f"{block.name!r} has an op hook of somebody else already, and MXNet has room for one",
            "use register_op_hook of hookline for both",
        )


def _unsupported(why: str, instead: str) -> Unsupported:
    return Unsupported(backend="mxnet", feature="an op hook here", why=why, instead=instead)


class Ear:
    """One listener, and the steps of the operators that it is told of."""

    def __init__(self, listener: OpListener, names: dict[int, str]) -> None:
        self.listener = listener
        self.mine = True
        self._names = names
        self._steps: dict[tuple[str, str, str], OpSite] = {}
        self._latest: dict[tuple[str, str], OpSite] = {}

    def tell(self, graph: Graph, group: Group) -> None:
        """Tells of one operator that has run."""
        owner = graph.owner(group.node)
        module = self._names.get(id(owner))
        if module is None or not self.mine:
            return
        step = self._step(module, group)
        if not step.wanted:
            return
        call = graph.call(group.node, group.nth, group.phase)
        for role, values in (("input", group.inputs), ("output", group.outputs)):
            for index, value in enumerate(values):
                step.goes_by(value.name, call, role, -1 if role == "output" and len(values) == 1 else index)
        if self.listener.inputs and group.inputs:
            self.listener.before(step, call, [value.array for value in group.inputs], None)
        arrays = tuple(value.array for value in group.outputs)
        self.listener.after(step, call, arrays[0] if len(arrays) == 1 else arrays, None)

    def _step(self, module: str, group: Group) -> OpSite:
        key = module, group.phase, group.node
        if (step := self._steps.get(key)) is None:
            before = self._latest.get(key[:2]) or OpSite.start(module, group.phase)
            operator = Operator(group.op)
            step = before.then(key, operator, wanted=self.listener.wants(operator, group.phase))
            self._steps[key] = self._latest[key[:2]] = step
        return step


class Group:
    """The values of one operator, as they come; `nth` of those of that name in this run."""

    def __init__(self, node: str, op: str, phase: str, nth: int) -> None:
        self.node, self.op, self.phase, self.nth = node, op, phase, nth
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []

    def has(self, name: str) -> bool:
        return any(value.name == name for value in (*self.inputs, *self.outputs))


class BlockHook:
    """What MXNet calls for one compiled block; it stays there as long as somebody listens."""

    def __init__(self, block: Module) -> None:
        self.ears: list[Ear] = []
        self._block = block
        self._graph: Graph | None = None
        self._group: Group | None = None
        self._seen: dict[tuple[str, str], int] = {}
        self._phase = BACKWARD  # a forward says when it runs
        self._undo: list[Undo] = []

    def attach(self) -> None:
        if not self._undo:
            self._undo = [backward.before_settling(self._flush), compat.set_op_hook(self._block, self)]
            backward.expect_one_more()
            self._undo.append(backward.expect_one_less)
        compat.monitor_all(self._block, any(ear.listener.inputs for ear in self.ears))

    def without(self, ear: Ear) -> None:
        """One listener less; with the last, MXNet's own graph is back."""
        if self._block is None:
            return
        self._flush()
        self.ears = [other for other in self.ears if other is not ear]
        if not self.ears:
            _hooks.pop(id(self._block), None)
            while self._undo:
                self._undo.pop()()
            self._block = self._graph = None  # C++ never lets go of this hook

    def run(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A call of the block: what is told meanwhile belongs to a forward."""
        if not compat.is_active(self._block):
            raise _unsupported(
                f"{self._block.name!r} was hybridized when the op hook came, and is not any more",
                "remove the op hook, or leave it hybridized",
            )
        for ear in self.ears:
            ear.mine = ear.listener.is_mine()
        self._seen.clear()
        self._phase = FORWARD
        try:
            with _without_needless_warning():
                output = original(*args, **kwargs)
        finally:
            self._flush()
            self._phase = BACKWARD
            self._seen.clear()
        backward.raise_failure()
        return output

    def __call__(self, name: bytes, op: bytes, handle: int) -> None:
        array = compat.owning(handle)  # before anything can fail: without an owner it leaks
        if not self.ears:  # a backward that comes when everybody has left
            return
        with backward.keeping_failures():
            self._take(compat.text(name), compat.text(op), array)

    def _take(self, name: str, op: str, array: Tensor) -> None:
        graph = self._current_graph()
        node = graph.node(name)
        group = self._group
        if group is None or group.node != node or group.op != op or group.has(name):
            self._flush()
            nth = self._seen[node, op] = self._seen.get((node, op), -1) + 1
            group = self._group = Group(node, op, self._phase, nth)
        inputs = graph.inputs_of(node) if self._phase == FORWARD and compat.monitors_all(self._block) else 0
        values = group.inputs if len(group.inputs) < inputs else group.outputs
        # The graph's memory is used again for the next operator's results.
        values.append(Value(name, snapshot(array)))

    def _flush(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            graph = self._current_graph()
            for ear in list(self.ears):
                with backward.keeping_failures():
                    ear.tell(graph, group)

    def _current_graph(self) -> Graph:
        symbol = compat.compiled_symbol(self._block)
        if self._graph is None or self._graph.symbol is not symbol:
            self._graph = Graph(symbol, json.loads(symbol.tojson()), self._block)
        return self._graph


_hooks: dict[int, BlockHook] = {}


def _hook_of(block: Module) -> BlockHook:
    return _hooks.setdefault(id(block), BlockHook(block))


@contextmanager
def _without_needless_warning() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_EXPERIMENTAL)
        yield
