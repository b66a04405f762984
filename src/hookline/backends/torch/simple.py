"""Simple: what hooks on the nodes of a simple call tell. One node made its only output, one feeds its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline.backends.torch.compat import graph_task
from hookline.backends.torch.ports import Port

if TYPE_CHECKING:
    from hookline.backends.torch.passages import Passage


def tell_output(passage: Passage, output_nr: int, grads: Any, grad_outputs: Any) -> None:
    """After the node that made the only output: what came to it."""
    grad = grad_outputs[output_nr]
    if grad is not None and not passage.by_ledger:
        passage.tell(passage.outputs[0], grad, graph_task())


def tell_inputs(passage: Passage, sent: list[tuple[int, Port]], grads: Any, _: Any) -> Any:
    """After the only node that feeds inputs: what it sends to them, or what is to be sent instead."""
    task = graph_task()
    if passage.told_in != task or passage.by_ledger:
        return None
    totals: dict[int, tuple[Port, Any]] = {}
    for index, port in sent:
        if (grad := grads[index]) is not None:  # x * x sends two gradients to one input
            key = port.numbers[0]
            totals[key] = port, grad if key not in totals else totals[key][1] + grad
    if passage.joint_in is None:
        for port, grad in totals.values():
            passage.tell(port, grad, task)
        return None
    ((port, grad),) = totals.values() or ((sent[0][1], None),)
    new = passage.ask([(port, grad)], task, False)[0]
    if new is grad:
        return None
    result = [None if any(index == one for one, _ in sent) else one for index, one in enumerate(grads)]
    result[sent[0][0]] = new
    return tuple(result)


def tell_both(
    passage: Passage, output_nr: int, sent: list[tuple[int, Port]], grads: Any, grad_outputs: Any
) -> Any:
    """After the only node of a call."""
    tell_output(passage, output_nr, grads, grad_outputs)
    return tell_inputs(passage, sent, grads, grad_outputs)
