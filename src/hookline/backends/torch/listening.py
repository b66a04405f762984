"""Listening: the gradients of one module call, heard without touching the graph.

The gradient of an output is heard by a hook on the output tensor. The gradient of an input, the
module's own share, is what the autograd nodes made during the call send to that input: they are
found by walking back from the output over nodes younger than the call, and listened to. So a graph
with and without a recording is the same graph, and its gradients are equal to the last bit. (An
alias of the input, as torch's full backward hooks make, sums the module's share apart from other
uses of the tensor: other rounding; and it fails on in-place operations.)

One exception: a module that returns its input as it is (`Identity`, `Dropout` in eval) made no node
of its own. Its output becomes a view, so that its share can be told from other uses of the tensor.

Closures that hang on hooks hold no tensor of the graph: such a cycle runs through C++, where
Python's collector can't see it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from hookline.backends.protocol import GradSink
from hookline.backends.torch.compat import base_of, graph_task, listen, node_number, sequence_number, version
from hookline.backends.torch.leaves import Ear, aliased, differentiable, whole_base
from hookline.trees import map_leaves

Tensor = torch.Tensor
Edge = tuple[Any, int]


class Listener:
    """One call's passage; sinks get (numbers of the places, gradient) and can't change anything."""

    __slots__ = ("entered", "on_input", "on_output", "start", "targets", "views")

    def __init__(self, on_input: GradSink | None, on_output: GradSink | None) -> None:
        self.on_input = on_input
        self.on_output = on_output
        self.targets: dict[Edge, list[int]] = {}
        self.entered: list[tuple[Tensor, int, Edge, list[int]]] = []
        self.start = 0
        self.views: list[tuple[Tensor, int]] = []

    def enter(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        if self.on_input is not None and torch.is_grad_enabled():
            whole = args[0] if len(args) == 1 and not kwargs else (args, kwargs)
            for leaf, numbers in differentiable(whole)[0]:
                self.targets[_edge(leaf)] = numbers
                if (base := whole_base(leaf)) is not None:
                    self.entered.append((leaf, version(leaf), _edge(base), numbers))
            self.start = sequence_number()
        return args, kwargs

    def leave(self, output: Any) -> Any:
        targets, self.targets = self.targets, {}
        for leaf, before, edge, numbers in self.entered:
            if version(leaf) != before:
                targets[edge] = numbers  # written to, a view is out of the graph and its base stands in
        self.entered.clear()
        found, _ = differentiable(output)
        if targets:
            output, found = self._identities_apart(output, found, targets)
        heard = self._hear_inputs(found, targets) if targets else None
        if self.on_output is not None:
            for leaf, numbers in found:
                if leaf is not heard:
                    self._hear_output(leaf, numbers)
        return output

    def _hear_output(self, leaf: Tensor, numbers: list[int]) -> None:
        assert self.on_output is not None
        if base_of(leaf) is None:
            listen(leaf, partial(self.on_output, numbers))
            return
        # The hook of a view gets no gradient once the view is written to; that of its base does.
        ear = Ear(numbers, self.on_output)
        ear.watch(leaf)
        listen(leaf, ear.alias)
        if (base := whole_base(leaf)) is not None:
            listen(base, ear.original)
        else:
            self.views.append((leaf.detach(), version(leaf)))

    def _hear_inputs(self, found: list[tuple[Tensor, list[int]]], targets: dict[Edge, list[int]]) -> Any:
        """Hooks on the nodes that feed the inputs; the output leaf that needs no hook any more."""
        senders = self._senders([leaf.grad_fn for leaf, _ in found], targets)
        assert self.on_input is not None
        if len(senders) == 1 and len(found) == 1 and self.on_output is not None and base_of(found[0][0]) is None:
            leaf, numbers = found[0]
            node: Any = leaf.grad_fn
            if (edges := senders.get(node)) is not None:
                # One operation: one hook hears what comes in and what goes out.
                node.register_hook(partial(_both, self.on_input, edges, self.on_output, numbers, leaf.output_nr))
                return leaf
        sum_up = _Sum(self.on_input) if len(senders) > 1 else self.on_input
        for node, edges in senders.items():
            node.register_hook(partial(_inputs, sum_up, edges))
        return None

    def _senders(self, roots: list[Any], targets: dict[Edge, list[int]]) -> dict[Any, list[Any]]:
        """Nodes of this call with an edge to an input: {node: [(index of the edge, numbers), ...]}."""
        start = self.start
        senders: dict[Any, list[Any]] = {}
        seen = {node for node in roots if node is not None and node_number(node) >= start}
        stack = list(seen)
        while stack:
            node = stack.pop()
            for index, edge in enumerate(node.next_functions):
                if edge in targets:
                    senders.setdefault(node, []).append((index, targets[edge]))
                elif (
                    (child := edge[0]) is not None
                    and child not in seen
                    and node_number(child) >= start
                    and child.next_functions
                ):
                    seen.add(child)
                    stack.append(child)
        return senders

    def _identities_apart(
        self, output: Any, found: list[tuple[Tensor, list[int]]], targets: dict[Edge, list[int]]
    ) -> tuple[Any, list[tuple[Tensor, list[int]]]]:
        """The output with a view in place of every tensor that came in and goes out as it is."""
        views: dict[int, Tensor] = {}
        rest = []
        for leaf, numbers in found:
            if (inputs := targets.get(_edge(leaf))) is None:
                rest.append((leaf, numbers))
                continue
            view = aliased(leaf)
            ear = Ear(numbers, partial(_identity, self.on_input, inputs, self.on_output))
            listen(view, ear.alias)
            if view is not leaf:
                ear.watch(view)
                listen(leaf, ear.original)
            views[id(leaf)] = view
        if views:
            output = map_leaves(lambda leaf: views.get(id(leaf), leaf), output, Tensor)
        return output, rest


def _edge(leaf: Tensor) -> Edge:
    node = leaf.grad_fn
    if node is not None:
        return node, leaf.output_nr
    edge = get_gradient_edge(leaf)
    return edge.node, edge.output_nr


def _inputs(sink: GradSink, edges: list[tuple[int, list[int]]], grads: Any, _: Any) -> None:
    total: dict[int, Any] = {}
    for index, numbers in edges:  # x * x sends two gradients to one input
        if (grad := grads[index]) is not None:
            key = numbers[0]
            total[key] = (numbers, grad if key not in total else total[key][1] + grad)
    for numbers, grad in total.values():
        sink(numbers, grad)


def _both(
    on_input: GradSink,
    edges: list[tuple[int, list[int]]],
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
    on_input: GradSink | None, inputs: list[int], on_output: GradSink | None, outputs: list[int], grad: Tensor
) -> None:
    if on_output is not None:
        on_output(outputs, grad)
    if on_input is not None:
        on_input(inputs, grad)


class _Sum:
    """Adds up what several nodes send to one input; the sink gets the sum so far."""

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
