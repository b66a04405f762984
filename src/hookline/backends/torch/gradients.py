"""Gradients: what a tap asks of them, in code that runs as written and inside a compiled graph."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

from hookline.backends.protocol import Asked, GradSink, Joining, JointSink, Listening, Told
from hookline.backends.torch.compiled.tickets import GraphPassage, looks
from hookline.backends.torch.engine import EngineRun, observe_backwards
from hookline.backends.torch.grads.backward import Backward
from hookline.backends.torch.grads.births import births
from hookline.backends.torch.grads.leaves import live_leaves
from hookline.backends.torch.grads.marks import Kind, looked_up, replacing
from hookline.backends.torch.grads.passages import Passage
from hookline.backends.undoing import stacked


def listener(sink: Told, memory: Any) -> Listening:
    if looks.ticket is not None:
        return GraphPassage(sink._hear_input, None, sink._hear_output)
    return Passage(sink)


def heard(output: Any, sink: GradSink, call: int, references: int) -> Any:
    if (run := looks.ticket) is not None:
        run.sink = sink
        return output
    passage = Passage()
    passage.on_output = sink
    return passage.leave(output, call, references)


def joined_inputs(sink: Asked, memory: Any) -> Joining:
    if looks.ticket is not None:
        return GraphPassage(None, sink._ask, sink._hear_output)
    return Passage(sink, True)


def joined(output: Any, sink: JointSink, call: int, references: int) -> Any:
    if (run := looks.ticket) is not None:
        run.joint = sink
        return output
    passage = Passage()
    passage.joint_out = sink
    return passage.leave(output, call, references)


def tapped(tensors: tuple[Any, ...], sink: JointSink) -> tuple[Any, ...]:
    """The tensors to go on with; `sink` gets the gradients that come back to this very point.

    Other uses of the same tensors, before this point, don't count; a later in-place change is fine.
    """
    passage = Passage()
    passage.joint_out = sink
    return passage.point(tensors)


def needs_gradient(tree: Any) -> bool:
    """Whether a tensor of this structure is part of a graph."""
    if (run := looks.ticket) is None:
        return bool(live_leaves(tree)[0])
    return any(run.live)


@stacked
def observed(stack: ExitStack, run: EngineRun) -> None:
    """Around a run of the engine: tells the gradients of all passages that it comes by."""
    replaced = bool(run.inputs) and replacing.alive() is not None  # not every node runs
    if looked_up.alive() is None and not replaced and not run.create_graph and not births:
        return
    backward = Backward(run)
    stack.callback(backward.close)
    stack.callback(backward.close)
    stack.push(partial(_end, backward, run))
    backward.begin()


def _end(backward: Backward, run: EngineRun, kind: Any, error: Any, trace: Any) -> None:
    if error is None:
        run.result = backward.end(run.result)


Kind.observe = staticmethod(partial(observe_backwards, observed))
