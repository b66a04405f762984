"""watch on MXNet: statistics as numpy has them, steps of gluon.Trainer, parameters and their gradients."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd

import hookline
from hookline.lines import collect, collect_channels, reduce, reduce_channels
from hookline.lines.kernel import using
from hookline.lines.stats import Stats
from tests.environments.frameworks.mxnet.nets import data, mlp

ARRAYS = {
    "float32": np.random.default_rng(0).normal(size=(7, 9)).astype("float32"),
    "float64": np.random.default_rng(0).normal(size=(7, 9)),
    "float16": np.random.default_rng(0).normal(size=(70,)).astype("float16"),
    "int32": np.arange(-5, 30, dtype="int32"),
    "not finite": np.array([np.nan, np.inf, -np.inf, 0, 0.05, -3], "float32"),
    "scalar": np.array([2.5], "float32"),
}


@pytest.mark.parametrize("way", ["avx2", "torch"])
@pytest.mark.parametrize("name", ARRAYS)
def test_statistics_are_numpys(name, way):
    array = ARRAYS[name]
    with using(way):
        (found,) = collect([reduce(nd.array(array, dtype=array.dtype))])
    wanted = Stats.of(array.astype("float64") if array.dtype.kind == "i" else array)
    for exact in ("count", "min", "max", "zeros", "near_zero", "nan", "inf"):
        assert getattr(found, exact) == getattr(wanted, exact), exact
    assert found.mean == pytest.approx(wanted.mean, rel=1e-12)
    assert found.m2 == pytest.approx(wanted.m2, rel=1e-12)
    assert (found.hist == wanted.hist).all()


def test_views_and_channels_are_reduced():
    whole = nd.array(ARRAYS["float32"])
    (part,) = collect([reduce(whole[2:4])])
    assert part.mean == pytest.approx(ARRAYS["float32"][2:4].mean(dtype="float64"), rel=1e-12)
    (channels,) = collect_channels([reduce_channels(whole, dim=1)])
    assert [stats.mean for stats in channels] == pytest.approx(ARRAYS["float32"].mean(0, dtype="float64").tolist())


def test_a_statistic_of_ones_own_gets_an_array_and_its_functions():
    @hookline.lines.statistic("largest_gap")
    def largest_gap(x, xp):
        return xp.diff(xp.sort(x.reshape(-1))).max()

    try:
        (stats,) = collect([reduce(nd.array([1.0, 5.0, 2.0]), extra=["largest_gap"])])
        assert stats.row()["largest_gap"] == 3
    finally:
        hookline.lines.registry.forget("largest_gap")


@pytest.mark.parametrize("hybridize", [False, True])
def test_a_training_loop_is_watched_step_by_step(hybridize):
    net = mlp(hybridize=hybridize)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    expected = []
    with hookline.watch(net, inputs=True) as w:
        for _ in range(3):
            x = data(6, 4)
            with autograd.record():
                y = net(x)
                loss = (y * y).sum()
            loss.backward()
            grad, before = net[0].weight.grad().asnumpy(), net[0].weight.data().asnumpy()
            trainer.step(6)
            expected.append((x.asnumpy(), y.asnumpy(), grad, before, net[0].weight.data().asnumpy()))
    assert sorted({row["step"] for row in w.rows()}) == [0, 1, 2]
    for step, (x, y, grad, before, after) in enumerate(expected):
        for site, kind, array in (
            ("", "input", x),
            ("", "output", y),
            ("", "grad_output", 2 * y),
            ("0.weight", "param", before),
            ("0.weight", "param_grad", grad),
            ("0.weight", "update", after - before),
        ):
            (row,) = w.rows(site, kind=kind, step=step)
            assert row["mode"] == "train"
            assert row["l2"] == pytest.approx(np.linalg.norm(array.astype("float64")), rel=1e-6), (site, kind)
            assert row["mean"] == pytest.approx(array.mean(dtype="float64"), rel=1e-5, abs=1e-9), (site, kind)


def test_steps_by_allreduce_and_update_are_heard_too():
    net = mlp()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, update_on_kvstore=False)
    with hookline.watch(net, grads=False) as w:
        for _ in range(2):
            with autograd.record():
                loss = net(data(2, 4)).sum()
            loss.backward()
            trainer.allreduce_grads()
            trainer.update(2)
    assert sorted({row["step"] for row in w.rows(kind="update")}) == [0, 1]


def test_a_trainer_of_another_net_makes_no_step():
    net, other = mlp(), mlp()
    trainer = gluon.Trainer(other.collect_params(), "sgd")
    with hookline.watch(net) as w:
        with autograd.record():
            loss = net(data(2, 4)).sum() + other(data(2, 4)).sum()
        loss.backward()
        trainer.step(2)
        assert w.now == 0


def test_without_training_each_call_is_a_step_in_eval_mode():
    net = mlp()
    with hookline.watch(net, "1") as w:
        for _ in range(3):
            net(data(2, 4))
    rows = w.rows(kind="output")
    assert [row["step"] for row in rows] == [0, 1, 2] and {row["mode"] for row in rows} == {"eval"}


def test_a_run_is_written_and_read(tmp_path):
    net = mlp()
    with hookline.watch(net, to=tmp_path / "run") as w:
        net(data(2, 4))
    run = hookline.open_run(tmp_path / "run")
    assert [row["site"] for row in run.rows()] == [row["site"] for row in w.rows()]


def test_watching_a_hybridized_net_changes_no_bit_of_its_training():
    def trained(watched):
        mx.random.seed(5)
        net = mlp(hybridize=True)
        trainer = gluon.Trainer(net.collect_params(), "adam")

        def train():
            for _ in range(4):
                with autograd.record():
                    loss = (net(data(6, 4)) ** 2).sum()
                loss.backward()
                trainer.step(6)

        if watched:
            with hookline.watch(net, every=2):
                train()
        else:
            train()
        return [p.data().asnumpy().tobytes() for p in net.collect_params().values()]

    assert trained(True) == trained(False)


BFLOAT16 = np.dtype([("bfloat16", np.uint16)])  # as MXNet has it


class Scale(gluon.HybridBlock):
    """Dense layers of half precision are for GPUs alone; this runs anywhere."""

    def __init__(self):
        super().__init__()
        self.weight = self.params.get("weight", shape=(3,))

    def hybrid_forward(self, F, x, weight):
        return F.broadcast_mul(x, F.cast(weight, dtype="float32"))


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("dtype", ["float16", BFLOAT16], ids=["float16", "bfloat16"])
def test_parameters_in_half_precision_are_watched_with_their_gradients(dtype, hybridize):
    net = Scale()
    net.initialize(mx.init.Constant(2))
    net.cast(dtype)
    if hybridize:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.125, "multi_precision": True})
    with hookline.watch(net, progress=False) as w, hookline.record(net, grads=True) as rec:
        with autograd.record():
            loss = net(nd.ones((5, 3))).sum()
        loss.backward()
        if dtype == "float16":  # MXNet has no optimizer for bfloat16 on the CPU
            trainer.step(1)
        else:
            w.before_step()
            net.weight.set_data(nd.full(3, 1.375).astype(dtype))
            w.after_step()
    wanted = {"param": 2.0, "param_grad": 5.0, "update": -0.625}
    assert {kind: w.rows("weight", kind=kind)[0]["mean"] for kind in wanted} == wanted
    assert w.rows("weight", kind="update")[0]["lost"] == 0
    assert rec[""].param_grads["weight"].dtype == np.dtype(dtype)
    np.testing.assert_array_equal(
        hookline.backends.resolve(net).host(rec[""].param_grads["weight"]), np.full(3, 5)
    )


def test_a_summary_names_half_precision():
    net = Scale()
    net.initialize()
    net.cast(BFLOAT16)
    assert "bfloat16" in str(hookline.summary(net, nd.ones((5, 3))).to_dict())
