"""Copies of small tensors, which are made beside torch: right, alone in their memory, and seen by nobody."""

import copy
import gc
import pickle
from contextlib import nullcontext

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode

from hookline import Unsupported
from hookline.backends.torch import values
from hookline.backends.torch.values import EXCHANGE, LARGE, snapshot

needs_table = pytest.mark.skipif(
    values._direct is None or EXCHANGE is None, reason="no compiler was here, or torch has no table of DLPack's"
)

DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16),
    *(torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool),
]
OTHERS = [torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2]
SHAPES = [(), (0,), (1,), (3, 0, 2), (5,), (2, 3), (1, 4, 1), (2, 1, 3, 2)]


def some(shape, dtype):
    return (torch.randn(shape) * 3).abs().to(dtype)


@needs_table
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_plain_tensor_is_copied_directly(shape, dtype):
    tensor = some(shape, dtype)
    kept = values._direct.copy(EXCHANGE, tensor)
    assert kept.shape == tensor.shape and kept.dtype == tensor.dtype and kept.stride() == tensor.stride()
    assert torch.equal(kept, tensor) and type(kept) is torch.Tensor and kept.is_contiguous()
    assert kept.data_ptr() % 64 == 0 or not kept.numel()
    before = kept.clone()
    tensor.zero_()
    assert torch.equal(kept, before)


@pytest.mark.parametrize("dtype", [*DTYPES, *OTHERS], ids=str)
@pytest.mark.parametrize("how", [lambda t: t, lambda t: t.mT, lambda t: t[:, ::2], lambda t: t[:1].expand(4, -1)])
def test_a_snapshot_is_equal_whichever_way_it_is_made(dtype, how):
    tensor = how(some((4, 6), dtype))
    kept = snapshot(tensor)
    assert torch.equal(kept.to(torch.complex128), tensor.to(torch.complex128))
    assert kept.shape == tensor.shape and kept.dtype == tensor.dtype
    assert kept.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr()


def test_signs_that_are_to_be_turned_are_turned():
    z = torch.tensor([1.0 + 2.0j])
    assert snapshot(z.conj().imag).item() == -2.0 and snapshot(torch._neg_view(torch.ones(2))).tolist() == [-1, -1]
    assert snapshot(z.conj()).item() == 1.0 - 2.0j
    assert snapshot(torch._efficientzerotensor(3)).tolist() == [0, 0, 0]


def test_a_copy_is_an_ordinary_tensor():
    kept = snapshot(torch.randn(3, 4, requires_grad=True) * 2)
    assert not kept.requires_grad and kept.is_leaf and kept._version == 0
    assert torch.equal(pickle.loads(pickle.dumps(kept)), kept) and torch.equal(copy.deepcopy(kept), kept)
    assert torch.equal(torch.from_numpy(kept.numpy()), kept)
    kept.requires_grad_().sum().backward()
    assert kept.grad is not None
    kept.grad.add_(1)
    with torch.inference_mode():
        made = snapshot(torch.ones(2))
    assert not made.is_inference()
    made.add_(1)


def test_a_part_outlives_the_copy():
    part = snapshot(torch.arange(1000.0))[500:502]
    gc.collect()
    assert part.tolist() == [500.0, 501.0]


@needs_table
def test_memory_is_given_back():
    resource = pytest.importorskip("resource")
    tensor = torch.ones(15_000)
    for _ in range(100):
        snapshot(tensor)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(20_000):  # 1.2 GB in all
        snapshot(tensor)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 600_000  # KB; a sanitizer keeps the latest 256 MB from being used again


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_no_mode_sees_a_copy():
    tensor = torch.ones(3)
    with Seen() as seen:
        kept = snapshot(tensor)
    assert seen.names == [] and torch.equal(kept, tensor)


