"""Arguments under their old names: they work for one version more, and say what they are called now."""

import inspect
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn

import hookline


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(3, 2), nn.ReLU())


def test_record_keep_is_reduce(model):
    with pytest.warns(DeprecationWarning, match=r"record\(keep=...\).*it is reduce= now") as told:
        block = hookline.record(model, keep=lambda tensor: tensor[:1])
    line = inspect.currentframe().f_lineno - 1
    assert (told[0].filename, told[0].lineno) == (__file__, line)
    with block as rec:
        model(torch.ones(4, 3))
    assert rec["0"].output.shape == (1, 2)


def test_watch_keep_is_history(model):
    with pytest.warns(DeprecationWarning, match=r"watch\(keep=...\).*it is history= now"):
        block = hookline.watch(model, keep=2, progress=False)
    with torch.no_grad(), block as w:
        for _ in range(5):
            model(torch.ones(4, 3))
    assert sorted({row["step"] for row in w.rows()}) == [3, 4]


def test_both_names_at_once_are_refused(model):
    with pytest.raises(hookline.InvalidArgument, match="give reduce= alone"):
        hookline.record(model, keep=torch.mean, reduce=torch.mean)
    with pytest.raises(hookline.InvalidArgument, match="give history= alone"):
        hookline.watch(model, keep=3, history=4)


def test_the_new_names_warn_of_nothing(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with hookline.record(model, reduce=torch.mean), hookline.watch(model, history=3, progress=False):
            model(torch.ones(4, 3))


def test_python_shows_the_warning_of_a_plain_script():
    code = "import torch, hookline\nwith hookline.record(torch.nn.ReLU(), keep=torch.mean): pass\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "<string>:2: DeprecationWarning: record(keep=...)" in done.stderr
