"""Listening: the gradients of one module call, heard without touching the graph.

The gradient of an output is heard by a hook on the output tensor. The gradient of an input, the
module's own share, is what the autograd nodes made during the call send to that input. These
*senders* are found by walking back from the output over the nodes that are younger than the call,
and hooks are put on them. So a graph with and without hooks is the same graph, and its gradients are
equal to the last bit. (An alias of the input, as torch's full backward hooks make, sums the module's
share apart from other uses of the tensor, with other rounding, and fails on in-place operations.)

One exception: a module that returns its input as it is (`Identity`, `Dropout` in eval) made no node
of its own. Its output becomes a view, whose node is then the sender.

Closures that hang on hooks hold no tensor of the graph: such a cycle runs through C++, where
Python's collector can't see it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from hookline.backends.protocol import GradSink
from hookline.backends.torch.compat import graph_task, is_view, listen, node_number, sequence_number, version
from hookline.backends.torch.leaves import Ear, aliased, differentiable, whole_base
from hookline.trees import map_leaves

Tensor = torch.Tensor
Edge = tuple[Any, int]
Edges = list[tuple[int, list[int]]]
"""Of one sender: (index of the edge, numbers of the input's places)."""
Memory = dict[str, int] | None
"""Of a site: {name of the autograd node that alone feeds the input: index of that edge}, see `site_memory`."""
Found = list[tuple[Tensor, list[int]]]


class Listener:
    """One call's passage; sinks get (numbers of the places, gradient), what they return is ignored."""

    entered: list[tuple[Tensor, int, Edge, list[int]]] | tuple[()] = ()
    views: list[tuple[Tensor, int]] | tuple[()] = ()
    targets: dict[Edge, list[int]] | None = None
    inputs: Found | tuple[()] = ()
    start = 0

    def __init__(self, on_input: GradSink, on_output: GradSink, memory: Memory = None) -> None:
        self.on_input = on_input
        self.on_output = on_output
        self.memory = memory

    def enter(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        whole = args[0] if len(args) == 1 and not kwargs else (args, kwargs)
        found, _ = differentiable(whole)
        if found:
            self.aim(found)
        return args, kwargs

    def aim(self, found: Found) -> None:
        """Remembers where the gradients of the inputs are sent, before the module runs."""
        self.targets = targets = {}
        self.inputs = found
        for leaf, numbers in found:
            targets[edge_of(leaf)] = numbers
            if is_view(leaf) and (base := whole_base(leaf)) is not None:
                self.entered = [*self.entered, (leaf, version(leaf), edge_of(base), numbers)]
        self.start = sequence_number()

    def leave(self, output: Any) -> Any:
        found, _ = differentiable(output)
        targets, self.targets = self.targets, None
        if targets is None:
            for leaf, numbers in found:
                self.hear_output(leaf, numbers)
            return output
        for leaf, before, edge, numbers in self.entered:
            if version(leaf) != before:
                targets[edge] = numbers  # written to, a view is out of the graph and its base stands in
        for leaf, _ in found:
            if (leaf.grad_fn, leaf.output_nr) in targets or leaf.grad_fn is None:
                output, found = self._identities_apart(output, found, targets)
                break
        senders = self._remembered(found, targets)
        if senders is None:
            senders = self.senders([leaf.grad_fn for leaf, _ in found], targets)
            self._remember(found, senders)
        self.hear_call(found, senders, targets)
        self.entered, self.inputs = (), ()
        return output

    def _remembered(self, found: Found, targets: dict[Edge, list[int]]) -> dict[Any, Edges] | None:
        """The senders of a one-operation module, if an earlier call found the operation to be the one."""
        if not self.memory or len(found) != 1 or len(targets) != 1:
            return None
        node: Any = found[0][0].grad_fn
        index = self.memory.get(node.name())
        if index is None or (numbers := targets.get(node.next_functions[index])) is None:
            return None
        return {node: [(index, numbers)]}

    def _remember(self, found: Found, senders: dict[Any, Edges]) -> None:
        if self.memory is not None and len(found) == 1 and len(senders) == 1:
            node: Any = found[0][0].grad_fn
            edges = senders.get(node, ())
            if len(edges) == 1:
                self.memory[node.name()] = edges[0][0]

    def hear_call(self, found: Found, senders: dict[Any, Edges], targets: dict[Edge, list[int]]) -> None:
        """Puts the hooks of one call on its outputs and on what feeds its inputs."""
        if len(found) == 1 and len(senders) == 1:
            leaf, numbers = found[0]
            node: Any = leaf.grad_fn
            if node in senders and not is_view(leaf):
                # One operation: one hook hears what comes in and what goes out.
                node.register_hook(
                    partial(_both, self.on_input, senders[node], self.on_output, numbers, leaf.output_nr)
                )
                return
        for leaf, numbers in found:
            self.hear_output(leaf, numbers)
        sink = Sum(self.on_input) if len(senders) > 1 else self.on_input
        for node, edges in senders.items():
            node.register_hook(partial(_inputs, sink, edges))

    def hear_output(self, leaf: Tensor, numbers: list[int]) -> None:
        """A hook on an output; of a view also on its base, which stands in once the view is written to."""
        if not is_view(leaf):
            listen(leaf, partial(self.on_output, numbers))
            return
        ear = Ear(numbers, self.on_output)
        ear.watch(leaf)
        listen(leaf, ear.alias)
        if (base := whole_base(leaf)) is not None:
            ear.fallback = self._shown_through(base) or self.on_output
            listen(base, ear.original)
        else:
            self.views = [*self.views, (leaf.detach(), version(leaf))]

    def _shown_through(self, base: Tensor) -> GradSink | None:
        """Of an output that shows all of `base`, which shows all of an input: what hears both gradients.

        Written to later, the output is out of the graph, and with it the node that feeds the input.
        """
        for leaf, numbers in self.inputs:
            if leaf is base or whole_base(leaf) is base:
                return partial(_reshaped, self.identity_sink(numbers), self.on_output, leaf.shape)
        return None

    def senders(self, roots: list[Any], targets: dict[Edge, list[int]]) -> dict[Any, Edges]:
        """The nodes of this call with an edge to an input, and which edges these are."""
        start = self.start
        senders: dict[Any, Edges] = {}
        # One node may have made several outputs (split): a second visit would count its edges twice.
        seen = {node for node in roots if node is not None and node_number(node) >= start}
        stack = list(seen)
        while stack:
            node = stack.pop()
            for index, edge in enumerate(node.next_functions):
                if edge in targets:
                    senders.setdefault(node, []).append((index, targets[edge]))
                    continue
                child = edge[0]
                # Accumulators of parameters have no way on; older nodes are not of this call.
                if child is None or child in seen or node_number(child) < start or not child.next_functions:
                    continue
                seen.add(child)
                stack.append(child)
        return senders

    def _identities_apart(self, output: Any, found: Found, targets: dict[Edge, list[int]]) -> tuple[Any, Found]:
        """The output with a view in place of every tensor that came in and goes out as it is."""
        views: dict[int, Tensor] = {}
        rest = []
        for leaf, numbers in found:
            if (inputs := targets.get(edge_of(leaf))) is None:
                rest.append((leaf, numbers))
                continue
            views[id(leaf)] = view = aliased(leaf)
            ear = Ear(numbers, self.identity_sink(inputs))
            listen(view, ear.alias)
            if view is not leaf:
                ear.watch(view)
                # A leaf that is a view itself goes out of the graph together with this one.
                base = whole_base(leaf)
                listen(leaf if base is None else base, ear.original)
        return map_leaves(lambda leaf: views.get(id(leaf), leaf), output, Tensor), rest

    def identity_sink(self, inputs: list[int]) -> GradSink:
        """What hears the gradient of an output that is an input as well."""
        return partial(_identity, self.on_input, inputs, self.on_output)


def heard(output: Any, sink: GradSink) -> Any:
    """`output`; `sink` is called with (numbers, gradient) for each differentiable tensor of it."""
    listener = Listener(sink, sink)
    for leaf, numbers in differentiable(output)[0]:
        listener.hear_output(leaf, numbers)
    return output


def site_memory(module: torch.nn.Module) -> Memory:
    """The memory of a torch module without parts, one for each type; None for any other module.

    Those run one fixed operation, so what one call found holds for the next; code of users may use
    its input now once and now twice, and is looked through every time.
    """
    kind = type(module)
    if module._modules or not kind.__module__.startswith("torch.nn.modules."):
        return None
    return _MEMORIES.setdefault(kind, {})


_MEMORIES: dict[type, dict[str, int]] = {}


def edge_of(leaf: Tensor) -> Edge:
    """The place in the graph to which the gradient of `leaf` is sent."""
    node = leaf.grad_fn
    if node is not None:
        return node, leaf.output_nr
    edge = get_gradient_edge(leaf)
    return edge.node, edge.output_nr


def totals(edges: Edges, grads: Any) -> dict[int, tuple[list[int], Any]]:
    """What one sender sends to each input; x * x sends two gradients to one."""
    total: dict[int, tuple[list[int], Any]] = {}
    for index, numbers in edges:
        if (grad := grads[index]) is not None:
            key = numbers[0]
            total[key] = numbers, grad if key not in total else total[key][1] + grad
    return total


def _inputs(sink: GradSink, edges: Edges, grads: Any, _: Any) -> None:
    if len(edges) == 1:
        index, numbers = edges[0]
        if (grad := grads[index]) is not None:
            sink(numbers, grad)
        return
    for numbers, grad in totals(edges, grads).values():
        sink(numbers, grad)


def _both(
    on_input: GradSink,
    edges: Edges,
    on_output: GradSink,
    numbers: list[int],
    output_nr: int,
    grads: Any,
    grad_outputs: Any,
) -> None:
    if (grad := grad_outputs[output_nr]) is not None:
        on_output(numbers, grad)
    _inputs(on_input, edges, grads, None)


def _identity(
    on_input: GradSink, inputs: list[int], on_output: GradSink, outputs: list[int], grad: Tensor
) -> None:
    on_output(outputs, grad)
    on_input(inputs, grad)


def _reshaped(both: GradSink, on_output: GradSink, shape: Any, outputs: list[int], grad: Tensor) -> Any:
    """`both` with the gradient in the input's shape, and the output's told in its own."""
    result = both(outputs, grad.reshape(shape))
    on_output(outputs, grad)
    return None if result is None else result.reshape(grad.shape)


class Sum:
    """Adds up what several senders send to one input; the sink gets the sum so far."""

    __slots__ = ("sink", "task", "totals")

    def __init__(self, sink: GradSink) -> None:
        self.sink = sink
        self.task = -1
        self.totals: dict[int, Tensor] = {}

    def __call__(self, numbers: list[int], grad: Tensor) -> None:
        if self.task != graph_task():  # another backward over the same graph
            self.task, self.totals = graph_task(), {}
        before = self.totals.get(numbers[0])
        self.totals[numbers[0]] = total = grad.detach() if before is None else before + grad.detach()
        self.sink(numbers, total)
