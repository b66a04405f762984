"""Fingerprints: a number of all bits of a tensor, in every row of a watch that is asked for it."""

import copy
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import hookline
from hookline.backends import hashing
from hookline.backends.torch import hashing as on_device
from hookline.lines import kernel
from hookline.lines.fingerprints import Fingerprints, fingerprint
from hookline.testing import untouched

WAYS = ("avx2", "baseline", "torch")
DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16),
    *(torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn),
]


def everywhere(tensor):
    """The fingerprints of a tensor by all who make them: the kernel, numpy, torch on its device."""
    found = {int(on_device.hashed_on_device(tensor).item()) & hashing.MASK}
    for way in WAYS:
        with kernel.using(way):
            found.add(fingerprint(tensor))
    return found


def plain(data):
    """The same by the words of `_kernel_bits.h`, in whole numbers of Python."""
    mask = (1 << 64) - 1
    words = [int.from_bytes(data[at : at + 8].ljust(8, b"\0"), "little") for at in range(0, len(data), 8)]
    keys = [hashing.scrambled((place + 1) * hashing.WEYL & mask) for place in range(520)]
    total = 0
    for block in range(0, len(words), 512):
        sums = [0, 0]
        for place, word in enumerate(words[block : block + 512]):
            for which, key in enumerate((keys[place], keys[place + 8])):
                shifted = (word + key) & mask
                sums[which] = (sums[which] + (shifted & 0xFFFFFFFF) * (shifted >> 32)) & mask
        inner = hashing.scrambled((sums[1] + (block // 512 + 1) * hashing.WEYL) & mask)
        total += hashing.scrambled(sums[0] ^ inner)
    return hashing.scrambled((total + len(data) * hashing.WEYL) & mask)


def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def trained(net, steps=3, micro=1, lr=0.1, **how):
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    generator = torch.Generator().manual_seed(5)
    with hookline.watch(net, progress=False, **how) as w:
        for _ in range(steps):
            optimizer.zero_grad()
            for _ in range(micro):
                net(torch.randn(6, 4, generator=generator)).square().mean().backward()
            optimizer.step()
    return w


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7, 5), (1023, 3), (2, 3, 4, 5), (5000,)], ids=str)
def test_all_make_the_same_number_of_any_dtype_and_layout(dtype, shape):
    torch.manual_seed(0)
    whole = (torch.randn(shape) * 50).to(dtype)
    views = [whole]
    if whole.ndim > 1:
        views += [whole.transpose(0, -1), whole[..., ::2], whole[1:], whole[:0]]
    if whole.ndim == 4:
        views.append(whole.contiguous(memory_format=torch.channels_last))
    if whole.numel() == 1:
        views.append(whole.reshape(1).expand(700))
    for view in views:
        (found,) = everywhere(view)
        data = view.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        assert found == plain(data)


def test_what_it_is_stays_what_it_is():
    """Runs of other versions and machines are compared by it."""
    values = torch.tensor([1.0, -2.5, 0.0, float("nan")])
    assert f"{fingerprint(values):016x}" == "1512d4f97d5ce180"
    assert f"{fingerprint(torch.arange(10_000)):016x}" == "3def4cd9dd7ee902"
    assert f"{fingerprint(torch.empty(0)):016x}" == "0000000000000000"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_bit_and_every_place_counts(data):
    size = data.draw(st.integers(2, 3000))
    values = torch.from_numpy(np.random.default_rng(size).integers(0, 256, size, np.uint8))
    before = fingerprint(values)
    place, bit = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, 7))
    flipped = values.clone()
    flipped[place] ^= 1 << bit
    assert fingerprint(flipped) != before
    other = data.draw(st.integers(0, size - 1))
    exchanged = values.clone()
    exchanged[[place, other]] = exchanged[[other, place]]
    assert (fingerprint(exchanged) == before) == bool(values[place] == values[other])


