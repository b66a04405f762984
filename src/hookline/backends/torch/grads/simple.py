"""Simple: calls whose gradients hooks on nodes tell: one made the only output, one feeds the inputs.

Most calls of most models are such, and one tensor enters them and one leaves. These are plain: no port is made
for them, nothing is walked but the few nodes of the call, and the passage itself is what the nodes hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hookline.backends.protocol import GradSink, JointSink
from hookline.backends.torch.compat import are_followed, graph_task, is_view, node_number, sequence_number
from hookline.backends.torch.grads.leaves import Edge, kept
from hookline.backends.torch.grads.marks import every_passage, replacing
from hookline.backends.torch.grads.ports import FOREVER, ONLY, Port, is_looked_up
from hookline.backends.torch.grads.threads import Here, here, threads

Tensor = torch.Tensor
Sent = tuple[tuple[int, tuple[int, ...]], ...]
"""Which of the gradients that a node sends go to which port: its index, and the port's numbers."""

SIMPLE = 16
"""A call that makes more nodes is not looked through to find out whether it is simple."""


class Simple:
    """One call, as long as it is simple: who is told what comes by; `Passage` is the whole of it.

    `on_input` and `on_output` are told each gradient; `joint_in` and `joint_out`, in place of these, get all
    gradients of a side at once and may replace them. `live` inputs need a gradient. `remark` says what looking
    may have changed.
    """

    # A passage is made for every call, and stays until the graph goes: what most have no use for is not made.
    on_input: GradSink | None = None
    on_output: GradSink | None = None
    joint_in: JointSink | None = None
    joint_out: JointSink | None = None
    on_doubt: Callable[[str], None] | None = None
    remark: str | None = None
    simple = True
    by_ledger = False
    """Whether the backward under way looks a simple passage up all the same."""
    told_in: int | None = None  # the last backward in which an output had a gradient
    live = places_in = places_out = start = group = 0
    span = (0, 0)  # of the call: one for all of its passages, which may have made views in between
    marks: Any = None  # see `marks.Kind`
    entered: Edge | None = None
    """The edge of the only tensor that entered, if it did so plainly: then there is no port for it yet."""
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    mixed = False
    """Whether views came in, or copies had to be made: then it is not plain."""
    before = 0
    """How many passages of this thread had to be looked up when it was entered."""
    output_nr = 0
    _numbers = ONLY
    _sent: Sent = ()

    # In the forward

    def enter(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments to go on with."""
        thread = here.now
        if not thread.is_main:
            threads.note()
        self.before = thread.looked_up
        if len(args) == 1 and not kwargs and type(leaf := args[0]) is Tensor and not threads.several:
            node = leaf.grad_fn
            if node is not None and not is_view(leaf):
                self.entered = node, leaf.output_nr
                self.live = self.places_in = 1
                self.start = sequence_number()
                return args, kwargs
        return self.enter_anyhow(args, kwargs)

    def leave(self, output: Any, call: int, references: int) -> Any:
        """The output to go on with. `call` is one number for all hooks of a call, and no other call's;
        `references` is what the hook counted of `output`.

        Plain is a call that a tensor left which is no view and which nobody else has, in which no other call has
        to be looked up, and which nobody else has hooked.
        """
        thread, start = here.now, self.start
        if not start and not thread.is_main:
            threads.note()
        if (
            type(output) is not Tensor
            or (node := output.grad_fn) is None
            or call == thread.call
            or references > kept.alone
            or threads.several
            or self.mixed
            or (start and thread.looked_up != self.before)
            or is_view(output)
            or not are_followed()
        ):
            return self.leave_anyhow(output, call, references)
        end = sequence_number()
        if not self.hear(thread, node, output.output_nr, end):
            self.simple = False
            return self.leave_anyhow(output, call, references)
        self.places_out = 1
        thread.group = self.group = thread.group + 1
        thread.call, thread.looking, thread.known = call, end, (id(output),)
        thread.span = self.span = start, end
        kind = every_passage if self.joint_out is None else replacing
        self.marks = kind.alive() or kind.made()
        return output

    def enter_anyhow(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The same of any call."""
        raise NotImplementedError

    def leave_anyhow(self, output: Any, call: int, references: int) -> Any:
        """The same of any call, which may be simple without being plain."""
        raise NotImplementedError

    def hear(self, thread: Here, node: Any, output_nr: int, end: int) -> bool:
        """Hooks on the node of the only output and on that which feeds inputs; False if it is not so simple."""
        number, start = node_number(node), self.start
        # A node that is younger than all those has nobody else's port; most are.
        if (number <= thread.marked or threads.several) and self._is_claimed(node):
            return False
        self.output_nr = output_nr
        if self.entered is None and not self.inputs:
            # Nothing of the call is younger than the node, so nothing of the call uses the output.
            if number != end - 1:
                return False
            if self.joint_out is None:
                node.register_hook(self.tell_output)
            else:
                node.register_prehook(self.ask_output)
                thread.marked = number
            return True
        if number < start or end - start > SIMPLE or (self.joint_in is not None and len(self.inputs) > 1):
            return False
        sender, sent = _only_sender(node, start, end, self.entered, self.inputs)
        if sender is None or (self.joint_in is not None and not sent):
            return False
        self._sent = sent
        if sender is node:
            node.register_hook(self.tell_both)
            return True
        node.register_hook(self.tell_output)
        if sent:
            sender.register_hook(self.tell_inputs)
        return True

    def _is_claimed(self, node: Any) -> bool:
        """Whether somebody else's port at this node is to be settled before or after: it is looked up, or it
        replaces what comes to the output of another call."""
        if is_looked_up(node, self):
            return True
        return replacing.alive() is not None and any(other.group != self.group for other in replacing_at(node))

    def lay_out(self) -> None:
        """Makes the ports of a plain call: it has to be looked up."""
        self.lay_out_input()
        if not self.outputs:
            port = Port(ONLY, outward=True)
            port.low, port.high = self.span[1], FOREVER
            self.outputs = (port,)

    def lay_out_input(self) -> None:
        if self.entered is not None:
            port = Port(ONLY, outward=False)
            port.edge, port.low, port.high = self.entered, self.start, self.span[1]
            self.inputs, self.entered = (port,), None

    # In a backward

    def tell_both(self, grads: Any, grad_outputs: Any) -> Any:
        """After the only node of a call, or the only one of its nodes that matters."""
        grad = grad_outputs[self.output_nr]
        if grad is None or self.by_ledger:
            return None
        self.told_in = graph_task()
        self.on_output(self._numbers, grad)  # type: ignore[misc]
        return self._told_inputs(grads)

    def tell_output(self, grads: Any, grad_outputs: Any) -> None:
        """After the node that made the only output: what came to it."""
        grad = grad_outputs[self.output_nr]
        if grad is not None and not self.by_ledger:
            self.told_in = graph_task()
            self.on_output(self._numbers, grad)  # type: ignore[misc]

    def tell_inputs(self, grads: Any, grad_outputs: Any) -> Any:
        """After the only node that feeds inputs: what it sends to them, or what is to be sent instead."""
        if self.told_in != graph_task() or self.by_ledger:
            return None
        return self._told_inputs(grads)

    def ask_output(self, grads: Any) -> Any:
        """Before the node that made the only output: what is to go on in place of what came."""
        number = self.output_nr
        grad = grads[number]
        if grad is None or self.by_ledger:
            return None
        new = self.joint_out([grad])  # type: ignore[misc]
        if new is None or new[0] is grad:
            return None
        return *grads[:number], new[0], *grads[number + 1 :]

    def _told_inputs(self, grads: Any) -> Any:
        sent = self._sent
        if self.joint_in is not None:
            return self._asked_inputs(self.joint_in, grads)
        if len(sent) == 1:
            index, numbers = sent[0]
            if grads[index] is not None:
                self.on_input(numbers, grads[index])  # type: ignore[misc]
            return None
        for numbers, grad in _totals(sent, grads).items():
            if grad is not None:
                self.on_input(numbers, grad)  # type: ignore[misc]
        return None

    def _asked_inputs(self, sink: JointSink, grads: Any) -> Any:
        sent = self._sent
        ((numbers, grad),) = _totals(sent, grads).items()  # see `hear`
        shown: list[Any] = [None] * self.places_in
        for number in numbers:
            shown[number] = grad
        new = sink(shown)
        if new is None or new[numbers[0]] is grad:
            return None
        result = list(grads)
        for index, _ in sent:
            result[index] = None
        result[sent[0][0]] = new[numbers[0]]
        return tuple(result)


def _only_sender(
    root: Any, start: int, end: int, entered: Edge | None, inputs: tuple[Port, ...]
) -> tuple[Any, Sent]:
    """The only node of a call that sends to inputs, and what it sends to which of them; `root` and nothing where
    none does. None if there are several, or nodes that the output does not lead to."""
    targets = {entered: ONLY} if entered is not None else {port.edge: port.numbers for port in inputs}
    sender: Any = root
    sent: Sent = ()
    found, count = [root], end - start
    for node in found:  # and those that are added meanwhile
        for index, edge in enumerate(node.next_functions):
            if edge in targets:
                if sent and sender is not node:
                    return None, ()
                sender, sent = node, (*sent, (index, targets[edge]))
            elif count == 1 or (child := edge[0]) is None or child in found:
                continue
            elif start <= node_number(child) < end:
                found.append(child)
    return (sender, sent) if len(found) == count else (None, ())


def _totals(sent: Sent, grads: Any) -> dict[tuple[int, ...], Any]:
    """The gradient of each port: x * x sends two to one input."""
    totals: dict[tuple[int, ...], Any] = {}
    for index, numbers in sent:
        before, grad = totals.get(numbers), grads[index]
        totals[numbers] = grad if before is None else before if grad is None else before + grad
    return totals


def simple_at(node: Any) -> list[Any]:
    """The simple passages that are told what comes to an output of this node: their hooks are on it.

    What a handle refers to are all hooks of a node. It costs less to ask for them where one has to know, in a
    second derivative, than to note each passage: 1.7 us for each call.
    """
    return _passages_of(node.register_hook, Simple.tell_output, Simple.tell_both)


def replacing_at(node: Any) -> list[Any]:
    """The simple passages that replace what comes to an output of this node."""
    return _passages_of(node.register_prehook, Simple.ask_output)


def _passages_of(register: Callable[[Any], Any], *methods: Any) -> list[Any]:
    handle = register(_nothing)
    hooks = list((handle.hooks_dict_ref() or {}).values())
    handle.remove()
    return [hook.__self__ for hook in hooks if getattr(hook, "__func__", None) in methods]


def _nothing(*grads: Any) -> None:
    """A hook that is taken off at once."""
