"""The kernel called on tensors directly: the same words as by their addresses; refused where memory misleads."""

import threading
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hookline import bins
from hookline.backends.torch import BACKEND
from hookline.lines import kernel
from hookline.lines.kernel import reduce_line, reduce_tensor, reduce_two
from hookline.lines.reduce import copied_into, reduce, reduce_difference, reduced_into
from hookline.lines.sheet import Sheet
from hookline.lines.stats import Stats
from hookline.rows import HEADER

pytestmark = pytest.mark.skipif(
    kernel.active() is None or reduce_tensor is None or BACKEND.exchange_of(torch.ones(1)) is None,
    reason="there is no C kernel here, or torch has no table of DLPack's functions",
)


def directly(tensor, histogram):
    words = np.zeros(HEADER + bins.COUNT * histogram, np.int64)
    exchange = BACKEND.exchange_of(tensor)
    done = exchange is not None and kernel.active().reduce_direct(exchange, tensor, histogram, words.ctypes.data)
    return words if done else None


LAYOUTS = {
    "in order": lambda t: t,
    "turned": lambda t: t.transpose(0, 1),
    "every other": lambda t: t[:, ::2],
    "a part": lambda t: t[1:, 1:],
    "repeated": lambda t: t[:1].expand(5, -1, -1),
    "channels last": lambda t: t[None].contiguous(memory_format=torch.channels_last),
    "one value": lambda t: t[:1, :1, :1],
    "none": lambda t: t[:0],
    "a scalar": lambda t: t.sum(),
}


@settings(max_examples=60, deadline=None)
@given(
    dtype=st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16]),
    layout=st.sampled_from(sorted(LAYOUTS)),
    shape=st.tuples(*[st.integers(1, 9)] * 3),
    histogram=st.booleans(),
    needs_gradient=st.booleans(),
)
def test_the_words_are_those_of_the_address(dtype, layout, shape, histogram, needs_gradient):
    tensor = LAYOUTS[layout](torch.randn(shape, dtype=torch.float32).to(dtype).requires_grad_(needs_gradient))
    words = directly(tensor, histogram)
    address = BACKEND.address(tensor)
    expected = np.frombuffer(kernel.active().reduce(address, histogram), np.int64)
    assert words is not None and words.tolist() == expected.tolist()


def test_many_values_and_a_parameter_are_read_too():
    assert Stats.from_words(directly(torch.ones(100_000), False)).count == 100_000
    assert Stats.from_words(directly(torch.nn.Parameter(torch.ones(3)), True)).mean == 1.0