def test_changes_that_cancel_out_in_sums_are_seen():
    ones = torch.tensor([1.0, 2.0, 2.0, 1.0] * 300)
    found = {fingerprint(ones), fingerprint(3 - ones), fingerprint(ones.flip(0)), fingerprint(-ones)}
    assert len(found) == 3  # it reads the same backwards
    signs = [torch.ones(64) for _ in range(65)]
    for place, one in enumerate(signs[1:]):
        one[place] = -1.0
        one[place ^ 2] = -1.0
    assert len({fingerprint(one) for one in signs}) == 33
    blocks = torch.arange(4096.0)
    turned = torch.cat([blocks[1024:2048], blocks[:1024], blocks[2048:]])
    assert fingerprint(turned) != fingerprint(blocks)
    assert fingerprint(torch.zeros(3)) != fingerprint(torch.zeros(4))
    assert fingerprint(torch.zeros(1)) != fingerprint(-torch.zeros(1))


def test_no_two_of_many_are_the_same():
    some = [torch.full((n,), value) for n in range(1, 60) for value in (0.0, 1.0, -1.0, 0.5, 1e-30)]
    some += [torch.eye(40)[at] for at in range(40)]
    assert len({fingerprint(one) for one in some}) == len(some)


def test_strange_tensors_have_the_number_of_their_values():
    x = torch.randn(5, 3, dtype=torch.complex64)
    assert fingerprint(x.conj()) == fingerprint(x.conj().resolve_conj())
    assert fingerprint(x.imag) == fingerprint(x.imag.contiguous())
    assert fingerprint(torch.view_as_real(x).neg()) == fingerprint(-torch.view_as_real(x))
    leaf = nn.Parameter(torch.ones(3))
    assert fingerprint(leaf) == fingerprint(leaf * 1) == fingerprint(torch.ones(3))
    nine = torch.randn([2] * 9).transpose(0, 8)
    assert everywhere(nine) == {fingerprint(nine.contiguous())}
    found = []
    torch.func.vmap(lambda row: (found.append(fingerprint(row)), row)[1])(torch.eye(3))
    assert found == [fingerprint(torch.eye(3))]


def test_lines_beyond_the_room_have_theirs():
    held = Fingerprints(1)
    tensors = [torch.full((2,), float(n)) for n in range(3)]
    for line, tensor in enumerate(tensors):
        held.add(line, tensor)
    assert held.read(3) == [fingerprint(one) for one in tensors]


@pytest.mark.parametrize("way", WAYS)
def test_every_row_of_a_watch_has_one(way):
    with kernel.using(way):
        rows = trained(model(), fingerprint=True, inputs=True, moments=True).rows()
    assert {row["kind"] for row in rows} >= {"input", "output", "grad_output", "param", "param_grad", "update"}
    assert all(len(row["fingerprint"]) == 16 and int(row["fingerprint"], 16) >= 0 for row in rows)
    reference = trained(model(), fingerprint=True, inputs=True, moments=True).rows()
    assert [row["fingerprint"] for row in rows] == [row["fingerprint"] for row in reference]


def test_without_being_asked_no_row_has_one():
    assert all("fingerprint" not in row for row in trained(model()).rows())


