"""Blocks left in another order, thread or task than they were entered, and what others do inside of them."""

import asyncio
import functools
import itertools
import threading
from contextlib import ExitStack

import pytest
import torch
from torch import nn

import hookline
from hookline.testing import untouched
from tests.support.models import nested

X = torch.tensor([[-1.0, 2.0]])


@pytest.fixture
def net():
    return nested()


def in_thread(work):
    """What `work` returns in a thread of its own."""
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


BLOCKS = {
    "record": lambda net: hookline.record(net, inputs=True, grads=True),
    "record operators": lambda net: hookline.record(net, ops=True),
    "watch": lambda net: hookline.watch(net, inputs=True, ops=True),
    "edit": lambda net: hookline.edit(net, {"0": lambda out: out + 0}),
    "skip": lambda net: hookline.edit(net, {"1": hookline.skip(torch.relu)}),
    "op hook": lambda net: hookline.register_op_hook(net, lambda *told: None),
    "backward hook": lambda net: hookline.register_backward_hook(net, lambda m, gi, go: None, "**", original=True),
}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("names", list(itertools.combinations(BLOCKS, 3)), ids=lambda names: ", ".join(names))
def test_blocks_may_be_left_in_any_order(net, names, order):
    torch.compile(torch.relu, backend="eager")(X)  # from now on modules with taps have classes of their own
    left_in_order(net, names, order)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not")  # dynamo asks for it
@pytest.mark.usefixtures("hooks_in_graphs")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=str)
@pytest.mark.parametrize("names", list(itertools.permutations(BLOCKS, 2)), ids=lambda names: ", ".join(names))
def test_blocks_of_a_compiled_model_may_be_left_in_any_order(net, names, order):
    net.compile(backend="eager")
    compiled = vars(net)["_compiled_call_impl"]
    left_in_order(net, names, order)
    assert vars(net)["_compiled_call_impl"] is compiled


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Torchinductor does not support code gen")
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=str)
def test_op_hooks_of_a_wrapped_model_may_be_left_in_any_order(net, order, backend):
    wrapped = torch.compile(net, backend=backend)
    forward = wrapped.forward
    left_in_order(wrapped, ["op hook", "record operators"], order)
    assert wrapped.forward is forward


def left_in_order(net, names, order):
    right = net(X)
    with untouched(net, rng=False):
        blocks = [BLOCKS[name](net) for name in names]
        for block in blocks:
            block.__enter__()
            assert torch.equal(net(X), right)
        for number in order:
            blocks[number].__exit__(None, None, None)
            assert torch.equal(net(X), right)
    assert hookline.installed(net) == []


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_may_be_left_in_another_thread(net, name):
    """And then counts for nobody: a later block sees the calls of the thread that opened it."""
    with untouched(net, rng=False):
        block = BLOCKS[name](net)
        block.__enter__()
        in_thread(lambda: block.__exit__(None, None, None))
        go, done = threading.Event(), threading.Event()

        def records():
            with hookline.record(net) as rec:
                go.set()
                done.wait(20)
            return rec

        results = []
        thread = threading.Thread(target=lambda: results.append(records()))
        thread.start()
        go.wait(20)
        net(X)
        done.set()
        thread.join()
        assert len(results[0]["0"].calls) == 1


def test_a_task_that_outlives_the_block_it_was_started_in_belongs_to_later_ones(net):
    async def run():
        go = asyncio.Event()

        async def later():
            await go.wait()
            net(X)

        with hookline.record(net) as first:
            task = asyncio.create_task(later())
            await asyncio.sleep(0)
        results = []

        def records():
            with hookline.record(net) as rec:
                loop.call_soon_threadsafe(go.set)
                finished.wait(20)
            results.append(rec)

        loop, finished = asyncio.get_running_loop(), threading.Event()
        thread = threading.Thread(target=records)
        thread.start()
        await task
        finished.set()
        await asyncio.to_thread(thread.join)
        return first, results[0]

    first, second = asyncio.run(run())
    assert first.names == [] and len(second["0"].calls) == 1


def test_a_generator_that_is_closed_elsewhere_leaves_nothing(net):
    def recorded():
        with hookline.record(net, inputs=True) as rec, hookline.edit(net, {"1": hookline.skip}):
            yield rec

    with untouched(net, rng=False):
        generator = recorded()
        next(generator)
        in_thread(generator.close)
        assert net(X).shape == (1, 2)
        with hookline.record(net) as rec:
            net(X)
        assert len(rec["0"].calls) == 1


def test_a_block_that_is_left_inside_a_hook_ends_no_call(net):
    """Its taps are still called by the forward that is under way, without the kwargs they were placed for."""
    right = net(X)
    for name in BLOCKS:
        for side in (hookline.register_forward_hook, hookline.register_forward_pre_hook):
            block = BLOCKS[name](net)
            block.__enter__()
            leave = functools.partial(block.__exit__, None, None, None)
            with side(net, lambda *told, leave=leave: (leave(), None)[1], "0"):
                assert torch.equal(net(X), right), name
            assert hookline.installed(net) == []


