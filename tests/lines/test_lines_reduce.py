"""Every statistic of every kind of tensor against float64 numpy, by each way: AVX-512, AVX2, C, torch."""

import math

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode

from hookline import InvalidArgument, Unsupported
from hookline.lines import bins, collect, collect_channels, kernel, reduce, reduce_channels

WAYS = ["avx512", "avx2", "baseline", "torch"]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.fixture(params=WAYS)
def way(request):
    with kernel.using(request.param) as name:
        if request.param == "torch" or name == kernel.WAYS[request.param]:
            yield request.param
        else:
            pytest.skip(f"this machine has no {request.param}: {kernel.why_not_native() or name}")


def stats_of(tensor, histogram=True):
    (stats,) = collect([reduce(tensor, histogram)])
    return stats


def expected(x):
    """The row by numpy, in float64, and the histogram by the definition of a bin."""
    own = x.detach().reshape(-1)
    near = int((own.abs() <= 0.05).sum())
    x = own.double().numpy()
    finite = x[np.isfinite(x)]
    n = len(finite)
    hist = np.zeros(bins.COUNT, np.int64)
    for value in finite.tolist():
        hist[bins.index(value)] += 1
    with np.errstate(over="ignore"):
        return {
            "count": len(x),
            "mean": finite.mean() if n else math.nan,
            "std": finite.std(ddof=1) if n > 1 else math.nan,
            "min": finite.min() if n else math.nan,
            "max": finite.max() if n else math.nan,
            "absmax": np.abs(finite).max() if n else math.nan,
            "l2": np.sqrt((finite**2).sum()) if n else math.nan,
            "zeros": int((x == 0).sum()),
            "near_zero": near / len(x) if len(x) else math.nan,
            "nan": int(np.isnan(x).sum()),
            "inf": int(np.isinf(x).sum()),
            "hist": hist,
        }


def check(tensor, histogram=True):
    row, wanted = stats_of(tensor, histogram).row(), expected(tensor)
    assert list(row) == list(wanted)
    hist, wanted_hist = row.pop("hist"), wanted.pop("hist")
    for name in ("mean", "std", "l2"):
        scale = 0 if math.isnan(wanted["absmax"]) else wanted["absmax"]
        got, want = row.pop(name), wanted.pop(name)
        assert got == pytest.approx(want, rel=1e-12, abs=1e-12 * scale, nan_ok=True), name
    assert row == pytest.approx(wanted, rel=0, abs=0, nan_ok=True)  # exact
    assert (hist == wanted_hist).all() if histogram else hist is None


@pytest.mark.parametrize("histogram", [True, False])
@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9, 511, 513, 4096, 4097, 9001])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sizes_and_dtypes(way, dtype, size, histogram):
    x = torch.randn(size, generator=torch.Generator().manual_seed(size)) * 3
    check(x.to(dtype), histogram)


def odd_layouts():
    x = torch.randn(6, 5, 7, 9, generator=torch.Generator().manual_seed(0))
    return {
        "0-dim": torch.tensor(-2.5),
        "empty dim": x[:, :0],
        "channels last": x.to(memory_format=torch.channels_last),
        "transposed": x.transpose(0, 2),
        "every second": x[::2, :, 1:5:3],
        "column": x[..., 3],
        "expanded": x[:, :1].expand(6, 500, 7, 9),
        "expanded scalar": torch.tensor(0.5).expand(10_000),
        "expanded empty": x[:0, :1].expand(0, 5, 7, 9),
        "overlapping": torch.arange(1000.0).unfold(0, 10, 3),
        "long rows": torch.randn(5, 3000)[:, 7:2900],
        "8 dims": torch.randn(2, 3, 2, 3, 2, 3, 2, 3).permute(7, 0, 6, 1, 5, 2, 4, 3)[..., ::2],
        "9 dims": torch.randn(2, 3, 2, 2, 2, 2, 2, 2, 2).permute(8, 0, 7, 1, 6, 2, 5, 3, 4)[::2],
        "many, strided": torch.randn(50, 90, 3)[:, :, 1],
        "negated view": torch.randn(40, dtype=torch.complex64).conj().imag,
        "unaligned": torch.randn(1001)[1:],
    }


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", odd_layouts())
def test_layouts(way, name, dtype):
    x = odd_layouts()[name]
    check(x if dtype == x.dtype else x.to(dtype))


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.05, -0.05, 0.0501, 1.5, 2.0, math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("size", [1, 3, 100, 5000])
@pytest.mark.parametrize("special", range(len(SPECIAL) + 1))
def test_special_values(way, special, size, dtype):
    """All of one value, and at last all of them mixed."""
    values = SPECIAL if special == len(SPECIAL) else [SPECIAL[special]]
    check(torch.tensor(values, dtype=dtype).repeat(size))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("at", [0, 1, 4095, 4096, 9000])
