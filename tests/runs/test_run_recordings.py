"""Tensors in runs: record(..., to=run), and reading them back one by one."""

import signal
import sqlite3
import subprocess
import sys
import time
from collections import namedtuple

import pytest
import torch
from torch import nn

import hookline
from hookline.recording import files
from hookline.recording.record import record
from hookline.runfiles.reader import Reader
from tests.support.compare import loss_of, same_bits

Pair = namedtuple("Pair", "a b")


class Odd(nn.Module):
    """Structures, keyword arguments, dtypes, two calls, and names that no file or table likes."""

    def __init__(self):
        super().__init__()
        self.add_module("a/,,/b 'x'; --é\n", nn.Linear(3, 3))
        self.add_module("CON", nn.Identity())

    def forward(self, x, *, scale=2.0):
        (first, second) = self.children()
        y = second(first(x)) + second(x)
        return {"pair": Pair(y * scale, y.to(torch.bfloat16)), "none": None, "z": torch.complex(y, y)}


def recorded(model, to, **options):
    with record(model, inputs=True, grads=True, to=to, **options) as rec:
        loss_of(model(torch.randn(2, 3, requires_grad=True), scale=3.0)).backward()
    return rec


def same_recording(a, b):
    assert a.names == b.names and str(a.audit()) == str(b.audit())
    for name in a.names:
        assert len(a[name].calls) == len(b[name].calls)
        for one, other in zip(a[name].calls, b[name].calls, strict=True):
            for what in ("output", "input", "kwargs", "grad_output", "grad_input", "grad_kwargs"):
                assert same_bits(getattr(one, what), getattr(other, what)), (name, what)
        assert same_bits(a[name].param_grads, b[name].param_grads)


def test_what_was_recorded_is_read_back_to_the_last_bit(tmp_path):
    model = Odd()
    recs = [recorded(model, tmp_path / "run") for _ in range(3)]
    with hookline.open_run(tmp_path / "run") as run:
        assert len(run.recordings) == 3 and run.recordings.sites[0] == recs[0].names
        for rec, kept in zip(recs, run.recordings, strict=True):
            same_recording(rec, kept)
        assert run.recordings[-1][""].output["pair"].b.dtype is torch.bfloat16
        assert run.rows() == [] and run.meta["by"] == "record" and run.steps == []
    # One process's recordings share an index; the tensors of each have a file of their own.
    assert sorted(file.name for file in (tmp_path / "run").glob("*.s[aq]*[se]")) == [
        "rank0-0000.00000.safetensors",
        "rank0-0000.00001.safetensors",
        "rank0-0000.00002.safetensors",
        "rank0-0000.sqlite",
    ]


def test_the_zoo_comes_back(specimen, tmp_path):
    model, args, kwargs = specimen.build()
    with record(model, to=tmp_path) as rec:
        model(*args, **kwargs)
    kept = hookline.open_run(tmp_path).recordings[0]
    assert kept.names == rec.names
    for name in rec.names:
        assert same_bits(kept[name].output, rec[name].output)


def test_one_tensor_is_read_when_it_is_looked_at_and_no_other(tmp_path, monkeypatch):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with record(model, to=tmp_path) as rec:
        model(torch.ones(1, 3))
    read = []
    backend = files.named("torch")
    monkeypatch.setattr(files, "named", lambda name: type("Spy", (), {"read_safetensors": staticmethod(spy)})())

    def spy(path, keys):
        read.append(keys)
        return backend.read_safetensors(path, keys)

    kept = hookline.open_run(tmp_path).recordings[0]
    assert kept.names == ["0", "1", "2", ""] and read == []
    assert torch.equal(kept["1"].output, rec["1"].output) and len(read) == 1 and len(read[0]) == 1


def test_a_watch_keeps_recordings_with_their_step(tmp_path):
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    outputs = []
    with hookline.watch(model, to=tmp_path) as w:
        for step in range(4):
            if step % 2:
                with record(model, to=w) as rec:
                    loss = model(torch.ones(2, 3)).sum()
                outputs.append(rec[""].output)
            else:
                loss = model(torch.ones(2, 3)).sum()
            loss.backward()
            optimizer.step()
        with record(model, to=tmp_path) as rec:  # by the name of the folder, while the watch writes to it
            model(torch.zeros(1, 3))
    with hookline.open_run(tmp_path) as run:
        assert run.steps[:4] == [0, 1, 2, 3] and run.meta["end"] == "normally" and "by" not in run.meta
        assert run.recordings.steps == [1, 3, None]
        assert torch.equal(run.recordings.at(3)[0][""].output, outputs[1])
        assert torch.equal(run.recordings[-1][""].output, rec[""].output)


def test_a_store_that_is_handed_over_stays_open(tmp_path):
    store = hookline.RunStore(tmp_path)
    model = nn.Linear(3, 1)
    for _ in range(2):
        with record(model, to=store):
            model(torch.ones(1, 3))
    assert len(hookline.open_run(tmp_path).recordings) == 2 and "end" not in hookline.open_run(tmp_path).meta
    store.close()
    assert hookline.open_run(tmp_path).meta["end"] == "normally"


