"""Several sinks at once: each gets everything, and one that fails takes no other with it."""

import warnings

import pytest
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import hookline
from hookline import sinks
from tests.environments.sinks.helpers import trained


class Failing:
    """A sink that fails at its second step."""

    def __init__(self):
        self.steps = 0

    def write(self, rows):
        self.steps += 1
        if self.steps == 2:
            raise OSError("no route to host")

    def close(self):
        pass


def test_all_at_once(tmp_path, uri, capsys):
    mlflow = sinks.MLflow(tracking_uri=uri)
    failing = Failing()
    every = [
        failing,
        str(tmp_path / "run"),
        f"memory://{tmp_path}/parts",
        sinks.TensorBoard(tmp_path / "tb"),
        sinks.Wandb(mode="offline", project="p", dir=str(tmp_path)),
        sinks.Trackio(project="several"),
        mlflow,
        sinks.Console(seconds=0),
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        w = trained(every, steps=4)
    told = [str(one.message) for one in caught if "gets no more rows" in str(one.message)]
    assert told == ["Failing failed and gets no more rows: no route to host"] and failing.steps == 2
    assert len(hookline.open_run(tmp_path / "run").rows()) == len(w.rows())
    events = EventAccumulator(str(tmp_path / "tb"), size_guidance={"histograms": 0})
    events.Reload()
    assert len(events.Histograms("output/hist/0")) == 4
    assert MlflowClient(uri).get_run(mlflow.run_id).data.metrics["output/std/0"] == pytest.approx(
        w.rows("0", "output")[-1]["std"]
    )
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb")) and "output, step 3" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", ["file://{0}/file/x", "{0}/file"])
def test_a_sink_that_cannot_begin_leaves_no_other_open(tmp_path, wrong):
    (tmp_path / "file").write_text("here")
    with pytest.raises(hookline.RunError):
        trained([tmp_path / "run", wrong.format(tmp_path)])
    with hookline.open_run(tmp_path / "run") as run:
        assert run.meta["end"] == "by an exception" and "can't be kept" in run.meta["error"]
