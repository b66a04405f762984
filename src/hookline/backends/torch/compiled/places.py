"""Places: how a tensor that enters or leaves a module is told from other uses of it, in a graph.

While a graph is traced, every tensor whose gradient is asked for goes through a *mark*, a view of all of it. So
what uses the value that came in or went out at this place uses the mark, and nothing else does. When the graph is
complete, each mark becomes what it needs to be, and no more:

    PLAIN    nothing, the tensor itself is heard: nothing else uses it. So it is in most modules
    VIEW     a view: other code uses the tensor too
    COPY     a copy: the tensor leaves the graph. Torch makes views that leave a graph anew, outside of it, and
             their gradients pass by what the graph hears
    RENEWED  the tensor itself, written into itself: it is written to later, and autograd drops a view then
    LOST     the place can't be told apart
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from hookline.backends.torch import compat
from hookline.backends.torch.compiled.classes import tapped
from hookline.backends.torch.compiled.hanging import HEARD, Look, hang
from hookline.errors import Unsupported

Node = torch.fx.Node
PLAIN, VIEW, COPY, RENEWED, LOST = "plain", "view", "copy", "renewed", "lost"
_MARK = "hookline"
"""The key of a Mark in the meta of its node."""


Hook = tuple[str, int, bool]
"""What is done with the gradient, the number of the door, and whether its ticket reaches the backward."""


class Mark:
    """What is known of a mark while the graph is traced."""

    def __init__(self, number: int, after: bool, place: int, hooks: tuple[Hook, ...], version: int) -> None:
        self.number, self.after = number, after  # the tapped module, 0 for none, and whether this is its output
        self.place, self.hooks = place, hooks
        self.version = version  # how often the tensor had been written to
        self.joint = any(role != HEARD for role, _, _ in hooks)


@compat.constant_while_tracing
def note_mark(number: int, after: bool, place: int, hooks: tuple[Hook, ...]) -> None:
    """Takes the operator that was traced last for a mark, whose gradient `hooks` are to get."""
    node = compat.last_node()
    node.meta[_MARK] = Mark(number, after, place, hooks, compat.version(node.meta["example_value"]))
    compat.when_traced(settle)


@compat.told_as_it_is
def settle(traced: torch.fx.GraphModule) -> None:
    """Gives each mark in a graph, and in the graphs within it, its form."""
    for module in traced.modules():
        if isinstance(module, torch.fx.GraphModule) and any(_MARK in node.meta for node in module.graph.nodes):
            _Graph(module.graph).settle()
            module.recompile()


def keep_in_order(traced: torch.fx.GraphModule) -> None:
    """Has each look of a graph wait for the one before: inductor does not keep operators in order by effects."""
    last: Node | None = None
    for node in traced.graph.nodes:
        if _is_look(node):
            if last is not None:
                node.args = (*node.args, last)
            last = node
    traced.recompile()


class _Graph:
    """A complete graph, whose marks get their forms."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self.graph = graph
        self.order = {node: number for number, node in enumerate(graph.nodes)}
        self.marks: dict[Node, Mark] = {node: node.meta[_MARK] for node in graph.nodes if _MARK in node.meta}
        self.outputs = [node for node in _flat(graph.output_node().args) if _tensor(node) is not None]
        self.same: dict[int, list[Node]] = {}  # the nodes that are one and the same tensor
        for node in graph.nodes:
            if (value := _tensor(node)) is not None:
                self.same.setdefault(id(value), []).append(node)
        self.forms: dict[Node, str] = {}
        self.tickets = {node.args[2]: node for node in graph.nodes if _is_look(node)}
        self.looks: dict[int, Node] = {}

    def settle(self) -> None:
        for node, mark in self.marks.items():
            self.forms[node] = self._form_inside(node, mark)
        while (passed := self._passed_by()) is not None:
            self.forms[passed] = COPY
        for node, mark in self.marks.items():
            self._become(node, mark, self.forms[node])

    def _form_inside(self, node: Node, mark: Mark) -> str:
        """The form of a mark, whether or not it leaves the graph."""
        source = self._marked(node)
        tensor = _tensor(source)
        assert tensor is not None
        if mark.number == 0:  # a HookBackward
            return COPY
        written = compat.version(tensor) != mark.version
        if self._is_alone(node, mark) and not (written and compat.is_view(tensor)):
            return PLAIN
        if not written:
            return VIEW
        if self._used_beside(node):
            return LOST
        if not compat.is_view(tensor):
            return RENEWED
        return LOST if _is_given(self._root(source)) else COPY

    def _marked(self, node: Node) -> Node:
        """The node that made the tensor which a mark is a mark of, once marks that become nothing are gone."""
        while True:
            node = self.same[id(_tensor(_source(node)))][0]  # what writes into a tensor gives the same tensor
            if self.forms.get(node) not in (PLAIN, RENEWED, LOST):
                return node

    def _is_alone(self, node: Node, mark: Mark) -> bool:
        """Whether nothing else than this mark uses the tensor that it marks, as it is there."""
        source = _source(node)
        inner = self.marks.get(source)
        if inner is not None and (inner.joint or mark.joint or self.forms[source] == LOST):
            return False  # the hooks of one tensor run in the order of the forward, not of the backward
        for twin in self.same[id(_tensor(source))]:
            if _is_given(twin):
                return False
            for user in twin.users:
                if user is not node and self.order[user] > self.order[source] and not _only_looks(user):
                    return False
        return True

    def _used_beside(self, node: Node) -> bool:
        """Whether memory that a mark shows is used later by something that does not come from the mark."""
        memory, here = _memory(node), self.order[node]
        from_mark = {node}
        for later in list(self.graph.nodes)[here + 1 :]:
            shown = [one for one in later.all_input_nodes if _memory(one) == memory]
            if not shown or _only_looks(later):
                continue
            if any(one not in from_mark for one in shown):
                return True
            from_mark.add(later)
        return False

    def _passed_by(self) -> Node | None:
        """A mark that torch would pass by with the gradient of an output of the graph, if there is one."""
        roots = [self._root(output) for output in self.outputs]
        for output, root in zip(self.outputs, roots, strict=True):
            node = self._last_mark(output)
            if node is None or self.forms[node] in (COPY, RENEWED, LOST):
                continue
            shown = _tensor(self._marked(node))
            part_of_another = roots.count(root) > 1 and shown is not None and compat.is_view(shown)
            if self.forms[node] == VIEW or _is_given(root) or part_of_another:
                return node
        return None

    def _last_mark(self, node: Node) -> Node | None:
        """The mark that `node` shows the memory of."""
        found: Node | None = node
        while found is not None and found not in self.marks:
            found = self._shown(found)
        return found

    def _root(self, node: Node) -> Node:
        """The node that made the memory of `node`."""
        while (shown := self._shown(node)) is not None:
            node = shown
        return node

    def _shown(self, node: Node) -> Node | None:
        """The node whose memory `node` shows; None where it has its own."""
        if self.forms.get(node) == COPY:
            return None
        return next((one for one in node.all_input_nodes if _memory(one) == _memory(node)), None)

    def _become(self, node: Node, mark: Mark, form: str) -> None:
        if form == LOST:
            self._lose(mark)
        source = _source(node)
        tensor = source if form in (PLAIN, LOST) else node
        if form == COPY:
            if mark.after and self._shares(source):
                tapped(mark.number).remark = _COPIED
            if mark.number == 0:
                node.target, node.args = "clone", (source,)
            else:
                node.op, node.target = "call_function", torch.ops.hookline.copied
                node.args = (source, self.order[node])
        elif form == RENEWED:
            node.target, node.args = "mul_", (source, 1)
        before = node
        for role, door, carries in () if form == LOST else mark.hooks:
            look = self._look(node, door, carries)
            with self.graph.inserting_after(before):
                before = self.graph.call_function(hang, (tensor, role, look, mark.place))
            before.meta["example_value"] = tensor.meta["example_value"]
            tensor = before
        node.replace_all_uses_with(tensor, lambda user: self.order.get(user, 0) > self.order[node])
        if form in (PLAIN, LOST):
            self.graph.erase_node(node)

    def _look(self, node: Node, door: int, carries: bool) -> Node:
        """What gets the gradients of a door; made before `node`, the first mark that needs it."""
        if door not in self.looks:
            with self.graph.inserting_before(node):
                self.looks[door] = self.graph.call_function(Look, (self.tickets[door] if carries else None, door))
        return self.looks[door]

    def _shares(self, source: Node) -> bool:
        """Whether somebody outside of the graph could tell a copy of `source` from `source` itself."""
        shown = [output for output in self.outputs if _memory(output) == _memory(source)]
        return len(shown) > 1 or _is_given(self._root(source))

    def _lose(self, mark: Mark) -> None:
        """Says that a place can't be told apart."""
        state = tapped(mark.number)
        if mark.joint:
            label = next(tap.label for tap in state.taps(mark.after) if tap.needs.joint)
            raise Unsupported(
                backend="torch", feature=f"a {label.kind} at {label.site!r}", why=_WRITTEN, instead=_INSTEAD
            )
        state.remark = f"no gradient of {'an output' if mark.after else 'an argument'}: {_WRITTEN}"


