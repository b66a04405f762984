"""Gradients on MXNet: heard and replaced, in structures, several calls, shared blocks; no error is lost."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import hookline
from tests.environments.frameworks.mxnet.nets import Mul, Structured, data, mlp, step


def run(net, x, loss=lambda y: y * 11):
    """x's gradient after a backward, and the output."""
    x.attach_grad()
    with autograd.record():
        y = net(x)
        total = loss(y)
    total.backward()
    return x.grad.asscalar(), y


@pytest.mark.parametrize(
    ("pre", "post", "expected"),
    [
        (False, False, (11, 33, 11, 33)),
        (False, True, (11, 231, 11, 231)),
        (True, False, (11, 33, 11, 165)),
        (True, True, (11, 231, 11, 1155)),
    ],
)
def test_the_meaning_of_backward_is_that_of_torch_and_mindspore(pre, post, expected):
    net = Mul(3)
    seen = []
    hookline.register_backward_pre_hook(net, lambda m, g: seen.append(g[0].asscalar()))
    hookline.register_backward_hook(net, lambda m, gi, go: seen.extend([gi[0].asscalar(), go[0].asscalar()]))
    if pre:
        hookline.register_forward_pre_hook(net, lambda m, args: (args[0] * 5,))
    if post:
        hookline.register_forward_hook(net, lambda m, args, out: out * 7)
    seen.append(run(net, nd.ones(1))[0])
    assert tuple(seen) == expected


@pytest.mark.parametrize(
    ("order", "noted"), [((0, 1, 2), 3300), ((1, 2, 0), 3300), ((1, 0, 2), 3300), ((2, 1, 0), 6600)]
)
def test_replaced_gradients_go_on_and_are_seen_by_later_hooks(order, noted):
    """As on torch: the pre-hook first, then backward hooks as they were registered, then a recording."""
    net = Mul(3)
    seen = []

    def note(module, grad_input, grad_output):
        seen.append((grad_input[0].asscalar(), grad_output[0].asscalar()))

    registrations = [
        lambda: hookline.register_backward_pre_hook(net, lambda m, g: (g[0] * 100,)),
        lambda: hookline.register_backward_hook(net, note),
        lambda: hookline.register_backward_hook(net, lambda m, gi, go: (gi[0] * 2,)),
    ]
    with hookline.record(net, grads=True) as rec:
        handles = [registrations[number]() for number in order]
        assert run(net, nd.ones(1))[0] == 6600
    assert seen == [(noted, 1100)]
    assert rec[""].grad_input[0].asscalar() == 6600 and rec[""].grad_output.asscalar() == 1100
    for handle in handles:
        handle.remove()
    assert run(net, nd.ones(1))[0] == 33


def test_gradients_pass_through_structures():
    class Outer(gluon.Block):
        def __init__(self):
            super().__init__()
            self.inner = Structured()

        def forward(self, x):
            return self.inner(x)

    net = Outer()
    with hookline.record(net, grads=True, inputs=True) as rec:
        grad, _ = run(net, nd.ones(1), lambda y: y["a"] * 2 + y["b"][0] * 3)  # the third part is not used
    assert grad == 31
    site = rec["inner"]
    assert site.grad_input[0].asscalar() == 31
    assert site.grad_output["a"].asscalar() == 2 and site.grad_output["b"][0].asscalar() == 3
    assert site.grad_output["b"][1] == [None, None, None]
    seen = []

    def hook(module, grad_input, grad_output):
        seen.append(grad_output)
        return (grad_input[0] * 10,)

    with hookline.register_backward_hook(net, hook, "inner"):
        assert run(net, nd.ones(1), lambda y: y["a"] * 2 + y["b"][0] * 3)[0] == 310
    assert seen[0][0]["b"][1] == [None, None, None] and seen[0][0]["a"].asscalar() == 2
    with hookline.edit(net, {"inner:grad_output": lambda g: {**g, "a": g["a"] * 100}}):
        assert run(net, nd.ones(1), lambda y: y["a"] * 2 + y["b"][0] * 3)[0] == 1000 + 21


