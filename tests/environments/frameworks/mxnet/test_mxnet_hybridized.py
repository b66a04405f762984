"""Hooks on hybridized nets: they fire, nothing changes to the last bit, and the compiled graph is kept."""

import itertools

import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import hookline
from tests.environments.frameworks.mxnet.nets import Mul, convnet, data, mlp, same_bits, step


def fresh(hybridize, **kwargs):
    """The same convnet each time, with the same numbers in it."""
    import mxnet as mx

    mx.random.seed(7)
    net = convnet()
    if hybridize:
        net.hybridize(**kwargs)
    return net


FLAGS: list[dict[str, bool]] = [{}, {"static_alloc": True}, {"static_alloc": True, "static_shape": True}]


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("inputs", [False, True])
def test_a_recording_of_a_hybridized_net_changes_no_bit(flags, inputs):
    x = data(2, 3, 8, 8)
    plain = fresh(True, **flags)
    expected = [step(plain, x, seed) for seed in (1, 2)]  # BatchNorm's statistics go on
    net = fresh(True, **flags)
    with hookline.record(net, inputs=inputs) as rec:
        found = [step(net, x, seed) for seed in (1, 2)]
    assert not rec.audit().silent
    assert all(len(rec[name].calls) == 2 for name in rec.names)
    for a, b in zip(expected, found, strict=True):
        assert same_bits(a, b)
    assert same_bits(step(plain, x, 3), step(net, x, 3))


class PreActivated(gluon.HybridBlock):
    """A stretch of ResNet V2, which oneDNN computes in another way as a graph than operator by operator."""

    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv2D(16, 3, padding=1, use_bias=False, in_channels=3)
        self.bn1 = nn.BatchNorm(in_channels=16)
        self.conv1 = nn.Conv2D(16, 3, padding=1, use_bias=False, in_channels=16)
        self.fc = nn.Dense(3, in_units=16)

    def hybrid_forward(self, F, x):
        x = self.conv0(x)
        return self.fc(F.mean(x + self.conv1(F.Activation(self.bn1(x), act_type="relu")), axis=(2, 3)))


def test_the_audit_says_that_a_net_ran_as_written_where_that_may_round_otherwise():
    net = PreActivated()
    net.initialize()
    x = data(2, 3, 8, 8)
    with hookline.record(net) as rec:
        net(x)
    assert all(entry.why is None for entry in rec.audit())
    net.hybridize()
    with hookline.record(net, ["conv1", ""]) as rec, hookline.record(net, None) as root:
        net(x)
    for entry in (*rec.audit(), *root.audit()):
        assert "with hooks inside it runs as it is written" in entry.why
    with hookline.record(net, None) as rec:  # nothing inside: the graph itself runs
        net(x)
    assert rec.audit()[""].why is None


def test_an_error_in_a_forward_hook_leaves_a_hybridized_net_as_if_it_was_not_called():
    for flags in FLAGS:
        net, other = fresh(True, **flags), fresh(True, **flags)
        inputs = [data(2, 3, 8, 8) for _ in range(3)]
        for kind, where in itertools.product(("forward", "forward_pre"), ("1", None)):
            assert same_bits(step(net, inputs[0]), step(other, inputs[0]))
            register = getattr(hookline, f"register_{kind}_hook")
            with pytest.raises(hookline.HookError) as kept, register(net, lambda *a: 1 / 0, where):
                step(net, inputs[1])
            # Its traceback still holds the graph of that call, and with it a state of the compiled operation.
            assert kept.value is not None
            assert same_bits(step(net, inputs[2]), step(other, inputs[2]))


def test_an_error_in_a_backward_hook_leaves_a_hybridized_net_as_if_there_was_no_hook():
    # MXNet's backward runs to its end before an error can come out: gradients and BatchNorm's statistics are new.
    for flags in FLAGS:
        net, other = fresh(True, **flags), fresh(True, **flags)
        inputs = [data(2, 3, 8, 8) for _ in range(3)]
        assert same_bits(step(net, inputs[0]), step(other, inputs[0]))
        with pytest.raises(hookline.HookError) as kept, hookline.register_backward_hook(net, lambda *a: 1 / 0):
            step(net, inputs[1])
        step(other, inputs[1])
        assert kept.value is not None
        assert same_bits(step(net, inputs[2]), step(other, inputs[2]))


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
