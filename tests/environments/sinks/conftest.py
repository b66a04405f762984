"""Set-up of the tests with real trackers, which run in an environment of their own: `make test-sinks`."""

import os
import tempfile

# Nothing may leave the machine or the test's folder; some of these are read on import only.
os.environ["WANDB_MODE"] = "offline"
os.environ["WANDB_SILENT"] = "true"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ["DO_NOT_TRACK"] = "true"
os.environ["TRACKIO_DIR"] = tempfile.mkdtemp(prefix="trackio-")
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def uri(tmp_path_factory):
    """An MLflow database; one for all tests, since making its tables takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"
