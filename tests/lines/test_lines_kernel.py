"""The kernel as a library: which one is used, threads, one transfer; the registry."""

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from hookline import InvalidArgument
from hookline.backends.torch import BACKEND, statistics
from hookline.lines import Stats, bins, collect, kernel, kernel_in_use, reduce, registry, statistic


def native():
    if kernel.active() is None:
        pytest.skip(f"no C kernel: {kernel.why_not_native()}")


def in_new_process(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}
    )


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_kernel_is_built_where_a_compiler_is():
    """Or the tests that need it would be skipped, and nobody would see."""
    told = in_new_process(TELL, HOOKLINE_KERNEL="avx512").stdout
    assert told in ("AVX-512 | \n", "AVX2 | \n", "baseline C | \n"), f"{told}: run pip install -e ."


TELL = "from hookline.lines import *; print(kernel_in_use(), '|', why_not_native())"


def test_the_environment_chooses():
    native()
    assert in_new_process(TELL, HOOKLINE_KERNEL="baseline").stdout == "baseline C | \n"
    assert in_new_process(TELL, HOOKLINE_KERNEL="torch").stdout == "torch | HOOKLINE_KERNEL=torch\n"
    assert in_new_process(TELL, HOOKLINE_KERNEL="avx2").stdout in ("AVX2 | \n", "baseline C | \n")
    assert "it may be avx512, avx2, baseline, torch" in in_new_process(TELL, HOOKLINE_KERNEL="sse").stderr


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="the processor's features are not told")
def test_the_best_level_is_one_that_the_processor_has():
    native()
    features = Path("/proc/cpuinfo").read_text().split()
    assert kernel.active().library.hookline_best_level() == (
        3 if {*AVX512, *AVX2} <= set(features) else 2 if {*AVX2} <= set(features) else 1
    )


AVX2 = ["avx2", "fma", "f16c"]
AVX512 = ["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vbmi", "avx512_vbmi2", "avx512_bitalg"]
AVX512 += ["avx512_vpopcntdq", "gfni", "bmi2", "popcnt"]


def test_lines_need_no_framework():
    code = (
        "import sys; from hookline.lines import Stats, kernel_in_use; Stats.of([1.0]).row(); kernel_in_use()\n"
        "assert 'torch' not in sys.modules"
    )
    assert in_new_process(code).stderr == ""


def test_a_missing_or_strange_library_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(kernel, "__file__", str(tmp_path / "kernel.py"))
    assert kernel._load("avx512")[0] is None and "was not built" in kernel._load("avx512")[1]
    (tmp_path / f"_kernel{kernel.EXTENSION_SUFFIXES[0]}").write_text("no library")
    assert kernel._load("avx512")[0] is None and "can't be loaded" in kernel._load("avx512")[1]


def test_a_library_of_another_version_is_not_used(monkeypatch):
    native()
    monkeypatch.setattr(kernel, "ABI", -1)
    why = "the C kernel is of another version of hookline: install hookline again"
    assert kernel._load("avx512") == (None, why)


def test_bins_are_the_same_in_c():
    source = (Path(kernel.__file__).parent / "_kernel.h").read_text()
    in_c = {name: int(number) for name, number in re.findall(r"#define (\w+) \(?(-?\d+)\)? ", source)}
    assert (in_c["LOWEST"], in_c["HIGHEST"]) == (bins.LOWEST, bins.HIGHEST)
    assert f"#define MANTISSA_BITS {bins.MANTISSA_BITS}\n" in source


def test_using_ends_with_its_block():
    before = kernel_in_use()
    with kernel.using("torch"):
        assert kernel_in_use() == "torch"
    with pytest.raises(ZeroDivisionError), kernel.using("torch"):
        _ = 1 / 0
    assert kernel_in_use() == before


def test_two_threads_at_once():
    tensors = [torch.full((300_000,), float(n)) for n in range(4)]
    wrong = []

    def work(number):
        for _ in range(30):
            (stats,) = collect([reduce(tensors[number])])
            if (stats.mean, stats.m2, stats.hist[bins.index(float(number))]) != (number, 0, 300_000):
                wrong.append((number, stats))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_other_threads_run_while_the_kernel_does():
    native()
    x, seen = torch.randn(30_000_000), []
    done = threading.Event()

    def count():
        while not done.is_set():
            seen.append(None)

    thread = threading.Thread(target=count)
    thread.start()
    while not seen:
        pass
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1)  # nobody is asked to make room sooner: who runs, does so because the GIL is free
    try:
        before = len(seen)
        reduce(x)
        ran = len(seen) - before
    finally:
        sys.setswitchinterval(interval)
        done.set()
        thread.join()
    assert ran > 0