# Hooks and forwards of others, inside of a block


def test_a_hook_that_is_registered_inside_the_block_is_seen_by_it(net):
    handles = []
    with hookline.record(net, inputs=True) as rec, hookline.record(net) as outputs:
        handles.append(net[0].register_forward_hook(lambda m, a, o: o * 0))
        handles.append(net[1].register_forward_pre_hook(lambda m, a: (a[0] + 3,)))
        handles.append(net[2].register_forward_hook(lambda m, a, k, o: o + 1, with_kwargs=True, prepend=True))
        out = net(X)
    assert torch.equal(rec["0"].output, torch.zeros(1, 2)) and torch.equal(
        rec["1"].input[0], torch.full((1, 2), 3.0)
    )
    assert torch.equal(rec["2"].output, out) and torch.equal(rec[""].output, out)
    assert all(torch.equal(outputs[name].output, rec[name].output) for name in rec.names)
    for handle in handles:
        handle.remove()
    assert not any(hooks for m in net.modules() for name, hooks in vars(m).items() if "_hooks" in name)


def test_a_hook_that_is_registered_by_a_hook_is_seen_in_the_same_forward(net):
    handles = []

    def registers(module, args, output):
        handles.append(net[2].register_forward_hook(lambda m, a, o: o * 0))

    with hookline.register_forward_hook(net, registers, "0"), hookline.record(net) as rec:
        net(X)
    assert torch.equal(rec["2"].output, torch.zeros(1, 2))
    handles[0].remove()


def test_hooks_of_torch_keep_their_order_among_themselves(net):
    order = []
    with hookline.record(net, inputs=True):
        handles = [
            net[0].register_forward_hook(lambda m, a, o, n=n: order.append(n), prepend=n == 2) for n in range(3)
        ]
        net(X)
    net(X)
    assert order == [2, 0, 1, 2, 0, 1]
    for handle in handles:
        handle.remove()


def test_nothing_of_torch_stays_replaced(net):
    from torch.utils.hooks import RemovableHandle

    before = RemovableHandle.__init__
    with hookline.record(net), hookline.edit(net, {"0": lambda out: out}):
        assert RemovableHandle.__init__ is not before
    assert RemovableHandle.__init__ is before


def wrapped_by_a_function(module):
    inner = module.forward
    module.forward = lambda *args: inner(*args)


def wrapped_as_accelerate_does(module):
    """As `add_hook_to_module`: the old forward is kept on the module, and all of its attributes are copied."""
    module._old_forward = old = module.forward

    def forward(module, *args, **kwargs):
        return module._old_forward(*args, **kwargs)

    module.forward = functools.update_wrapper(functools.partial(forward, module), old)


@pytest.mark.parametrize("wrap", [wrapped_by_a_function, wrapped_as_accelerate_does])
@pytest.mark.parametrize("name", ["skip", "skip to its input", "op hook", "record operators", "watch"])
def test_a_forward_that_is_wrapped_inside_the_block_is_free_after_it(net, name, wrap):
    blocks = BLOCKS | {"skip to its input": lambda net: hookline.edit(net, {"1": hookline.skip})}
    right = net(X)
    with blocks[name](net):
        wrap(net[1])
        net(X)
    assert torch.equal(net(X), right) and hookline.installed(net) == []
    with hookline.record(net, ops=True) as rec:  # another block finds its way
        net(X)
    assert len(rec["1/relu"].calls) == 1
    assert torch.equal(net(X), right)


def test_what_accelerate_puts_back_after_the_block_is_the_modules_own_forward(net):
    with hookline.edit(net, {"1": hookline.skip}):
        wrapped_as_accelerate_does(net[1])
    net[1].forward = net[1]._old_forward
    assert net[1].forward.__func__ is nn.ReLU.forward and hookline.installed(net) == []


def test_a_forward_that_somebody_puts_back_inside_the_block_stays(net):
    wrapped_as_accelerate_does(net[1])
    with hookline.edit(net, {"1": hookline.skip}):
        net[1].forward = net[1]._old_forward
        assert (net[1](X) == torch.relu(X)).all()
    assert (net[1](X) == torch.relu(X)).all()


def test_a_forward_that_is_no_method_is_replaced_and_comes_back():
    class Static(nn.Module):
        @staticmethod
        def forward(x):
            return x * 2

    net = nn.Sequential(Static())
    with untouched(net):
        with ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(hookline.edit(net, {"0": hookline.skip}))
                stack.enter_context(hookline.register_op_hook(net, lambda *told: None))
            assert torch.equal(net(X), X)
        assert torch.equal(net(X), X * 2)
