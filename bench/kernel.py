"""Row kernel: all statistics of one tensor against reading it once, plain torch calls and fastai's body."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from bench.harness import Case, Goal, Table
from hookline import bins
from hookline.lines import collect, kernel, kernel_in_use, reduce
from hookline.lines.reduce import reduce_difference, reduced_into
from hookline.rows import HEADER

SIZES = {
    "1 KB": (256, 2000, 30),
    "10 KB": (2_560, 500, 30),
    "1 MB": (262_144, 20, 20),
    "50 MB": (13_107_200, 1, 15),
}
"""Name -> fp32 values, runs in one timed section, rounds."""
GOALS = {("50 MB", False): 1.3, ("50 MB", True): 1.8, ("1 MB", False): 3.0, ("1 MB", True): 6.0}
BF16_GOALS = {("50 MB", False): 2.0, ("50 MB", True): 3.5}


def tables() -> Iterator[Table]:
    native = kernel.active()
    if native is None:
        raise RuntimeError(f"the row needs the C kernel: {kernel.why_not_native()}")
    for size, (count, inner, rounds) in SIZES.items():
        x = torch.randn(count, generator=torch.Generator().manual_seed(0))
        yield Table(
            f"Statistics of {size} of fp32, kernel: {kernel_in_use()}",
            [
                Case("one read pass (C, vectorised sum)", partial(native.read_pass, x.data_ptr(), count)),
                _ours("reduce", x, False, GOALS.get((size, False))),
                _ours("reduce, histogram", x, True, GOALS.get((size, True))),
                _ours("reduce, histogram, half zeros", x.relu(), True, GOALS.get((size, True))),
                _ours("reduce, histogram, 1% NaN", _with_nan(x), True),
                _ours(
                    "reduce, bf16 of as many bytes",
                    torch.cat([x, x]).bfloat16(),
                    False,
                    BF16_GOALS.get((size, False)),
                ),
                _ours("reduce, histogram, bf16", torch.cat([x, x]).bfloat16(), True, BF16_GOALS.get((size, True))),
                _ours("reduce, mean 100 times the spread", x + 100, False),
                Case("what a step changed, histogram", partial(reduce_difference, x, x * 1.001, True)),
                Case("the same as a tensor first, histogram", lambda x=x, y=x * 1.001: reduce(x - y)),
                Case("reduce and collect, histogram", lambda x=x: collect([reduce(x)])),
                _into_memory("into memory that is there, histogram", x),
                _ours("AVX2", x, False, way="avx2"),
                _ours("AVX2, histogram", x, True, way="avx2"),
                _ours("baseline C, histogram", x, True, way="baseline"),
                Case("torch.sum", x.sum),
                Case("torch.std_mean", lambda x=x: torch.std_mean(x)),
                Case("plain torch, 11 statistics", partial(_plain, x)),
                Case("plain torch, 11 statistics + histc", lambda x=x: (_plain(x), x.histc(40, -10, 10))),
                Case("fastai's body", partial(_fastai, x)),
                Case("fastai's body + histc", lambda x=x: (_fastai(x), x.histc(40, 0, 10))),
            ],
            unit="us",
            scale=1e6,
            inner=inner,
            rounds=rounds,
            absolute=True,
            note="One Python call each; the read pass is one, too, so that small sizes compare calls with calls.",
        )


def _ours(name: str, x: torch.Tensor, histogram: bool, limit: float | None = None, way: str = "") -> Case:
    goal = None if limit is None else Goal(limit)
    around: Any = {"around": lambda: kernel.using(way)} if way else {}
    run: Callable[[], Any] = lambda: reduce(x, histogram)  # noqa: E731 - without partial's handling of arguments
    return Case(name, run, goal=goal, **around)


def _into_memory(name: str, x: torch.Tensor) -> Case:
    """As a watch does it. The results of `reduce` are kept until the clock stops, each in memory that is new."""
    words = np.zeros(HEADER + bins.COUNT, np.int64)
    address = words.ctypes.data

    def run(words: object = words) -> bool:  # which keeps the memory
        return reduced_into(address, x, True)

    return Case(name, run)


def _with_nan(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[::100] = float("nan")
    return x


def _plain(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The same statistics as anyone would write them; wrong where a NaN is among the values."""
    size = x.abs()
    return (
        *(x.mean(), x.std(), x.min(), x.max(), size.max(), x.norm()),
        *((x == 0).sum(), (size <= 0.05).float().mean(), x.isnan().sum(), x.isinf().sum()),
        torch.tensor(x.numel()),
    )


def _fastai(x: torch.Tensor) -> tuple[float, float, float]:
    """What ActivationStats does for each output: three statistics, each brought to Python."""
    x = x.detach().cpu()
    return x.mean().item(), x.std().item(), (x <= 0.05).long().sum().item() / x.numel()