REFUSED = {
    "whole numbers": lambda: torch.arange(5),
    "complex": lambda: torch.ones(3, dtype=torch.complex64),
    "eight bits": lambda: torch.ones(3).to(torch.float8_e4m3fn),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "meta": lambda: torch.ones(3, device="meta"),
    "sign to be turned": lambda: torch.tensor([1.0 + 2.0j]).conj().imag,
    "without memory": lambda: torch._efficientzerotensor(3),
    "nine dims": lambda: torch.ones(*[2] * 9).permute(8, *range(8)),
    "a subclass": lambda: torch.ones(3).as_subclass(type("Own", (torch.Tensor,), {})),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_what_memory_does_not_have_as_it_is_is_asked_another_way(kind):
    tensor = REFUSED[kind]()
    assert directly(tensor, False) is None


@pytest.mark.parametrize(
    "kind", ["whole numbers", "sign to be turned", "without memory", "nine dims", "a subclass"]
)
def test_it_is_reduced_all_the_same(kind):
    tensor = REFUSED[kind]()
    sheet = Sheet(histogram=False, lines=4)
    line = sheet.reduce(tensor)
    words, _ = sheet.read(line + 1)
    plain = tensor.as_subclass(torch.Tensor).resolve_neg().double() + 0.0
    assert Stats.from_words(words[line]).mean == plain.mean().item()
    assert Stats.from_words(words[line]).count == plain.numel()


def test_inside_of_a_transform_it_is_no_error():
    seen = []

    def looked_at(x):
        seen.append(directly(x, False))
        return x * 2

    torch.func.vmap(looked_at)(torch.ones(3, 2))
    torch.func.grad(lambda x: looked_at(x).sum())(torch.ones(2))
    assert seen == [None, None]


def test_wrong_arguments_are_told():
    with pytest.raises(TypeError, match="expected 6 arguments, got 1"):
        reduce_tensor(1)
    with pytest.raises(ValueError, match="invalid PyCapsule"):
        reduce_tensor(object(), 0, 0, 0, 0, torch.ones(1))


def test_without_the_extension_the_address_is_asked_for(monkeypatch):
    monkeypatch.setattr(kernel, "reduce_tensor", None)
    words = np.zeros(HEADER, np.int64)
    assert reduced_into(words.ctypes.data, torch.ones(4), False)
    assert words.tolist() == np.frombuffer(reduce(torch.ones(4), False).words, np.int64).tolist()


def test_a_sheet_that_was_cleared_is_as_new():
    sheet = Sheet(histogram=True, lines=3)
    for n in range(5):
        sheet.reduce(torch.full((n + 1,), float(n)))
    sheet.clear()
    line = sheet.reduce(torch.tensor([2.0, 2.0]))
    words, extras = sheet.read(1)
    expected = np.frombuffer(reduce(torch.tensor([2.0, 2.0])).words, np.int64)
    assert line == 0 and not extras and words[0].tolist() == expected.tolist()
    assert not sheet.read(3)[0][1:].any()


def copied(tensor, room):
    words = np.zeros(HEADER, np.int64)
    return words if copied_into(words.ctypes.data, tensor, room, False) else None


ALIKE = {
    "in order": lambda: torch.randn(4, 3),
    "channels last": lambda: torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    "turned": lambda: torch.randn(4, 3).t(),
    "a parameter": lambda: torch.nn.Parameter(torch.randn(3)),
    "a scalar": lambda: torch.randn(()),
    "none": lambda: torch.ones(0, 3),
    "many": lambda: torch.randn(300, 301),
}


@pytest.mark.parametrize("kind", sorted(ALIKE))
def test_a_tensor_is_copied_as_it_is_reduced(kind):
    tensor = ALIKE[kind]()
    room = torch.empty_like(tensor, requires_grad=False)
    assert copied(tensor, room).tolist() == np.frombuffer(reduce(tensor, False).words, np.int64).tolist()
    assert torch.equal(room, tensor)


UNLIKE = {
    "another shape": lambda: (torch.ones(4, 3), torch.ones(3, 4)),
    "another dtype": lambda: (torch.ones(4), torch.ones(4).double()),
    "another layout": lambda: (torch.ones(4, 3), torch.ones(3, 4).t()),
    "gaps": lambda: (torch.ones(4, 6)[:, ::2], torch.ones(4, 6)[:, ::2]),
    "repeated": lambda: (torch.ones(1).expand(4), torch.ones(1).expand(4)),
    "whole numbers": lambda: (torch.ones(4).int(), torch.ones(4).int()),
    "a sparse room": lambda: (torch.eye(3), torch.eye(3).to_sparse()),
    "another device": lambda: (torch.ones(4), torch.ones(4, device="meta")),
    "without memory": lambda: (torch.ones(3), torch._efficientzerotensor(3)),
    "sign to be turned": lambda: (torch.tensor([1.0 + 2.0j]).conj().imag, torch.ones(1)),
}


@pytest.mark.parametrize("kind", sorted(UNLIKE))
def test_what_does_not_lie_alike_is_not_copied(kind):
    tensor, room = UNLIKE[kind]()
    before = None if room.is_meta or room.is_sparse else room.clone()
    assert copied(tensor, room) is None
    assert before is None or torch.equal(room, before)


def test_a_sheet_reduces_also_what_it_can_not_copy():
    sheet = Sheet(histogram=False, lines=2)
    x, room = torch.tensor([1.0, 3.0]), torch.zeros(2)
    assert sheet.reduce_copied(x, room) == (0, True) and room.tolist() == [1.0, 3.0]
    assert sheet.reduce_copied(x.int(), room.int()) == (1, False)
    assert sheet.reduce_copied(x, room.zero_()) == (2, False)  # there is no room for a third line
    words, _ = sheet.read(3)
    assert [Stats.from_words(line).mean for line in words] == [2.0] * 3


def test_norms_are_known_of_what_was_reduced_into_the_sheet():
    sheet = Sheet(histogram=True, lines=6)
    values = [[3.0, -4.0], [], [1.0, float("nan"), float("inf")], [float("-inf"), 1.0], [1e30, 1e30]]
    lines = [sheet.reduce(torch.tensor(some)) for some in values]
    lines.append(sheet.reduce(torch.tensor([3, 4])))  # whole numbers are reduced elsewhere
    five, none, nan, infinite, large, unknown = sheet.norms(lines)
    assert (five, none, infinite, unknown) == (5.0, 0.0, float("inf"), None) and nan != nan
    assert large == pytest.approx(torch.tensor(values[-1]).double().norm().item(), rel=1e-12)
    assert sheet.norms([]) == []


def test_without_the_extension_differences_are_made_by_the_address_and_nothing_is_copied(monkeypatch):
    monkeypatch.setattr(kernel, "reduce_two", None)
    x = torch.randn(50)
    assert copied(x, torch.empty(50)) is None
    found = reduce_difference(x, x * 0.5, False)
    assert bytes(found.words) == bytes(reduce(x - x * 0.5, False).words)


def test_wrong_arguments_for_two_are_told():
    with pytest.raises(TypeError, match="expected 6 arguments, got 2"):
        reduce_two(1, 2)
    with pytest.raises(ValueError, match="invalid PyCapsule"):
        reduce_two(object(), 0, torch.ones(1), torch.ones(1), 0, 0)
    with pytest.raises(TypeError):
        reduce_two(BACKEND.exchange_of(torch.ones(1)), "no address", torch.ones(1), torch.ones(1), 0, 0)


def test_a_sheet_that_c_writes_has_what_each_tensor_has():
    tensors = [make() for make in (*ALIKE.values(), *(REFUSED[kind] for kind in ("whole numbers", "a subclass")))]
    tensors += [layout(torch.randn(4, 6, 3)) for layout in LAYOUTS.values()]
    sheet = Sheet(histogram=True, lines=len(tensors) - 2)  # the last two have memory of their own
    lines = [sheet.reduce(tensor) for tensor in tensors]
    words, _ = sheet.read(len(tensors))
    assert lines == list(range(len(tensors)))
    for line, tensor in zip(lines, tensors, strict=True):
        assert words[line].tolist() == np.frombuffer(reduce(tensor).words, np.int64).tolist()


def test_what_asks_in_vain_is_reduced_all_the_same(monkeypatch):
    def fails(tensor):
        raise ValueError("no answer")

    exchange, types, _ = BACKEND.exchange_rule
    monkeypatch.setattr(type(BACKEND), "exchange_rule", (exchange, types, fails))
    sheet = Sheet(histogram=False, lines=2)
    assert sheet.reduce(torch.tensor([1.0, 3.0])) == 0
    assert Stats.from_words(sheet.read(1)[0][0]).mean == 2.0


@pytest.mark.parametrize("missing", ["reduce_line", "the table"])
def test_a_sheet_does_without_c(monkeypatch, missing):
    if missing == "the table":
        monkeypatch.setattr(type(BACKEND), "exchange_rule", None)
    else:
        monkeypatch.setattr(kernel, "reduce_line", None)
    sheet = Sheet(histogram=False, lines=2)
    assert [sheet.reduce(torch.full((3,), float(n))) for n in range(3)] == [0, 1, 2]
    assert [Stats.from_words(line).mean for line in sheet.read(3)[0]] == [0.0, 1.0, 2.0]


def test_nothing_holds_a_sheet_or_a_tensor():
    sheet, tensor = Sheet(histogram=False, lines=2), torch.ones(3)
    sheet.reduce(tensor)
    sheet.reduce_copied(tensor, torch.empty(3))
    gone = [weakref.ref(sheet), weakref.ref(tensor)]
    del sheet, tensor
    assert [one() for one in gone] == [None, None]


def test_threads_get_lines_of_their_own():
    sheet, found = Sheet(histogram=False, lines=300), []

    def work(number):
        for size in range(1, 101):
            found.append((sheet.reduce(torch.full((size * 100,), float(number))), number, size * 100))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    words, _ = sheet.read(400)
    assert sorted(line for line, *_ in found) == list(range(400))
    for line, number, size in found:
        stats = Stats.from_words(words[line])
        assert (stats.mean, stats.count) == (number, size)


def test_wrong_arguments_for_a_line_are_told():
    exchange, types, is_odd = BACKEND.exchange_rule
    with pytest.raises(TypeError, match="expected 11 arguments, got 1"):
        reduce_line(1)
    with pytest.raises(TypeError, match="a tuple of types and an iterator"):
        reduce_line(exchange, 0, 0, 0, list(types), is_odd, 0, 0, 0, iter(()), torch.ones(1))
    with pytest.raises(TypeError, match="a tuple of types and an iterator"):
        reduce_line(exchange, 0, 0, 0, types, is_odd, 0, 0, 0, 5, torch.ones(1))
    with pytest.raises(ValueError, match="no number any more"):
        reduce_line(exchange, 0, 0, 0, types, is_odd, 0, 0, 0, iter(()), torch.ones(1))
    with pytest.raises(TypeError):
        reduce_line(exchange, 0, 0, 0, types, is_odd, 0, 0, 0, iter("a"), torch.ones(1))
    assert reduce_line(exchange, 0, 0, 0, types, is_odd, 0, 0, 0, iter([5]), torch.ones(1)) == -6
