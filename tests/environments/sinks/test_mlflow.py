"""MLflow's client reads back every metric, from its database and from its files."""

import math

import mlflow
import pytest
from mlflow import MlflowClient

import hookline
from hookline import sinks
from hookline.sinks.mlflow import allowed
from hookline.sinks.tags import scalars
from tests.environments.sinks.helpers import STEPS, trained, written
from tests.support.rows import same


def history(client, sink, name):
    return [(one.step, one.value) for one in client.get_metric_history(sink.run_id, name)]


def test_every_number_is_read_back(uri):
    sink = sinks.MLflow("mine", tracking_uri=uri)
    rows = written(sink)
    client = MlflowClient(uri)
    run = client.get_run(sink.run_id)
    assert run.info.status == "FINISHED" and run.data.tags["hookline.model"] == "Net"
    expected = {}
    for row in rows:
        for name, number in scalars(row).items():
            expected.setdefault(allowed(name), set()).add((row["step"], number))
    assert len(expected) == len({name for row in rows for name in scalars(row)}), "no two names became one"
    for name, numbers in expected.items():
        got = history(client, sink, name)
        # A database of MLflow keeps a number that came twice with one time and step once.
        assert {step for step, _ in got} == set(STEPS), name
        wanted = dict(numbers)
        assert all(same(value, wanted[step]) for step, value in got), name
    assert math.isnan(history(client, sink, "output/mean/broken")[0][1])


def test_more_numbers_than_a_batch_holds(uri):
    from tests.support.rows import row

    sink = sinks.MLflow(tracking_uri=uri, stats=["mean"])
    sink.open()
    sink.write([row(f"layer{n}", values=[float(n)]) for n in range(2500)])
    sink.close()
    client = MlflowClient(uri)
    assert len(client.get_run(sink.run_id).data.metrics) == 2500
    assert history(client, sink, "output/mean/layer2499") == [(0, 2499.0)]


def test_the_active_run_is_used_and_left_open(tmp_path, uri, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(uri)
    with mlflow.start_run() as run:
        w = trained(sinks.MLflow())
        mlflow.log_metric("loss", 1.0)
        assert mlflow.active_run().info.run_id == run.info.run_id
    data = mlflow.get_run(run.info.run_id).data
    assert data.metrics["loss"] == 1.0
    assert data.metrics["scalar/loss"] == pytest.approx(w.scalars()["loss"].values[-1])
    assert data.metrics["output/std/1"] == pytest.approx(w.rows("1", "output")[-1]["std"])


def test_a_server_that_is_gone_is_told_once_and_training_goes_on(tmp_path, uri):
    sink = sinks.MLflow(tracking_uri=uri)
    sink.open()
    MlflowClient(uri).set_terminated(sink.run_id)
    MlflowClient(uri).delete_run(sink.run_id)
    written_to = hookline.RunStore(tmp_path / "run")

    class Opened:
        write, close = sink.write, sink.close

    with pytest.warns(UserWarning, match=r"failed (and gets no more rows|at the end)"):
        trained([Opened(), written_to])
    assert hookline.open_run(tmp_path / "run").steps == [0, 1, 2]
