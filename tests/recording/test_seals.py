"""Saved recordings have checksums: a flipped bit is told, or changes nothing that is read."""

import json
import random

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import hookline
from hookline.recording import seals


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2).to(torch.float32))
    with hookline.record(model, grads=True, inputs=True) as rec:
        model(torch.randn(5, 3)).sum().backward()
    return rec, rec.save(tmp_path / "a.safetensors")


def values(rec):
    """All tensors of a recording, by where they are."""
    found = {}
    for name, site in rec.items():
        call = site.calls[0]
        found |= {(name, "output"): call.output, (name, "input"): call.input[0]}
        found |= {(name, "grad_output"): call.grad_output, (name, "grad_input"): call.grad_input[0]}
    return {key: value for key, value in found.items() if value is not None}


def test_a_saved_file_is_a_plain_safetensors_file_with_checksums(saved):
    rec, path = saved
    assert len(load_file(path)) and seals.FIELD in seals.header_of(path)["__metadata__"]
    seals.check(path)
    again = values(hookline.load_recording(path))
    assert again.keys() == values(rec).keys()
    assert all(torch.equal(again[key], value) for key, value in values(rec).items())


def test_a_flipped_bit_is_told_or_changes_nothing(saved):
    rec, path = saved
    expected, whole = values(rec), path.read_bytes()
    chosen = random.Random(0)
    told = unchanged = 0
    for _ in range(400):
        at, bit = chosen.randrange(len(whole)), chosen.randrange(8)
        damaged = bytearray(whole)
        damaged[at] ^= 1 << bit
        path.write_bytes(damaged)
        try:
            got = values(hookline.load_recording(path))
        except hookline.RunError as error:
            told += str(path) in str(error)
        else:
            unchanged += 1
            assert got.keys() == expected.keys()
            assert all(torch.equal(got[key], value) for key, value in expected.items()), (at, bit)
    assert told > 300 and told + unchanged == 400


def test_damage_of_one_tensor_of_a_run_costs_that_one(tmp_path):
    model = nn.Sequential(nn.Linear(3, 300), nn.ReLU())
    with hookline.record(model, to=tmp_path / "run"):
        model(torch.ones(50, 3))
    (path,) = (tmp_path / "run").glob("*.safetensors")
    header = seals.header_of(path)
    first = min(header.keys() - {"__metadata__"}, key=lambda name: header[name]["data_offsets"])
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    data[start + header[first]["data_offsets"][0]] ^= 1
    path.write_bytes(data)
    with hookline.open_run(tmp_path / "run") as run:
        rec = run.recordings[0]
        read, failed = [], []
        for name in rec.names:
            try:
                read.append(rec[name].output.shape)
            except hookline.RunError as error:
                failed.append(str(error))
    assert read and len(failed) == 1 and "the checksum of its tensor" in failed[0]


def test_a_file_without_checksums_is_read_as_it_is(saved, tmp_path):
    rec, path = saved
    metadata = {"hookline": seals.header_of(path)["__metadata__"]["hookline"]}
    old = tmp_path / "old.safetensors"
    save_file(load_file(path), old, metadata)
    assert hookline.load_recording(old).names == rec.names


@pytest.mark.parametrize("crc", ["", "zz", "0" * 8, 5, None, ["a"]])
def test_checksums_that_are_none_are_told(saved, crc):
    _, path = saved
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"][seals.FIELD] = crc
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + data[8 + size :])
    with pytest.raises(hookline.RunError, match=str(path)):
        hookline.load_recording(path)


def test_a_recording_without_tensors_is_sealed_too(tmp_path):
    model = nn.Linear(2, 2)
    with hookline.record(model) as rec:
        pass
    assert hookline.load_recording(rec.save(tmp_path / "empty.safetensors")).names == []
