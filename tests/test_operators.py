"""Operator hooks on eager models: over the zoo beside a bare dispatch mode, and the contract."""

import copy
import gc
import pickle
import threading
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import hookline
from conftest import same_bits, tensors
from hookline import OpEvent, register_op_hook
from hookline.testing import untouched
from test_zoo import run


class Bare(TorchDispatchMode):
    """The reference: every operator with copies of its outputs, and nothing known of modules."""

    supports_higher_order_operators = True

    def __init__(self, model):
        super().__init__()
        self.seen, self.model, self.calls = [], model, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if torch.is_inference_mode_enabled() and hasattr(func, "decompose"):
            with self:
                if (parts := func.decompose(*args, **(kwargs or {}))) is not NotImplemented:
                    return parts
        out = func(*args, **(kwargs or {}))
        node = torch._C._current_autograd_node()
        if node is not None and "Accumulate" in node.name():
            if all(node.variable is not parameter for parameter in self.model.parameters()):
                return out  # an input's gradient
        elif node is not None and repeats_a_forward(node):
            return out
        name = str(func).rpartition(".")[0] if hasattr(func, "overloadpacket") else str(func)
        self.seen += [(name, tensor.clone()) for tensor in tensors(out)]
        return out


def repeats_a_forward(node):
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return "CheckpointFunction" in node.name() or (hooks and "recomputation" in hooks[0].__qualname__)


def forward_and_backward(specimen, model, args, kwargs, context):
    """Runs the model in `context`, and its backward from the outputs on, so that no loss is in between."""
    torch.manual_seed(1)
    with context:
        output = model(*args, **kwargs)
    roots = [t for t in tensors(output) if t.requires_grad and t.grad_fn is not None]
    weights = [torch.ones_like(t) for t in roots]
    if specimen.trains and roots:
        with context:
            torch.autograd.backward(roots, weights)
    return output


def test_the_zoo_runs_the_operators_that_a_bare_mode_sees(specimen):
    model, args, kwargs = specimen.seeded()
    bare = Bare(model)
    if not specimen.steady:
        model(*args, **kwargs)
    forward_and_backward(specimen, model, args, kwargs, bare)
    model, args, kwargs = specimen.seeded()
    if not specimen.steady:
        model(*args, **kwargs)
        model.zero_grad()
    seen = []
    with untouched(model, parameters=False, rng=False):
        with register_op_hook(model, lambda name, op, array: seen.append((op, array))):
            forward_and_backward(specimen, model, args, kwargs, nullcontext())
    assert [op for op, _ in seen] == [op for op, _ in bare.seen]
    values, expected = (
        [value for op, value in each if "empty" not in op]  # of empty tensors nobody knows what is in them
        for each in (seen, bare.seen)
    )
    assert same_bits(values, expected)