def test_several_inputs_of_which_some_have_a_gradient():
    class Three(gluon.Block):
        def forward(self, a, b, c):
            return a * 2 + b * 3 + c * 5

    net = Three()
    a, b, c = nd.ones(1), nd.ones(1), nd.ones(1)
    b.attach_grad()
    c.attach_grad()
    seen = []

    def hook(module, grad_input, grad_output):
        seen.append([g if g is None else g.asscalar() for g in grad_input])
        return None, grad_input[1] * 10, None

    with hookline.register_backward_hook(net, hook):
        with autograd.record():
            y = net(a, b, c)
        y.backward()
        assert (b.grad.asscalar(), c.grad.asscalar()) == (30, 5)
        # A gradient that is asked of c alone: b's place in the joint backward is not wanted by MXNet.
        with autograd.record():
            y = net(a, b, c)
        (only,) = autograd.grad(y, [c])
        assert only.asscalar() == 5
    assert seen == [[None, 3, 5], [None, 3, 5]]


def test_data_that_other_blocks_have_used_before_has_no_gradient_and_the_hook_is_called():
    first, second = mlp(), mlp()
    x, seen = data(2, 4), []
    with (
        hookline.register_backward_hook(second, lambda m, gi, go: seen.append((gi, go[0].shape))),
        hookline.record(second, grads=True) as rec,
    ):
        with autograd.record():
            loss = (first(x) + second(x)).sum()  # MXNet has x in its graph by now
        loss.backward()
    assert seen == [((None,), (2, 3))]
    assert rec[""].grad_input == (None,) and rec[""].grad_output.shape == (2, 3)


def test_the_input_gradient_is_the_blocks_own_share():
    net = Mul(3)
    with hookline.record(net, grads=True) as rec:
        x = nd.ones(1)
        x.attach_grad()
        with autograd.record():
            y = net(x) * 2 + x * 7
        y.backward()
    assert rec[""].grad_input[0].asscalar() == 6
    assert x.grad.asscalar() == 13


def test_a_shared_block_called_twice_keeps_calls_and_gradients_apart():
    shared = Mul(3)
    net = nn.Sequential()
    net.add(shared, Mul(5), shared)
    with hookline.record(net, inputs=True, grads=True) as rec:
        grad, y = run(net, nd.ones(1))
    assert (grad, y.asscalar()) == (495, 45)
    assert rec["0"].aliases == ("2",) and rec["2"] is rec["0"]
    assert [call.output.asscalar() for call in rec["0"].calls] == [3, 45]
    assert [call.grad_output.asscalar() for call in rec["0"].calls] == [165, 11]
    assert [call.grad_input[0].asscalar() for call in rec["0"].calls] == [495, 33]


def test_gradients_that_accumulate_are_not_lost():
    x = nd.ones(1)
    x.attach_grad("add")
    net = Mul(3)
    with hookline.record(net, grads=True) as rec:
        for _ in range(2):
            with autograd.record():
                y = net(x)
            y.backward()
    assert x.grad.asscalar() == 6
    assert [call.grad_input[0].asscalar() for call in rec[""].calls] == [3, 3]


def test_parameter_gradients_are_those_of_the_backward_in_the_block():
    net, x = mlp(), data(2, 4)
    step(net, x)  # leaves gradients behind
    with hookline.record(net, grads=True) as rec:
        net(x)
    assert rec["0"].param_grads == {}
    with hookline.record(net, grads=True) as rec:
        step(net, x * 2)
    for name in ("weight", "bias"):
        expected = getattr(net[0], name).grad().asnumpy()
        assert (rec["0"].param_grads[name].asnumpy() == expected).all()
    net[0].weight.zero_grad()
    assert rec["0"].param_grads["weight"].asnumpy().any()  # a copy


def test_hooks_have_run_when_backward_returns():
    import time

    seen = []

    def slow(grads):
        time.sleep(0.2)
        seen.append(grads[0].asscalar())

    hook = hookline.HookBackward(slow)
    x = nd.ones(1)
    x.attach_grad()
    for start in (lambda y: y.backward(), lambda y: autograd.backward(y), lambda y: autograd.grad(y, [x])):
        with autograd.record():
            y = hook(x * 2) * 3
        start(y)
        assert seen.pop() == 3