@pytest.mark.parametrize("way", ["avx512", "torch"])
def test_collecting_transfers_once(monkeypatch, way):
    transfers = []
    cat = torch.cat
    with kernel.using(way):
        reduced = [reduce(torch.full((10,), float(n)), histogram=n % 2 == 0, extra=["first"]) for n in range(20)]
    monkeypatch.setattr(torch, "cat", lambda parts: (transfers.append(len(parts)), cat(parts))[1])
    found = collect(reduced)
    assert [stats.mean for stats in found] == list(range(20))
    assert [stats.row()["first"] for stats in found] == list(range(20))
    assert transfers == [20 if kernel.active() and way == "avx512" else 40]


@pytest.fixture(autouse=True)
def first():
    statistic("first", merge="min")(lambda x, xp: x.reshape(-1)[0])
    yield
    registry.forget("first")


def test_nothing_waits_for_the_device(monkeypatch):
    """No operation of the torch way gives a value to Python."""

    def refuse(*args, **kwargs):
        raise AssertionError("a synchronisation")

    x = BACKEND.reducible(torch.randn(1000))
    for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__", "nonzero", "to"):
        monkeypatch.setattr(torch.Tensor, name, refuse)
    BACKEND.reduced_on_device(x, histogram=True)


def test_chunks_of_the_torch_way_are_one_tensor(monkeypatch):
    x = torch.randn(1000) + 100
    x[7] = float("inf")
    x[100:200] = float("nan")
    (whole,) = collect([reduce(x)])
    monkeypatch.setattr(statistics, "CHUNK", 100)
    with kernel.using("torch"):
        (chunked,) = collect([reduce(x)])
    assert chunked.m2 == pytest.approx(whole.m2, rel=1e-12) and chunked.mean == pytest.approx(
        whole.mean, rel=1e-14
    )
    assert (chunked.hist == whole.hist).all() and (chunked.nan, chunked.inf) == (100, 1)


def test_a_statistic_of_stats():
    statistic("range")(lambda stats: stats.max - stats.min)
    try:
        assert registry.values(Stats.of([1.0, 5.0]), ["range", "mean"]) == {"range": 4.0, "mean": 3.0}
        assert reduce(torch.ones(3), extra=["range", "mean"]).scalars is None
    finally:
        registry.forget("range")


def test_a_statistic_of_tensors_merges():
    parts = collect([reduce(torch.tensor([float(n), 9.0]), extra=["first"]) for n in (5, 3, 4)])
    assert registry.values(Stats.merged(parts), ["first"]) == {"first": 3.0}
    with pytest.raises(InvalidArgument, match=r"was not: reduce with extra=\['first'\]"):
        registry.values(Stats.of([1.0]), ["first"])


def test_the_registry_refuses_what_it_can_not_use():
    for taken in ("first", "mean", "median"):
        with pytest.raises(InvalidArgument, match=rf"a statistic '{taken}' exists already\. Known: count, mean"):
            statistic(taken)(lambda stats: 0.0)
    with pytest.raises(InvalidArgument, match="this one has 3 parameters"):
        statistic("new")(lambda a, b, c: 0.0)
    with pytest.raises(InvalidArgument, match="mean, sum, min, max"):
        statistic("new", merge="median")
    with pytest.raises(InvalidArgument, match=r"no statistic is called 'medain'\. Did you mean 'median'"):
        reduce(torch.ones(1), extra=["medain"])
    with pytest.raises(InvalidArgument, match=r"every row has 'mean'; it need not be asked for"):
        registry.find("mean")
    assert "new" not in registry.known()


def test_quantiles_and_losses_are_registered():
    (stats,) = collect([reduce(torch.tensor([1.0, 2.0, 1e6, 1e-12]))])
    found = registry.values(stats, ["median", "overflow_fp16", "underflow_fp16", "overflow_fp8_e4m3"])
    assert found == {
        "median": stats.quantile(0.5),
        "overflow_fp16": 0.25,
        "underflow_fp16": 0.25,
        "overflow_fp8_e4m3": 0.25,
    }
    assert np.isfinite(found["median"])