def test_transforms_do_not_wrap_a_copy():
    kept = []

    def f(x):
        kept.append(snapshot(x))
        return (x * 2).sum()

    torch.func.vmap(f)(torch.arange(6.0).reshape(3, 2))
    torch.func.grad(f)(torch.ones(2))
    assert [tuple(one.shape) for one in kept] == [(3, 2), (2,)]
    assert kept[0].tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


def test_a_function_mode_does_not_change_a_copy():
    class Twice(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            return result * 2 if isinstance(result, torch.Tensor) else result

    tensor = torch.ones(3)
    with Twice():
        kept = snapshot(tensor)
    assert kept.tolist() == [1.0, 1.0, 1.0]


def test_without_the_extension_copies_are_the_same(monkeypatch):
    monkeypatch.setattr(values, "_COPIES", False)
    tensor = torch.randn(3, 4, requires_grad=True) * 2
    kept = snapshot(tensor)
    assert torch.equal(kept, tensor) and not kept.requires_grad


@needs_table
def test_arguments_are_counted():
    with pytest.raises(TypeError, match="expected 2 arguments, got 1"):
        values._direct.copy(EXCHANGE)
    with pytest.raises(TypeError, match="expected 3 arguments, got 2"):
        values._direct.keep(EXCHANGE, torch.ones(1))


BIG = 3 * LARGE // 4


@pytest.mark.parametrize("dtype", [*DTYPES, *OTHERS], ids=str)
@pytest.mark.parametrize("layout", ["in order", "channels last", "turned", "with gaps", "repeated", "odd start"])
def test_large_tensors_are_copied_whichever_way_they_lie(layout, dtype):
    flat = torch.arange(BIG + 8).remainder(97).to(dtype)
    tensor = {
        "in order": flat[:BIG].reshape(2, 3, -1),
        "channels last": flat[:BIG].reshape(2, 3, 4, -1).contiguous(memory_format=torch.channels_last),
        "turned": flat[:BIG].reshape(64, -1).T,
        "with gaps": flat[:BIG].reshape(64, -1)[:, ::2],
        "repeated": flat[:BIG].reshape(1, -1).expand(3, -1),
        "odd start": flat[3 : BIG + 3],
    }[layout]
    expected = tensor.clone()
    kept = snapshot(tensor)
    flat.zero_()
    tensor.zero_() if layout != "repeated" else None
    assert kept.shape == expected.shape and kept.dtype == expected.dtype
    assert torch.equal(kept.to(torch.complex128), expected.to(torch.complex128))


def test_a_large_negated_view_is_negated():
    assert snapshot(torch._neg_view(torch.ones(BIG))).unique().tolist() == [-1.0]


class Quiet(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


WAYS = {
    "plain": (lambda tensor: tensor, nullcontext, {}),
    "cast": (lambda tensor: tensor, nullcontext, {"dtype": torch.float64}),
    "a parameter": (torch.nn.Parameter, nullcontext, {}),
    "a frozen parameter": (lambda tensor: torch.nn.Parameter(tensor, requires_grad=False), nullcontext, {}),
    "inference": (lambda tensor: tensor, torch.inference_mode, {}),
    "below a mode": (lambda tensor: tensor, Quiet, {}),
}


@pytest.mark.parametrize("size", [5, BIG])
@pytest.mark.parametrize("way", WAYS)
def test_a_tensor_whose_memory_was_freed_is_refused_and_does_not_end_the_process(way, size):
    make, block, how = WAYS[way]
    tensor = make(torch.ones(size))
    tensor.untyped_storage().resize_(0)
    with block(), pytest.raises(Unsupported, match="a tensor whose memory was freed"):
        snapshot(tensor, **how)


def test_a_class_that_keeps_its_values_elsewhere_was_not_freed():
    with FakeTensorMode():
        fake = torch.rand(3)
    two = TwoTensor(torch.rand(3), torch.rand(3))
    assert snapshot(fake).shape == (3,) and torch.equal(snapshot(two).a, two.a)
