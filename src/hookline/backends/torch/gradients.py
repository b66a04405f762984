"""Gradients: what a tap asks of them, in code that runs as written and inside a compiled graph."""

from __future__ import annotations

from typing import Any

from hookline.backends.protocol import GradSink, Joining, JointSink, Listening
from hookline.backends.torch import joining, listening
from hookline.backends.torch.compiled.running import GraphPassage, current
from hookline.backends.torch.leaves import differentiable


def listener(on_input: GradSink, on_output: GradSink, memory: Any) -> Listening:
    if current() is None:
        return listening.Listener(on_input, on_output, memory)
    return GraphPassage(on_input, None, on_output)


def heard(output: Any, sink: GradSink) -> Any:
    if (run := current()) is None:
        return listening.heard(output, sink)
    run.sink = sink
    return output


def joined_inputs(sink: JointSink, on_output: GradSink, memory: Any) -> Joining:
    if current() is None:
        return joining.JoinedInputs(sink, on_output, memory)
    return GraphPassage(None, sink, on_output)


def joined(output: Any, sink: JointSink) -> Any:
    if (run := current()) is None:
        return joining.joined(output, sink)
    run.joint = sink
    return output


def needs_gradient(tree: Any) -> bool:
    """Whether a tensor of this structure is part of a graph."""
    if (run := current()) is None:
        return bool(differentiable(tree)[0])
    return any(run.live)
