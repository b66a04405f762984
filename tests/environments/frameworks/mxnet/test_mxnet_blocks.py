"""Kinds of blocks: recurrent layers and cells, imported graphs, sparse gradients, several devices; bad input."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn, rnn

import hookline
from tests.environments.frameworks.mxnet.nets import data, mlp


def recorded(net, *args):
    """A recording of a forward and a backward."""
    with hookline.record(net, inputs=True, grads=True) as rec:
        with autograd.record():
            y = net(*args)
            loss = sum(part.sum() for part in (y if isinstance(y, (tuple, list)) else [y]))
        loss.backward()
    return rec


@pytest.mark.parametrize("hybridize", [False, True])
def test_a_recurrent_layer_without_states_and_with_them(hybridize):
    x = data(5, 2, 3)
    x.attach_grad()
    for states in (False, True):
        layer = rnn.LSTM(4, num_layers=2, input_size=3)
        layer.initialize()
        if hybridize:
            layer.hybridize()
        with hookline.record(layer, inputs=True, grads=True) as rec:
            with autograd.record():
                y = layer(x, layer.begin_state(2)) if states else layer(x)
                loss = (y[0] if states else y).sum()
            loss.backward()
        site = rec[""]
        assert (len(site.input), site.kwargs) == (2 if states else 1, {})
        assert (site.output[0] if states else site.output).shape == (5, 2, 4)
        assert (site.grad_input[0].asnumpy() == x.grad.asnumpy()).all()
        assert len(site.param_grads) == 8
        assert site.why is None


def test_a_cell_that_is_unrolled_has_a_call_for_each_step():
    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.cell = rnn.GRUCell(4, input_size=3)
            self.out = nn.Dense(2, flatten=False)

        def hybrid_forward(self, F, x):
            outputs, _ = self.cell.unroll(5, x, layout="TNC", merge_outputs=True)
            return self.out(outputs)

    net = Net()
    net.initialize()
    net.hybridize()
    x = data(5, 2, 3)
    expected = net(x).asnumpy()
    rec = recorded(net, x)
    assert len(rec["cell"].calls) == 5
    assert rec[""].output.asnumpy().tobytes() == expected.tobytes()
    assert all(call.grad_output[0].shape == (2, 4) for call in rec["cell"].calls)


@pytest.fixture
def imported(tmp_path):
    net = mlp(hybridize=True)
    net(nd.ones((1, 4)))
    net.export(str(tmp_path / "net"))
    return gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params")
    )


def test_an_imported_graph_is_hooked_at_its_border_and_operator_by_operator(imported):
    rec = recorded(imported, data(2, 4))
    assert rec.names == [""] and len(rec[""].param_grads) == 4
    assert hookline.summary(imported, (2, 4)).total_params == 43
    seen = []
    with hookline.register_op_hook(imported, lambda name, op, array: seen.append(op)):
        imported(data(2, 4))
    assert seen == ["FullyConnected", "Activation", "FullyConnected"]
    outer = nn.HybridSequential()
    outer.add(imported)
    with pytest.raises(hookline.Unsupported, match="is a SymbolBlock"):
        hookline.register_op_hook(outer, lambda *args: None)


def test_sparse_gradients_are_recorded_and_watched():
    net = nn.Sequential()
    net.add(nn.Embedding(10, 4, sparse_grad=True), nn.Dense(2, in_units=8))
    net.initialize()
    rec = recorded(net, nd.array([[1, 2]]))
    grad = rec["0"].param_grads["weight"]
    assert grad.stype == "row_sparse" and set(np.nonzero(grad.asnumpy().any(1))[0]) <= {1, 2}
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    with hookline.watch(net) as w:
        with autograd.record():
            loss = net(nd.array([[1, 2]])).sum()
        loss.backward()
        trainer.step(1)
    (row,) = w.rows("0.weight", kind="param_grad")
    assert row["count"] == 40 and row["zeros"] >= 32


def test_a_net_on_several_devices():
    contexts = [mx.cpu(0), mx.cpu(1)]
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=3), nn.Dense(2, in_units=4))
    net.initialize(ctx=contexts)
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    with hookline.watch(net) as w:
        for _ in range(2):
            parts = gluon.utils.split_and_load(data(4, 3), contexts)
            with autograd.record():
                losses = [net(part).sum() for part in parts]
            autograd.backward(losses)
            trainer.step(4)
    assert [(row["step"], row["count"]) for row in w.rows("0", kind="output")] == [(0, 16), (1, 16)]
    with hookline.record(net) as rec:
        for part in parts:
            net(part)
    assert [call.output.context for call in rec["0"].calls] == contexts
    with pytest.raises(hookline.Unsupported, match="on several devices"):
        hookline.edit(net, {"0.weight": lambda weight: weight * 0})


def test_recorded_values_are_moved_and_cast():
    net = mlp()
    with hookline.record(net, dtype="float16", device="cpu(1)") as rec:
        net(data(2, 4))
    assert rec["1"].output.dtype == np.float16 and rec["1"].output.context == mx.cpu(1)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"device": "tpu"}, "is no context of MXNet"),
        ({"dtype": "float31"}, "is no dtype of MXNet"),
    ],
)
def test_bad_input_says_what_would_do(asked, message):
    with pytest.raises(hookline.InvalidArgument, match=message):
        hookline.record(mlp(), **asked)


def test_what_is_no_block_is_refused():
    for thing in (nd.ones(1), mx.sym.var("x"), nn.Dense):
        with pytest.raises(hookline.InvalidArgument, match="expected a model"):
            hookline.record(thing)


@pytest.mark.parametrize(
    "ask",
    [
        lambda net: hookline.trace(net, (1, 4)),
        lambda net: hookline.summary(net, (1, 4), columns="name,macs"),
        lambda net: hookline.register_state_dict_pre_hook(net, lambda *args: None),
    ],
)
def test_what_mxnet_has_no_way_to_do_is_said(ask):
    with pytest.raises(hookline.Unsupported, match=r"on mxnet: .* Instead: "):
        ask(mlp())


def test_a_block_that_only_holds_others_is_silent_for_that_reason():
    class Holder(gluon.Block):
        def __init__(self):
            super().__init__()
            self.fc = nn.Dense(2, in_units=4)

    class Net(gluon.Block):
        def __init__(self):
            super().__init__()
            self.holder = Holder()

        def forward(self, x):
            return self.holder.fc(x)

    net = Net()
    net.initialize()
    with hookline.record(net) as rec:
        net(data(1, 4))
    assert "only holds blocks" in rec.audit()["holder"].why
