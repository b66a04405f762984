"""Models, recordings and hooks die with the last reference to them, without the garbage collector."""

import gc
import weakref
from contextlib import suppress

import pytest
import torch
from torch import nn

import hookline
from hookline.testing.zoo import ZOO

X = torch.ones(2, 3)


@pytest.fixture(autouse=True)
def no_collector():
    trained(made()[0])  # the first optimizer of a process loads what has cycles
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
    "record operators only": lambda m: hookline.record(m, "0", ops="aten.addmm"),
    "record reduced": lambda m: hookline.record(m, grads=True, reduce=lambda t: t[:1], limit="1MB"),
    "watch some steps": lambda m: hookline.watch(m, every=2, stats=["p99"], channels=1),
    "stored outputs": lambda m: hookline.hook_outputs(list(m)),
    "stored gradients": lambda m: hookline.hook_outputs(list(m), grad=True),
    "HookCallback": lambda m: hookline.HookCallback(hook=lambda m, i, o: o.mean()).attach(m),
    "ActivationStats": lambda m: hookline.ActivationStats(with_hist=True).attach(m),
}


def trained(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(X).sum().backward()
        optimizer.step()


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
        trained(model)
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


STOPPED = {
    "outputs": {},
    "inputs": {"inputs": True},
    "operators": {"ops": True},
    "reduced": {"reduce": lambda t: t[:1]},
    "within a limit": {"limit": "1MB"},
}


@pytest.mark.parametrize("more", STOPPED.values(), ids=STOPPED)
def test_a_block_that_ended_the_forward_leaves_no_cycle(more):
    """An exception ends it, whose traceback has the frames of the block's own taps."""
    model, references = made()
    with hookline.record(model, "0", stop=True, **more) as rec:
        model(X)
        pytest.fail("the forward was not ended")
    references += [weakref.ref(rec), weakref.ref(rec["0"].output)]
    del model, rec
    assert not alive(references)


LOOKS = {
    "summary": lambda m: hookline.summary(m, X),
    "summary of a real run": lambda m: hookline.summary(m, X, real=True),
    "trace": lambda m: hookline.trace(m, X),
    "diff": lambda m: hookline.diff((m, X), (m, X * 2)),
    "probe": lambda m: hookline.probe(m, X),
    "sites": lambda m: hookline.sites(m, "**"),
    "installed": lambda m: hookline.installed(m),
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_look_at_a_model_keeps_nothing_of_it(name):
    model, references = made()
    result = LOOKS[name](model)
    assert result is not None
    del model
    assert not alive(references)


IN_THE_ZOO = {
    "summary": lambda m, args, kwargs: hookline.summary(m, *args, **kwargs),
    "trace": lambda m, args, kwargs: hookline.trace(m, *args, **kwargs),
    "record": lambda m, args, kwargs: within(hookline.record(m, inputs=True, grads=True), m, args, kwargs),
    "watch": lambda m, args, kwargs: within(hookline.watch(m, inputs=True), m, args, kwargs),
}


def within(block, model, args, kwargs):
    with block:
        model(*args, **kwargs)  # without a backward: its graph is let go as it is


@pytest.mark.parametrize("compiled", [False, True], ids=["", "after torch.compile"])
@pytest.mark.parametrize("look", IN_THE_ZOO.values(), ids=IN_THE_ZOO)
def test_no_model_of_the_zoo_is_kept_for_ever(look, compiled):
    """No collector finds a node that holds what holds the node; it does find the cycles that models have."""
    if compiled:  # from then on, modules with taps get classes of their own
        torch.compile(nn.Linear(3, 3), backend="eager")(X)
    references = {}
    for specimen in ZOO:
        model, args, kwargs = specimen.build()
        references[specimen.name] = [weakref.ref(module) for module in model.modules()]
        with suppress(hookline.ForwardError):  # one that can't be summarised
            look(model, args, kwargs)
        del model, args, kwargs
    gc.collect()
    assert not [name for name, some in references.items() if alive(some)]


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


@pytest.mark.parametrize("name", {**HANDLES, **BLOCKS})
def test_a_training_that_was_looked_at_leaves_no_cycle(name):
    model, references = made()
    with {**HANDLES, **BLOCKS}[name](model):
        trained(model)
    trained(model)
    del model
    assert not alive(references)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not")  # dynamo asks for it
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", {**HANDLES, **BLOCKS})
def test_a_compiled_model_that_was_looked_at_is_kept_by_nobody(name):
    """A compiled model has cycles of torch's own, with which it dies when the collector runs."""
    model, references = made()
    model.compile(backend="eager")
    with {**HANDLES, **BLOCKS}[name](model):
        trained(model)
    trained(model)
    del model
    gc.collect()
    assert not alive(references)
