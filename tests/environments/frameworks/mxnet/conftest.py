"""Set-up of the tests with real MXNet, which run in an environment of their own: `make test-frameworks`."""

import gc
import time
import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # MXNet 1.9.1 uses names that numpy has deprecated since
    import mxnet as mx


def starters():
    return mx.nd.NDArray.backward, mx.autograd.backward, mx.autograd.grad


@pytest.fixture(autouse=True)
def _as_found():
    """Every test starts with the same random numbers, and leaves MXNet's own functions in place."""
    before = starters()
    step = mx.gluon.Trainer.step, mx.gluon.Trainer.update
    mx.random.seed(0)
    yield
    mx.nd.waitall()
    assert (mx.gluon.Trainer.step, mx.gluon.Trainer.update) == step
    gc.collect()
    # MXNet's threads free a graph, and with it its taps, some time after the last operation has run.
    end = time.monotonic() + 10
    while starters() != before and time.monotonic() < end:
        time.sleep(0.01)
    assert starters() == before