def test_an_error_in_a_gradient_hook_comes_out_of_backward_and_the_gradients_are_whole():
    net = mlp()
    x = data(2, 4)
    expected = step(net, x)
    handle = hookline.register_backward_hook(net, lambda m, gi, go: {}["missing"], "1")
    x.attach_grad()
    with autograd.record():
        loss = (net(x) ** 2).sum()
    with pytest.raises(hookline.HookError, match=r"backward hook at site '1'.*raised KeyError: 'missing'"):
        loss.backward()
    assert (x.grad.asnumpy() == expected["input gradient"]).all()
    handle.remove()
    step(net, x)  # nothing of it is left


def test_a_wrong_replacement_names_the_site():
    net = mlp()
    with (
        hookline.register_backward_hook(net, lambda m, gi, go: (nd.ones(1),), "1"),
        pytest.raises(hookline.HookError, match=r"site '1'.*expected shape \(2, 5\), got \(1,\)"),
    ):
        step(net, data(2, 4))
    with (
        hookline.register_forward_hook(net, lambda m, args, out: out.astype("float64"), "1"),
        pytest.raises(hookline.HookError, match=r"site '1'.*expected float32, got float64"),
    ):
        step(net, data(2, 4))


def test_a_backward_that_was_started_by_an_older_name_is_waited_for_at_the_end():
    backward = autograd.backward  # MXNet's own, from before any tap
    net, x = mlp(), data(2, 4)
    with hookline.record(net, grads=True) as rec:
        with autograd.record():
            loss = net(x).sum()
        backward(loss)
    assert (rec["1"].grad_output.asnumpy() == 1).all()
    handle = hookline.register_backward_hook(net, lambda m, gi, go: 1 / 0, "1")
    with autograd.record():
        loss = net(x).sum()
    backward(loss)
    with pytest.raises(hookline.HookError, match="ZeroDivisionError"):
        handle.remove()
    assert hookline.installed(net) == []


def test_hook_backward_observes_and_replaces():
    seen = []
    x = nd.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        both = hookline.HookBackward(lambda grads: seen.append([g if g is None else g.asnumpy() for g in grads]))(
            x * 2, x * 3
        )
        y = (both[0] * 5).sum()
    y.backward()
    assert seen[0][0].tolist() == [5, 5] and seen[0][1] is None
    assert x.grad.asnumpy().tolist() == [10, 10]
    with autograd.record():
        y = hookline.HookBackward(lambda grads: grads[0] * 0)(x * 2).sum()
    y.backward()
    assert x.grad.asnumpy().tolist() == [0, 0]


def test_numpy_arrays_of_mxnet_pass_as_such():
    mx.npx.set_np()
    try:
        net = nn.Dense(2, in_units=3)
        net.initialize()
        x = mx.np.ones((1, 3))
        x.attach_grad()
        with hookline.record(net, grads=True) as rec:
            with autograd.record():
                y = net(x)
            y.backward()
        assert type(rec[""].output) is mx.np.ndarray and type(rec[""].grad_input[0]) is mx.np.ndarray
        assert np.array_equal(rec[""].grad_input[0].asnumpy(), x.grad.asnumpy())
    finally:
        mx.npx.reset_np()


def test_many_taps_at_once_give_the_same_gradients_every_time():
    """MXNet's autograd.Function hands on unfinished memory here, see test_mxnet_canaries.py."""
    from tests.environments.frameworks.mxnet.nets import convnet

    mx.random.seed(7)
    net = convnet()
    x = data(2, 3, 8, 8)
    expected = step(net, x)
    for _ in range(20):
        for parameter in net.collect_params().values():  # BatchNorm's running statistics are not compared
            parameter.zero_grad()
        with hookline.record(net, grads=True):
            found = step(net, x)
        for key, value in expected.items():
            if "gradient" in key:
                np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-5, err_msg=key)