def test_it_is_that_of_the_tensor_of_its_row():
    net, x = model(), torch.randn(6, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    seen = {}
    net[0].register_forward_hook(lambda module, args, output: seen.update(output=output.detach().clone()))
    with hookline.watch(net, fingerprint=True, progress=False) as w:
        net(x).square().mean().backward()
        before = {name: one.detach().clone() for name, one in net.named_parameters()}
        grads = {name: one.grad.clone() for name, one in net.named_parameters()}
        optimizer.step()
    after = dict(net.named_parameters())

    def told(site, kind):
        (row,) = w.rows(site, kind)
        return int(row["fingerprint"], 16)

    assert told("0", "output") == fingerprint(seen["output"])
    for name in before:
        assert told(name, "param") == fingerprint(before[name])
        assert told(name, "param_grad") == fingerprint(grads[name])
        assert told(name, "update") == fingerprint(after[name] - before[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_updates_are_the_same_with_and_without_the_kernel(dtype):
    def updates(way, channels_last):
        torch.manual_seed(0)
        net = nn.Conv2d(3, 5, 3).to(dtype)
        net = net.to(memory_format=torch.channels_last) if channels_last else net
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with kernel.using(way), hookline.watch(net, fingerprint=True, progress=False) as w:
            net(torch.ones(2, 3, 6, 6, dtype=dtype)).sum().backward()
            optimizer.step()
        return [row["fingerprint"] for row in w.rows(kind="update")]

    found = [updates(way, False) for way in WAYS]
    assert found[0] == found[1] == found[2]
    last = [updates(way, True) for way in WAYS]
    assert last[0] == last[1] == last[2]


def test_calls_are_kept_apart_and_micro_batches_put_together_in_order():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            return self.fc(self.fc(x))

    torch.manual_seed(0)
    rows = trained(Twice(), steps=1, fingerprint=True).rows("fc", "output")
    assert [row["call"] for row in rows] == [0, 1] and len({row["fingerprint"] for row in rows}) == 2

    def printed(*batches):
        net = nn.Linear(4, 2)
        with torch.no_grad():
            net.weight.fill_(1.0), net.bias.zero_()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with hookline.watch(net, fingerprint=True, progress=False) as w:
            for batch in batches:
                net(torch.full((3, 4), batch)).sum().backward()
            optimizer.step()
        (row,) = w.rows("", "output")
        return row["fingerprint"]

    assert printed(1.0, 2.0) == printed(1.0, 2.0) != printed(2.0, 1.0)
    assert printed(1.0) not in (printed(1.0, 2.0), printed(1.0, 1.0))


def test_a_run_keeps_it_to_the_last_bit(tmp_path):
    w = trained(model(), to=tmp_path / "run", fingerprint=True)
    kept = hookline.open_run(tmp_path / "run")
    for site, kind in (("0", "output"), ("3.weight", "update")):
        mine = [row["fingerprint"] for row in w.rows(site, kind)]
        assert [row["fingerprint"] for row in kept.rows(site, kind)] == mine
        assert kept.columns(site, kind, stat="fingerprint")["fingerprint"].tolist() == mine
    assert kept.more() == {"fingerprint": False}
    frame = kept.to_pandas()
    assert frame[frame.kind == "output"].fingerprint.str.len().eq(16).all()
    kept.export(tmp_path / "rows.csv")
    assert mine[0] in (tmp_path / "rows.csv").read_text()
    assert {"fingerprint"} <= set(hookline.open_run(tmp_path / "run").rows("0", "output")[0])


def test_training_is_the_same_to_the_bit():
    plain, watched = model(), model()
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), watched.parameters(), strict=True))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(5)
    for _ in range(3):
        optimizer.zero_grad()
        plain(torch.randn(6, 4, generator=generator)).square().mean().backward()
        optimizer.step()
    state = torch.get_rng_state()
    trained(watched, fingerprint=True)
    assert torch.equal(state, torch.get_rng_state())
    for one, other in zip(plain.state_dict().values(), watched.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_nothing_is_left_on_the_model():
    net = model()
    with untouched(net):
        with hookline.watch(net, fingerprint=True, progress=False), torch.no_grad():
            net.eval()(torch.ones(6, 4))
        net.train()


def test_with_other_options_of_a_watch():
    for how in ({"histogram": False}, {"stats": ["p99"]}, {"channels": 1}, {"ops": True}, {"budget": "50%"}):
        rows = trained(model(), fingerprint=True, **how).rows()
        assert rows and all(len(row["fingerprint"]) == 16 for row in rows), how


def test_nan_and_inf_are_bits_like_others():
    one, other = torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("inf")])
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) == fingerprint(copy.deepcopy(one))


def test_what_is_whole_numbers_or_has_no_values_has_a_row_as_before():
    net = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 2))
    with hookline.watch(net, fingerprint=True, inputs=True, progress=False) as w, torch.no_grad():
        net(torch.tensor([[0, 4], [2, 2]]))
        net(torch.empty(0, 2, dtype=torch.int64))
    ids = [row["fingerprint"] for row in w.rows("0", "input")]
    assert int(ids[0], 16) == fingerprint(torch.tensor([[0, 4], [2, 2]]))
    assert int(ids[1], 16) == fingerprint(torch.empty(0))


def test_by_hookline_run_and_watching(tmp_path):
    with hookline.watching(tmp_path / "w", fingerprint=True):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(torch.randn(6, 4)).sum().backward()
        optimizer.step()
    assert "fingerprint" in hookline.open_run(tmp_path / "w").more()
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        import torch
        net = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        """)
    )
    words = ["-m", "hookline", "run", "--fingerprint", "--to", str(tmp_path / "r"), str(script)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr
    assert "fingerprint" in hookline.open_run(tmp_path / "r").more()
