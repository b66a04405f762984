"""What the kernel does besides reductions: it gathers and clears sheets, and tells how far samples are apart."""

import numpy as np
import pytest
import torch

from hookline import bins
from hookline.backends.torch.spreads import spread_of
from hookline.lines import kernel
from hookline.lines.columns import histograms_of
from hookline.lines.kernel import using
from hookline.rows import HEADER


def native():
    if kernel.active() is None:
        pytest.skip(f"no C kernel: {kernel.why_not_native()}")
    return kernel.active()


@pytest.mark.parametrize("shape", [(4, 1), (5, 3), (4, 511), (7, 512), (4, 513), (64, 40, 40), (100, 3000)])
def test_the_spread_of_samples_is_that_of_torch(shape):
    """The same numbers of the same samples, whoever reads them."""
    quickly = native().spread
    x = torch.randn(shape) * 3 + torch.randn(shape[1:]) * 100
    quick, slow = spread_of(x, shape[0], quickly), spread_of(x, shape[0])
    assert quick == pytest.approx([float(one) for one in slow], rel=1e-5)
    few = x[:64].flatten(1).double()
    few = few[:, :: -(-few.shape[1] // 512)]
    wanted = few.var(0, correction=0).mean().sqrt().item(), few.square().mean().sqrt().item()
    assert quick == pytest.approx(wanted, rel=1e-12)
    assert all(isinstance(one, float) for one in quick)


@pytest.mark.parametrize(
    "odd", [lambda x: x.double(), lambda x: x.half(), lambda x: x.T.contiguous().T, lambda x: (x, x + 1)]
)
def test_what_does_not_lie_line_by_line_is_left_to_torch(odd):
    x = odd(torch.randn(8, 6))
    assert all(isinstance(one, torch.Tensor) for one in spread_of(x, 8, pytest.fail))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.0, 1e38, 1e-40])
def test_the_spread_of_odd_values_is_that_of_double(value):
    x = torch.ones(6, 5)
    x[2, 3] = value
    spread, size = spread_of(x, 6, native().spread)
    wanted = x.double().var(0, correction=0).mean().sqrt().item(), x.double().square().mean().sqrt().item()
    assert (spread, size) == pytest.approx(wanted, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("lines", [1, 3, 40])
def test_histograms_and_clearing_of_a_sheet_are_those_of_numpy(lines):
    random = np.random.default_rng(lines)
    words = np.zeros((lines, HEADER + bins.COUNT), np.int64)
    words[:, :HEADER] = random.integers(-(2**62), 2**62, (lines, HEADER))
    for line in range(lines):
        which = random.integers(0, bins.COUNT, random.integers(0, 60))
        words[line, HEADER + which] = random.integers(1, 2**40, len(which))
    words[0, [HEADER, -1]] = 7  # the first bin and the last
    with using("torch"):
        wanted = histograms_of(words)
    found = native().histograms_of(words)
    assert all((one == other).all() for one, other in zip(found[:3], wanted[:3], strict=True))
    assert [one.dtype for one in found[:3]] == [one.dtype for one in wanted[:3]] and found.size == wanted.size
    room = np.full((lines + 1, words.shape[1]), 5)
    room[:lines] = words
    native().clear(room[:lines])
    assert not room[:lines].any() and (room[lines] == 5).all()
