"""Blocks without `with`: they work by start and stop, and one that nobody enters says so."""

import copy
import gc
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import hookline
from hookline.integrations.accelerate import WatchCallback
from hookline.integrations.watcher import Watcher

VERBS = {
    "watch": lambda model: hookline.watch(model),
    "record": lambda model: hookline.record(model),
    "edit": lambda model: hookline.edit(model, {"0": lambda out: out * 0}),
}


@pytest.fixture(params=VERBS)
def verb(request):
    return request.param


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU())


def dropped(verb, model):
    VERBS[verb](model)
    gc.collect()  # a recorder and its sites refer to each other


def test_a_block_that_is_never_entered_says_so_with_its_line(verb, model):
    with pytest.warns(
        RuntimeWarning, match=rf"this hookline.{verb}\(\.\.\.\) was never entered.*start\(\)"
    ) as told:
        dropped(verb, model)
    assert len(told) == 1 and Path(told[0].filename).name == Path(__file__).name
    assert told[0].lineno == VERBS[verb].__code__.co_firstlineno


def test_a_block_that_was_entered_or_tried_says_nothing(verb, model):
    with VERBS[verb](model):
        pass
    block = VERBS[verb](model)
    block.start()
    block.stop()
    del block
    gc.collect()


def test_an_unused_block_is_told_by_default_and_when_the_script_ends():
    code = (
        "import torch, hookline\n"
        "model = torch.nn.Linear(2, 1)\n"
        "hookline.watch(model)\n"
        "print('went on', flush=True)\n"
        "w = hookline.record(model)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told = [line for line in done.stderr.splitlines() if "RuntimeWarning" in line]
    assert len(told) == 2 and "hookline.watch(...) was never entered" in told[0] and ":3:" in told[0], done.stderr
    assert "hookline.record(...) was never entered" in told[1] and ":5:" in told[1]


def test_start_and_stop_do_what_with_does(model):
    w = hookline.watch(model).start()
    with torch.no_grad():
        model(torch.ones(1, 2))
    assert isinstance(w, hookline.Watch) and hookline.installed(model)
    w.stop()
    assert not hookline.installed(model) and w.rows("0", "output")
    recorder = hookline.record(model)
    rec = recorder.start()
    model(torch.ones(1, 2))
    recorder.stop()
    assert rec.names == ["0", "1", ""] and not hookline.installed(model)
    edits = hookline.edit(model, {"1": lambda out: out * 0 + 7}).start()
    assert float(model(torch.ones(1, 2)).detach()[0, 0]) == 7
    edits.stop()
    assert not hookline.installed(model) and float(model(torch.ones(1, 2)).detach()[0, 0]) != 7


def test_entering_twice_is_refused(verb, model):
    block = VERBS[verb](model)
    block.start()
    with pytest.raises(hookline.InvalidArgument, match="already"):
        block.start()
    block.stop()
    assert not hookline.installed(model)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_block_has_no_copy(verb, model, way):
    block = VERBS[verb](model)
    with pytest.raises(hookline.InvalidArgument, match=rf"can't be copied or pickled; call hookline.{verb}"):
        way(block)
    with block, pytest.raises(hookline.InvalidArgument, match="can't be copied"):
        way(block)
    copied = copy.deepcopy(model)
    assert not hookline.installed(copied)


def test_a_second_training_of_one_callback_goes_on_in_its_run(tmp_path, model):
    callback = Watcher(to=tmp_path)
    for _ in range(2):
        callback.open(model)
        with torch.no_grad():
            for _ in range(3):
                model(torch.ones(1, 2))
        callback.detach()
    assert hookline.open_run(tmp_path).steps == [0, 1, 2, 3, 4, 5]
    other = Watcher(to=tmp_path)
    with pytest.raises(hookline.RunError, match="Two runs are not mixed"):
        other.open(model)
    resumed = Watcher(to=tmp_path, resume=True)
    resumed.open(model, first_step=100)
    with torch.no_grad():
        model(torch.ones(1, 2))
    resumed.detach()
    assert hookline.open_run(tmp_path).steps[-1] == 100


def test_what_is_attached_to_accelerate_and_never_entered_says_so(monkeypatch, model):
    # Not by the module's name: another test may have loaded it anew.
    monkeypatch.setitem(WatchCallback.__init__.__globals__, "need", lambda *names: None)
    with pytest.warns(RuntimeWarning, match=r"WatchCallback\(\).attach\(\.\.\.\) was never entered"):
        WatchCallback().attach(object(), model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        WatchCallback()
        gc.collect()