def test_spilled_and_reduced_recordings_are_kept_whole(tmp_path):
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)])
    with record(model, to=tmp_path / "run", limit="20KB", spill=tmp_path / "spill", reduce=lambda t: t[:2]) as rec:
        model(torch.randn(50, 64))
        model(torch.randn(50, 64))
    kept = hookline.open_run(tmp_path / "run").recordings[0]
    assert all(torch.equal(kept[name].output, rec[name].output) for name in rec.names)
    assert kept["3"].calls[0].output.shape == (2, 64)


@pytest.mark.parametrize("wrong", [5, object(), [], {"run": 1}])
def test_what_can_keep_no_recording_is_refused_before_the_model_runs(wrong):
    with pytest.raises(hookline.InvalidArgument, match="folder of a run, a RunStore or a Watch"):
        record(nn.Linear(1, 1), to=wrong)


def test_a_folder_that_cannot_be_one_is_refused_before_the_model_runs(tmp_path):
    (tmp_path / "file").write_text("here")
    model = nn.Linear(1, 1)
    with pytest.raises(hookline.RunError, match="can't be kept"):
        record(model, to=tmp_path / "file").__enter__()
    assert not hookline.installed(model)


def test_a_watch_without_a_run_says_so_and_the_recording_stays_in_memory():
    model = nn.Linear(1, 1)
    with torch.no_grad(), hookline.watch(model) as w:
        told = pytest.warns(UserWarning, match=r"could not be kept.*this watch keeps no run")
        with told, record(model, to=w) as rec:
            model(torch.ones(1, 1))
    assert rec.names == [""]


def test_an_exception_in_the_block_passes_and_what_was_recorded_before_is_kept(tmp_path):
    model = nn.Linear(1, 1)

    def failing():
        with record(model, to=tmp_path):
            model(torch.ones(1, 1))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        failing()
    with hookline.open_run(tmp_path) as run:
        assert run.meta["end"] == "by an exception" and run.recordings[0].names == [""]


def test_a_missing_or_damaged_file_is_told_and_the_others_are_read(tmp_path):
    model = nn.Linear(3, 2)
    for _ in range(3):
        with record(model, to=tmp_path):
            model(torch.ones(1, 3))
    first, second, _ = sorted(tmp_path.glob("*.safetensors"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-6])
    recordings = hookline.open_run(tmp_path).recordings
    with pytest.raises(hookline.RunError, match="can't be read"):
        recordings[0]
    with pytest.raises(hookline.RunError):
        _ = recordings[1][""].output
    assert recordings[2][""].output.shape == (1, 2)


def test_an_index_cannot_lead_out_of_the_folder(tmp_path):
    model = nn.Linear(3, 2)
    with record(model, to=tmp_path / "run"):
        model(torch.ones(1, 3))
    (file,) = (tmp_path / "run").glob("*.safetensors")
    file.rename(tmp_path / "elsewhere.safetensors")
    with sqlite3.connect(tmp_path / "run" / "rank0-0000.sqlite") as connection:
        connection.execute("UPDATE recording SET file = '../elsewhere.safetensors'")
    run = hookline.open_run(tmp_path / "run")
    with pytest.warns(UserWarning, match="recording 1 is left out"):
        assert len(run.recordings) == 0


KILLED = """
import sys, torch, hookline
model = torch.nn.Sequential(*[torch.nn.Linear(300, 300) for _ in range(8)])
with torch.no_grad(), hookline.watch(model, to=sys.argv[1]) as w:
    for step in range(100000):
        with hookline.record(model, to=w):
            model(torch.full((200, 300), float(step)))
        print(step, flush=True)
"""


def test_kill_at_any_moment_leaves_whole_recordings(tmp_path):
    for attempt in range(4):
        folder = tmp_path / str(attempt)
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.PIPE, text=True)
        process.stdout.readline()
        time.sleep(0.5 + 0.17 * attempt)
        process.send_signal(signal.SIGKILL)
        told = len(process.communicate()[0].split()) + 1
        with hookline.open_run(folder) as run:
            assert len(run.recordings) >= told, "what a block had kept when it ended is there"
            for rec in run.recordings[-2:]:
                assert rec["7"].output.shape == (200, 300) and torch.equal(rec["7"].output, rec[""].output)


def test_reading_recordings_needs_the_framework_only_when_a_tensor_is_looked_at(tmp_path):
    with record(model := nn.Linear(3, 2), to=tmp_path):
        model(torch.ones(1, 3))
    code = (
        "import sys, hookline; run = hookline.open_run(sys.argv[1]); assert run.recordings.sites == [['']]\n"
        "assert run.recordings[0].names == [''] and 'torch' not in sys.modules\n"
        "assert run.recordings[0][''].output.shape == (1, 2) and 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_nothing_in_a_run_is_a_pickle(tmp_path):
    recorded(Odd(), tmp_path)
    for file in tmp_path.iterdir():
        assert b"\x80\x04\x95" not in file.read_bytes() and b"\x80\x02c" not in file.read_bytes()
    assert Reader(tmp_path / "rank0-0000.sqlite").recordings()[0].file == "rank0-0000.00000.safetensors"
