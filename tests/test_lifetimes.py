"""Models, recordings and hooks die with the last reference to them, without the garbage collector."""

import gc
import weakref

import pytest
import torch
from torch import nn

import hookline

X = torch.ones(2, 3)


@pytest.fixture(autouse=True)
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def made():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 3)))
    return model, [weakref.ref(thing) for thing in (*model.modules(), *model.parameters())]


def alive(references):
    return [reference() for reference in references if reference() is not None]


def nothing(*told):
    return None


HANDLES = {
    "pre-hook": lambda m: hookline.register_forward_pre_hook(m, nothing, "**"),
    "pre-hook with kwargs": lambda m: hookline.register_forward_pre_hook(m, nothing, "**", with_kwargs=True),
    "forward hook": lambda m: hookline.register_forward_hook(m, nothing, "**"),
    "forward hook with kwargs": lambda m: hookline.register_forward_hook(m, nothing, "**", with_kwargs=True),
    "backward hook": lambda m: hookline.register_backward_hook(m, nothing, "**"),
    "backward pre-hook": lambda m: hookline.register_backward_pre_hook(m, nothing, "**"),
    "op hook": lambda m: hookline.register_op_hook(m, nothing),
    "op hook on a part": lambda m: hookline.register_op_hook(m, nothing, "0"),
    "state-dict hook": lambda m: hookline.register_state_dict_post_hook(m, nothing, "**"),
}
BLOCKS = {
    "record": lambda m: hookline.record(m),
    "record all": lambda m: hookline.record(m, inputs=True, grads=True),
    "record operators": lambda m: hookline.record(m, inputs=True, grads=True, ops=True),
    "watch": lambda m: hookline.watch(m),
    "watch all": lambda m: hookline.watch(m, inputs=True, ops=True),
    "edit": lambda m: hookline.edit(
        m, {"**": nothing, "**:input": nothing, "*:grad_input": nothing, "*:grad_output": nothing}
    ),
    "skip": lambda m: hookline.edit(m, {"1": hookline.skip}),
    "edit of a weight": lambda m: hookline.edit(m, {"0.weight": lambda w: w * 2}),
}


@pytest.mark.parametrize("name", HANDLES)
def test_a_handle_that_is_kept_keeps_no_model(name):
    model, references = made()
    handle = HANDLES[name](model)
    model(X).sum().backward()
    del model
    assert not alive(references)
    handle.remove()


@pytest.mark.parametrize("name", HANDLES)
def test_a_handle_that_was_removed_leaves_no_cycle(name):
    model, references = made()
    with HANDLES[name](model):
        model(X).sum().backward()
    del model
    assert not alive(references)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_that_is_over_leaves_no_cycle(name):
    model, references = made()
    with BLOCKS[name](model) as block:
        model(X).sum().backward()
    references.append(weakref.ref(block))
    if name.startswith("record"):
        references += [weakref.ref(block[site].output) for site in block.names]
    del model, block
    assert not alive(references)


@pytest.mark.parametrize("name", ["record", "record all", "record operators"])
def test_a_recording_keeps_no_model(name):
    model, references = made()
    with BLOCKS[name](model) as rec:
        model(X).sum().backward()
    del model
    assert not alive(references)
    assert rec["0"].output.shape == (2, 3)


def test_a_call_that_failed_keeps_nothing_after_the_block():
    class Fails(nn.Module):
        def forward(self, x, **kwargs):
            raise ValueError("no")

    model, x = nn.Sequential(Fails()), torch.ones(2, requires_grad=True) * 1
    references = [weakref.ref(x), weakref.ref(model)]
    with hookline.record(model, inputs=True), hookline.watch(model, inputs=True):
        try:
            model(x)
        except ValueError as error:
            error.__traceback__ = None
    del model, x
    assert not alive(references)