def test_one_bad_value_does_not_poison_the_rest(way, at, dtype):
    x = torch.randn(9001, generator=torch.Generator().manual_seed(1)).to(dtype)
    x[at] = math.nan
    x[(at + 1) % 9001] = -math.inf
    check(x)
    assert stats_of(x).nan == stats_of(x).inf == 1


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("size", [1, 5000])
def test_denormals(way, dtype, size):
    tiny = torch.finfo(dtype).smallest_normal * torch.tensor([0.5, -0.25, 0.7, 1.0, 0.0], dtype=torch.float64)
    x = tiny.to(dtype).repeat(size)
    x[0] = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps  # the smallest number there is
    assert x[0] > 0
    check(x)


def test_denormals_count_while_torch_flushes_them():
    if kernel.kernel_in_use() == "torch":
        pytest.skip("torch itself then takes denormals for zeros")
    x = torch.tensor([1e-40, 0.0, 1.0]).repeat(1000)
    supported = torch.set_flush_denormal(True)
    try:
        stats = stats_of(x)
        flushed = (x == 0).sum() == 2000
    finally:
        torch.set_flush_denormal(False)
    assert flushed == supported and stats.zeros == 1000


@pytest.mark.parametrize("sign", [1, -1])
def test_fp64_beyond_the_range_of_its_squares(way, sign):
    x = sign * torch.tensor([1e300, 2e300, 3e300], dtype=torch.float64).repeat(3000)
    row = stats_of(x).row()
    assert row["mean"] == pytest.approx(sign * 2e300, rel=1e-12) and row["absmax"] == 3e300
    assert row["std"] == row["l2"] == math.inf
    assert row["hist"].sum() == 9000


def test_fp64_at_the_ends_of_its_range(way):
    x = torch.tensor([1.7e308, -1.7e308, 1.7e308, -1.7e308], dtype=torch.float64).repeat_interleave(5000)
    stats = stats_of(x)
    assert stats.mean == pytest.approx(0, abs=1e295) and stats.m2 == math.inf
    assert stats.hist[0] == stats.hist[-1] == 10_000
    stats = stats_of(torch.tensor([1e-310, -1e-310, 5e-324], dtype=torch.float64))
    assert stats.hist[bins.ZERO + 1] == 2 and stats.hist[bins.ZERO - 1] == 1 and stats.zeros == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_large_mean_small_spread(way, dtype):
    x = (torch.randn(100_000, dtype=torch.float64) + 1e6).to(dtype)
    true = x.double().numpy().std(ddof=1)
    assert stats_of(x).row()["std"] == pytest.approx(true, rel=1e-10)


def test_an_outlier_in_front_does_not_cost_the_precision_of_the_rest(way):
    x = torch.randn(4096, dtype=torch.float64)
    x[0] = 1e12
    y = x.numpy()
    assert stats_of(x).row()["std"] == pytest.approx(y.std(ddof=1), rel=1e-10)
    assert stats_of(x).mean == pytest.approx(y.mean(), rel=1e-10)


