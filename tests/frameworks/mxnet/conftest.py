"""Set-up of the tests with real MXNet, which run in an environment of their own: `make test-frameworks`."""

import mxnet as mx
import pytest


@pytest.fixture(autouse=True)
def _as_found():
    """Every test starts with the same random numbers, and leaves MXNet's own functions in place."""
    backward = mx.nd.NDArray.backward, mx.autograd.backward, mx.autograd.grad
    step = mx.gluon.Trainer.step, mx.gluon.Trainer.update
    mx.random.seed(0)
    yield
    mx.nd.waitall()
    assert (mx.gluon.Trainer.step, mx.gluon.Trainer.update) == step
    import gc

    gc.collect()  # a graph that a failed assertion holds on to has taps
    assert (mx.nd.NDArray.backward, mx.autograd.backward, mx.autograd.grad) == backward
