"""Shared fixtures: every specimen of the zoo, and small helpers over structures."""

import sys

import pytest
import torch
from hypothesis import settings

from hookline import capabilities
from hookline.testing import ZOO

torch.set_num_threads(1)
settings.register_profile("no timings", deadline=None)  # on a busy machine any example may take long
settings.load_profile("no timings")


@pytest.fixture(params=ZOO, ids=str)
def specimen(request):
    return request.param


@pytest.fixture
def hooks_in_graphs():
    """For tests of what hooks do in compiled code: not run where that is Unsupported."""
    if capabilities()["torch"].is_too_old("compiled", torch.__version__):
        pytest.skip("this torch is too old for hooks in compiled code, see test_versions.py")


@pytest.fixture
def fresh_compiler(hooks_in_graphs):
    """torch.compile with nothing compiled yet, rounding as eager code does and with its random numbers."""
    from torch import _dynamo, _inductor

    _dynamo.reset()
    _dynamo.utils.counters.clear()
    with _inductor.config.patch(fallback_random=True, emulate_precision_casts=True):
        yield
    _dynamo.reset()


@pytest.fixture
def nothing_was_compiled(monkeypatch):
    """As if no other test of this process had compiled anything: what is compiled in the test itself counts."""
    from torch._dynamo import eval_frame

    from hookline.backends.torch import compat

    monkeypatch.setattr(compat, "_compiled_before", False)
    monkeypatch.setattr(eval_frame, "cached_backends", {})


@pytest.fixture
def nobody_observes(monkeypatch):
    """As if no graph that another test has left alive wanted backwards to be observed."""
    from hookline.backends.torch import engine

    others = list(engine._observers)
    monkeypatch.setattr(engine, "_observed", engine._nobody)
    monkeypatch.setattr(engine, "_are_observed", engine._nobody)
    engine._set_engine()
    yield
    monkeypatch.undo()
    engine._observers[:] = others
    engine._set_engine()


@pytest.fixture
def graphs(fresh_compiler):
    """Tells how many graphs were compiled so far, and how often one had to be broken in two."""
    from torch._dynamo.utils import counters

    return lambda: (counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()))


@pytest.fixture(autouse=True)
def _as_if_there_were_one_thread():
    """Once calls come from other threads, all tensors get views; not so in the tests after that."""
    if (module := sys.modules.get("hookline.backends.torch.grads.threads")) is not None:
        module.threads.several = False


@pytest.fixture(autouse=True, scope="session")
def _no_state_of_the_user(tmp_path_factory):
    """What hookline keeps for a user is kept elsewhere: tests leave nothing in a home, and find nothing there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