INTEGERS = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_whole_numbers(way, dtype):
    x = torch.randint(0, 2 if dtype == torch.bool else 100, (3000,)).to(dtype)
    row, wanted = stats_of(x).row(), expected(x.double())
    assert (row["hist"] == wanted["hist"]).all() and row["zeros"] == wanted["zeros"]
    assert row["mean"] == pytest.approx(wanted["mean"], rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_eight_bit_floats(way, dtype):
    x = torch.randn(1000).to(dtype)
    row, wanted = stats_of(x).row(), expected(x.float())
    assert (row["hist"] == wanted["hist"]).all() and row["std"] == pytest.approx(wanted["std"], rel=1e-12)


def test_complex_numbers_by_their_absolute_value(way):
    x = torch.tensor([3 + 4j, -1 + 0j, complex(math.nan, 0), complex(math.inf, 1)])
    stats = stats_of(x)
    assert (stats.max, stats.min, stats.nan, stats.inf) == (5.0, 1.0, 1, 1)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
def test_what_has_no_values_is_refused_clearly(way):
    dense = torch.eye(3)
    for tensor in (dense.to_sparse(), dense.to_sparse_csr()):
        with pytest.raises(Unsupported, match=r"sparse.*to_dense"):
            reduce(tensor)
    with FakeTensorMode():
        fake = torch.ones(3)
    for tensor in (torch.empty(3, device="meta"), fake):
        with pytest.raises(Unsupported, match="a meta or fake tensor"):
            reduce(tensor)
    with pytest.raises(Unsupported, match="run the model once"):
        reduce(torch.nn.LazyLinear(2).weight)
    with pytest.raises(InvalidArgument, match=r"expected a tensor of torch.*, got a list"):
        reduce([1.0])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors_are_refused(way):
    with pytest.raises(Unsupported, match="nested"):
        reduce(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged))


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")  # deprecated, and still about
def test_other_ways_to_hold_values(way):
    x = torch.arange(100.0).reshape(10, 10)
    quantized = torch.quantize_per_tensor(x, 1.0, 0, torch.qint8)
    off = torch.frombuffer(bytearray(b"x" + x.numpy().tobytes()), dtype=torch.float32, offset=1)
    for same in (quantized, off, x.to_mkldnn(), x.to(torch.uint64)):
        assert stats_of(same).mean == 49.5


class Labelled(torch.Tensor):
    pass


def test_subclasses_and_parameters(way):
    x = torch.randn(100)
    for same in (torch.nn.Parameter(x.clone()), x.clone().as_subclass(Labelled)):
        assert stats_of(same).row()["std"] == stats_of(x).row()["std"]


def test_autograd_random_state_and_values_are_left_alone(way):
    x = torch.randn(1000, requires_grad=True)
    y = x * 2
    before, state, version = y.detach().clone(), torch.get_rng_state(), y._version
    stats_of(y)
    assert y._version == version and torch.equal(y, before) and torch.equal(state, torch.get_rng_state())
    y.sum().backward()
    assert torch.equal(x.grad, torch.full((1000,), 2.0))


def test_inference_mode_and_transforms(way):
    x = torch.randn(4, 50)
    with torch.inference_mode():
        inside = reduce(x * 1)
    (stats,) = collect([inside])
    assert stats.mean == stats_of(x).mean
    seen = []
    torch.func.vmap(torch.func.grad(lambda row: (seen.append(reduce(row)), row.sum())[1]))(x)
    assert collect(seen)[0].mean == pytest.approx(stats.mean, rel=1e-12)


@pytest.mark.parametrize("histogram", [True, False])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("layout", ["as it is", "channels last", "expanded", "transposed"])
def test_channels(way, layout, dtype, histogram):
    x = torch.randn(5, 7, 30, 40, generator=torch.Generator().manual_seed(2)).to(dtype)
    x[0, 2, 0, 0], x[1, 3, 2, 2] = math.nan, 0.0
    x = {
        "as it is": lambda: x,
        "channels last": lambda: x.to(memory_format=torch.channels_last),
        "expanded": lambda: x[:1].expand(3, 7, 30, 40),
        "transposed": lambda: x.transpose(1, 3),
    }[layout]()
    for dim in (1, -1, 0):
        (channels,) = collect_channels([reduce_channels(x, dim, histogram)])
        assert len(channels) == x.shape[dim]
        for number, stats in enumerate(channels):
            whole = stats_of(x.select(dim, number), histogram)
            assert stats.m2 == pytest.approx(whole.m2, rel=1e-12)
            assert stats.mean == pytest.approx(whole.mean, rel=1e-12, abs=1e-14)
            for name in ("count", "min", "max", "zeros", "near_zero", "nan", "inf"):
                assert getattr(stats, name) == getattr(whole, name), name
            assert (stats.hist == whole.hist).all() if histogram else stats.hist is None


def test_channels_that_are_not_there(way):
    assert collect_channels([reduce_channels(torch.ones(3, 0), 1)]) == [[]]
    (channels,) = collect_channels([reduce_channels(torch.ones(0, 3), 1)])
    assert [stats.count for stats in channels] == [0, 0, 0]
    with pytest.raises(InvalidArgument, match="dim=2: the tensor has 2 dims"):
        reduce_channels(torch.ones(2, 2), 2)
