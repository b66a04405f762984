"""Hooks on hybridized nets: they fire, nothing changes to the last bit, and the compiled graph is kept."""

import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn
from nets import Mul, convnet, data, mlp, same_bits, step

import hookline


def fresh(hybridize, **kwargs):
    """The same convnet each time, with the same numbers in it."""
    import mxnet as mx

    mx.random.seed(7)
    net = convnet()
    if hybridize:
        net.hybridize(**kwargs)
    return net


@pytest.mark.parametrize("flags", [{}, {"static_alloc": True, "static_shape": True}])
@pytest.mark.parametrize("inputs", [False, True])
def test_a_recording_of_a_hybridized_net_changes_no_bit(flags, inputs):
    x = data(2, 3, 8, 8)
    plain = fresh(True, **flags)
    expected = [step(plain, x, seed) for seed in (1, 2)]  # BatchNorm's statistics go on
    net = fresh(True, **flags)
    with hookline.record(net, inputs=inputs) as rec:
        found = [step(net, x, seed) for seed in (1, 2)]
    assert not rec.audit().silent
    assert all(len(rec[name].calls) == 2 and rec[name].why is None for name in rec.names)
    for a, b in zip(expected, found, strict=True):
        assert same_bits(a, b)
    assert same_bits(step(plain, x, 3), step(net, x, 3))


def test_eager_and_hybridized_recordings_are_equal():
    x = data(2, 3, 8, 8)
    recordings = []
    for hybridize in (False, True):
        net = fresh(hybridize)
        with hookline.record(net, grads=True) as rec:
            step(net, x)
        recordings.append(rec)
    eager, hybridized = recordings
    assert eager.names == hybridized.names
    for name in eager.names:
        for what in ("output", "grad_output"):
            a, b = getattr(eager[name], what), getattr(hybridized[name], what)
            assert a.asnumpy().tobytes() == b.asnumpy().tobytes(), (name, what)


def test_the_compiled_graph_is_kept_and_runs_again():
    net = mlp(hybridize=True)
    x = data(2, 4)
    net(x)
    op, graph = net._cached_op, net._cached_graph
    with hookline.record(net, "0") as rec:
        assert not net._active and not net[0]._active
        net(x)
    assert rec.names == ["0"]
    assert net._active and net._cached_op is op and net._cached_graph is graph
    assert net[0]._active and net[0]._cached_op is None


def test_a_tap_on_the_outermost_block_leaves_it_compiled():
    net = mlp(hybridize=True)
    with hookline.record(net, None, grads=True) as rec:
        assert net._active
        step(net, data(2, 4))
    assert len(rec[""].calls) == 1 and rec[""].grad_output.shape == (2, 3)


def test_edits_in_a_hybridized_net_apply_and_go():
    net = nn.HybridSequential()
    net.add(Mul(3), Mul(11))
    net.hybridize()
    x = nd.ones(1)
    assert net(x).asscalar() == 33
    with hookline.edit(net, {"0": lambda out: out * 7, "1:input": lambda args: (args[0] * 5,)}):
        assert net(x).asscalar() == 33 * 35
    assert net(x).asscalar() == 33  # no graph with the edit in it is left


def test_hybridizing_while_a_hook_is_attached():
    net = mlp()
    x = data(2, 4)
    with hookline.record(net, "0") as rec:
        net(x)
        net.hybridize()
        net(x)
        net(x)
    assert len(rec["0"].calls) == 3
    assert net._active
    with hookline.record(net, "0") as rec:
        net.hybridize(False)
        net(x)
    assert len(rec["0"].calls) == 1
    assert not net._active


def test_a_child_by_itself_is_found_in_the_net_that_holds_it():
    outer = nn.HybridSequential()
    outer.add(mlp(), Mul(2))
    outer.hybridize()
    x = data(2, 4)
    outer(x)
    seen = []
    # The model given is the part: nothing tells of `outer` but that it holds it.
    with hookline.register_forward_hook(outer[0][1], lambda block, args, out: seen.append(out.shape)):
        outer(x)
    assert seen == [(2, 3)]
    assert outer._active and outer[0]._active


def test_two_attachments_end_in_any_order():
    net = mlp(hybridize=True)
    first = hookline.register_forward_hook(net, lambda *a: None, "0")
    second = hookline.register_forward_hook(net, lambda *a: None, "1")
    first.remove()
    assert not net._active
    second.remove()
    assert net._active


def test_a_graph_rewritten_for_a_backend_is_refused():
    net = mlp()
    net.hybridize(backend="MKLDNN")
    with pytest.raises(hookline.Unsupported, match=r"MKLDNN.*Instead: attach to that block itself"):
        hookline.register_forward_hook(net, lambda *a: None, "0")
    assert net._active and hookline.installed(net) == []
    with hookline.record(net, None) as rec:  # the block itself is fine
        net(data(2, 4))
    assert rec.names == [""]


def test_shapes_are_inferred_without_a_tap_seeing_symbols():
    class Own(gluon.HybridBlock):
        """Has a parameter of unknown shape beside its parts, so Gluon runs the parts with symbols first."""

        def __init__(self):
            super().__init__()
            self.weight = self.params.get("weight", shape=(2, 0), allow_deferred_init=True)
            self.fc = nn.Dense(3, in_units=4)

        def hybrid_forward(self, F, x, weight):
            return F.FullyConnected(self.fc(x), weight, no_bias=True, num_hidden=2)

    net = Own()
    net.initialize()
    native = []
    net.fc.register_forward_hook(lambda block, args, out: native.append(type(out).__name__))
    with hookline.record(net) as rec:
        net(data(2, 4))
    assert native == ["Symbol", "NDArray"]  # what Gluon's own hooks get
    assert [len(rec[name].calls) for name in ("fc", "")] == [1, 1]


def test_watching_leaves_steps_that_are_not_recorded_compiled():
    net = mlp(hybridize=True)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    active = []
    with hookline.watch(net, every=2) as w:
        for _ in range(4):
            with autograd.record():
                active.append(net._active)
                loss = (net(data(2, 4)) ** 2).sum()
            loss.backward()
            trainer.step(2)
    assert active == [False, True, False, True]
    assert sorted({row["step"] for row in w.rows()}) == [0, 2]
