"""Shared fixtures: every specimen of the zoo, and small helpers over structures."""

import signal
import sys

import pytest
import torch
from hypothesis import settings

from hookline import capabilities
from hookline.testing import ZOO
from hookline.trees import leaves

torch.set_num_threads(1)
settings.register_profile("no timings", deadline=None)  # on a busy machine any example may take long
settings.load_profile("no timings")


@pytest.fixture(params=ZOO, ids=str)
def specimen(request):
    return request.param


def tensors(tree):
    return list(leaves(tree, torch.Tensor))


def loss_of(output):
    """A scalar in which every differentiable tensor of `output` has a weight of its own."""
    total = torch.zeros(())
    for number, tensor in enumerate(tensors(output)):
        if tensor.requires_grad:
            weight = torch.linspace(0.5, 1.5 + number, tensor.numel()).reshape(tensor.shape)
            real = tensor.abs() if tensor.is_complex() else tensor
            total = total + (real.float() * weight).sum()
    return total


def same_bits(a, b):
    """Whether two structures hold the same tensors to the last bit."""
    a, b = tensors(a), tensors(b)
    return len(a) == len(b) and all(
        x.dtype == y.dtype and x.shape == y.shape and torch.equal(_bytes(x), _bytes(y))
        for x, y in zip(a, b, strict=True)
    )


def _bytes(tensor):
    tensor = tensor.detach().clone(memory_format=torch.contiguous_format).flatten()
    return tensor.view(torch.uint8) if tensor.numel() else tensor


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
def graphs(fresh_compiler):
    """Tells how many graphs were compiled so far, and how often one had to be broken in two."""
    from torch._dynamo.utils import counters

    return lambda: (counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()))


def listens_to_ctrl_c():
    """For `preexec_fn`: what a shell starts in the background ignores Ctrl-C, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


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