_COPIED = (
    "in compiled code an output that shares its memory with an argument or another output is a copy while its "
    "gradient is heard: what is written into one later does not reach the other"
)
_WRITTEN = (
    "the model is compiled, and a tensor there is written to in place while the same memory is used elsewhere, "
    "so that its gradient can't be told from theirs"
)
_INSTEAD = "run the model eagerly, or write to a copy"


def _flat(args: Any) -> Iterator[Node]:
    if isinstance(args, Node):
        yield args
    elif isinstance(args, (tuple, list)):
        for one in args:
            yield from _flat(one)


def _source(node: Node) -> Node:
    source = node.args[0]
    assert isinstance(source, Node)
    return source


def _tensor(node: Node) -> torch.Tensor | None:
    """The tensor, a fake one, that a node of the graph stands for."""
    value = node.meta.get("example_value")
    return value if isinstance(value, torch.Tensor) else None


def _memory(node: Node) -> Any:
    value = _tensor(node)
    return None if value is None or value.layout is not torch.strided else compat.memory_of(value)


def _is_given(node: Node) -> bool:
    """Whether the tensor comes from outside: an argument, a parameter."""
    return node.op in ("placeholder", "get_attr")


def _is_look(node: Node) -> bool:
    return node.target is torch.ops.hookline.seen


def _only_looks(node: Node) -> bool:
    """Whether no gradient comes back from a node."""
    if _is_look(node):
        return True
    value = node.meta.get("example_value")
    if value is None:  # an output of the graph, or something that writes
        return False
    tensors = [
        one for one in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(one, torch.Tensor)
    ]
    return not any(one.requires_grad for one in tensors)
