"""Simple: calls whose gradients hooks on nodes tell: one made the only output, one feeds the inputs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from hookline.backends.torch.compat import graph_task, node_number
from hookline.backends.torch.grads.marks import marked
from hookline.backends.torch.grads.ports import Port, is_looked_up

if TYPE_CHECKING:
    from hookline.backends.torch.grads.passages import Passage

Sent = tuple[tuple[int, Port], ...]
"""Which of the gradients that a node sends go to which port."""

SIMPLE = 16
"""A call that makes more nodes is not looked through to find out whether it is simple."""


def hear_simply(passage: Passage, node: Any, output_nr: int, end: int) -> bool:
    """Hooks on the node of the only output and on that which feeds inputs; False if it is not so simple."""
    if marked.looked_up and is_looked_up(node, passage):
        return False
    if not passage.inputs:
        # Nothing of the call is younger than the node, so nothing of the call uses the output.
        if node_number(node) != end - 1:
            return False
        node.register_hook(partial(tell_output, passage, output_nr))
        return True
    if end - passage.start > SIMPLE or (passage.joint_in is not None and len(passage.inputs) > 1):
        return False
    sender, sent = _only_sender(passage, node, output_nr, end)
    if sender is None or (passage.joint_in is not None and not sent):
        return False
    if sender is node:
        node.register_hook(partial(tell_both, passage, output_nr, sent))
        return True
    node.register_hook(partial(tell_output, passage, output_nr))
    if sent:
        sender.register_hook(partial(tell_inputs, passage, sent))
    return True


def _only_sender(passage: Passage, root: Any, output_nr: int, end: int) -> tuple[Any, Sent]:
    """The only node of the call that sends to inputs, and what it sends to which of them; `root` and nothing
    where none does. None if there are several, or nodes that the output does not lead to."""
    # One tensor comes in at most calls; then it is compared, which takes less time than looking it up.
    first, targets = passage.inputs[0], None
    if len(passage.inputs) > 1:
        targets = {port.edge: port for port in passage.inputs}
    target, target_nr = first.edge or (None, 0)
    start = passage.start
    sender: Any = root
    sent: Sent = ()
    seen, stack = {root}, [root]
    while stack:
        node = stack.pop()
        for index, edge in enumerate(node.next_functions):
            child, child_nr = edge
            if child is None:
                continue
            if child is root and child_nr == output_nr:
                return None, ()
            if targets is not None:
                port = targets.get(edge)
            else:
                port = first if child is target and child_nr == target_nr else None
            if port is not None:
                if sent and sender is not node:
                    return None, ()
                sender, sent = node, (*sent, (index, port))
            elif child not in seen and start <= node_number(child) < end:
                seen.add(child)
                stack.append(child)
    return (sender, sent) if len(seen) == end - start else (None, ())


def tell_output(passage: Passage, output_nr: int, grads: Any, grad_outputs: Any) -> None:
    """After the node that made the only output: what came to it."""
    grad = grad_outputs[output_nr]
    if grad is not None and not passage.by_ledger:
        assert passage.on_output is not None
        passage.told_in = graph_task()
        passage.on_output(passage.outputs[0].numbers, grad)


def tell_inputs(passage: Passage, sent: Sent, grads: Any, _: Any) -> Any:
    """After the only node that feeds inputs: what it sends to them, or what is to be sent instead."""
    if passage.told_in != graph_task() or passage.by_ledger:
        return None
    totals = [(sent[0][1], grads[sent[0][0]])] if len(sent) == 1 else _totals(sent, grads)
    if passage.joint_in is None:
        assert passage.on_input is not None
        for port, grad in totals:
            if grad is not None:
                passage.on_input(port.numbers, grad)
        return None
    ((port, grad),) = totals  # see `Passage._hear_simply`
    new = passage.ask([(port, grad)], graph_task(), False)[0]
    if new is grad:
        return None
    result = [None if any(index == one for one, _ in sent) else one for index, one in enumerate(grads)]
    result[sent[0][0]] = new
    return tuple(result)


def tell_both(passage: Passage, output_nr: int, sent: Sent, grads: Any, grad_outputs: Any) -> Any:
    """After the only node of a call."""
    tell_output(passage, output_nr, grads, grad_outputs)
    return tell_inputs(passage, sent, grads, grad_outputs)


def _totals(sent: Sent, grads: Any) -> list[tuple[Port, Any]]:
    """The gradient of each port: x * x sends two to one input."""
    totals: dict[int, tuple[Port, Any]] = {}
    for index, port in sent:
        key, grad = port.numbers[0], grads[index]
        before = totals[key][1] if key in totals else None
        totals[key] = port, grad if before is None else before if grad is None else before + grad
    return list(totals.values())
