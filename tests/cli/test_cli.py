"""The command line, as a process of its own, and in this one."""

import io
import json
import os
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from rich.console import Console

import hookline
from hookline.cli.main import hookline as cli
from tests.support.pages import layers

MODELS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.fc = nn.Embedding(10, 4), nn.Linear(4, 2)
    def forward(self, ids, scale=None):
        y = self.fc(self.embed(ids))
        return y if scale is None else y * scale

def conv():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sequential(nn.ReLU(), nn.Conv2d(8, 4, 1)))

ready = nn.Linear(3, 2)
number = 5

def needs(width):
    return nn.Linear(width, 2)

def fails():
    raise ValueError("no weights here")

def leaves():
    raise SystemExit(3)
"""
BROKEN = {
    "hookline_cli_syntax": "def f(:",
    "hookline_cli_raises": "raise RuntimeError('boom')",
    "hookline_cli_lacks": "import hookline_not_there",
    "hookline_cli_exits": "import sys\nsys.exit(4)",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, text in {"hookline_cli_models": MODELS, **BROKEN}.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("hookline_cli_models", None)


def run(*args):
    return CliRunner().invoke(cli, ["summary", *args])


def test_a_table_and_its_depth(folder):
    done = run("hookline_cli_models:conv", "--input", "1,3,6,6", "--depth", "1")
    assert done.exit_code == 0, done.output
    assert "1.1" not in done.output and "3.968 kMACs" in done.output


def test_json_is_to_dict(folder):
    data = json.loads(run("hookline_cli_models:conv", "-i", "1,3,6,6", "--json").output)
    assert data["total_macs"] == 16 * 9 * 24 + 16 * 32 and data["total_params"] == 224 + 36
    assert [row["name"] for row in data["rows"]] == ["", "0", "1", "1.0", "1.1"]


def test_dtypes_and_names(folder):
    data = json.loads(
        run("hookline_cli_models:Net", "-i", "ids=2,3:int64", "-i", "scale=1:float32", "--json").output
    )
    assert data["rows"][0]["kwargs"] == {"ids": [2, 3], "scale": [1]} and data["total_macs"] == 6 * 8
    heading = run("hookline_cli_models:Net", "-i", "2,3", "-c", "name,input,params").output.splitlines()[1]
    assert heading.split() == ["Name", "Input", "Params"]


def test_a_model_that_is_there_already_and_parameters_alone(folder):
    done = run("hookline_cli_models:ready")
    assert done.exit_code == 0 and "Parameters  8 (all trainable)" in done.output


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["nowhere_at_all:x"], "no module 'nowhere_at_all'"),
        (["hookline_cli_models:cnov"], "has no 'cnov'; it has"),
        (["hookline_cli_models"], "not of the form"),
        (["hookline_cli_models:conv", "-i", "1,three"], "is no input"),
        (["hookline_cli_models:conv", "-d", "-1"], "not in the range"),
        (["hookline_cli_models:needs"], "raised TypeError: needs() missing 1 required positional argument"),
        (["hookline_cli_models:fails"], "raised ValueError: no weights here, in"),
        (["hookline_cli_models:leaves"], "raised SystemExit: 3"),
        (["hookline_cli_models:number"], "is a int: expected a model"),
        (["hookline_cli_models:nn"], "is a module: expected a model"),
        (["hookline_cli_models:__doc__"], "is a NoneType: expected a model"),
        (["hookline_cli_models:conv.deep"], "has no 'deep'"),
        (["hookline_cli_models:conv()"], "not of the form"),
        (["hookline_cli_models.py:conv"], "by name and without .py"),
        (["../models:conv"], "not of the form"),
        ([".models:conv"], "not of the form"),
        (["models.:conv"], "not of the form"),
        ([""], "not of the form"),
        (["hookline_cli_syntax:f"], "raised SyntaxError"),
        (["hookline_cli_raises:f"], "raised RuntimeError: boom, in"),
        (["hookline_cli_lacks:f"], "No module named 'hookline_not_there'"),
        (["hookline_cli_exits:f"], "raised SystemExit: 4"),
        (["torch.nn:Liner"], "it has Linear"),
        (["hookline_cli_models:conv", "-i", "=1,2"], "can't be the name of an input"),
        (["hookline_cli_models:conv", "-i", "depth=1,2"], "can't be the name of an input"),
        (["hookline_cli_models:conv", "-i", "model=1,2"], "can't be the name of an input"),
        (["hookline_cli_models:conv", "-i", "x=1,2", "-i", "x=1,2"], "was given before"),
    ],
)
def test_wrong_use_says_what_is_wrong(folder, args, says):
    done = run(*args)
    assert done.exit_code == 2 and says in " ".join(done.output.split()), done.output
    assert "Traceback" not in done.output and len(done.output) < 1500


HERE = str(Path(hookline.__file__).parent.parent)  # this very copy, also from another folder


def process(*args, cwd=None):
    env = {**os.environ, "PYTHONPATH": HERE}
    return subprocess.run(
        [sys.executable, "-m", "hookline", *args], capture_output=True, text=True, cwd=cwd, env=env, check=False
    )


def test_an_error_of_the_model_is_told_without_a_traceback(folder):
    done = process("summary", "hookline_cli_models:conv", "-i", "1,5,6,6", cwd=folder)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "Error: '0' (Conv2d) raised RuntimeError" in done.stderr and "What reached it: 1x5x6x6" in done.stderr


def test_help_imports_no_framework():
    code = (
        "import sys; from hookline.cli.main import hookline\n"
        "try: hookline(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'numpy', 'rich', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]" and "summary" in done.stdout
    assert process("--version").stdout.startswith("hookline, version")


PIPES = [["doctor"], ["doctor", "--json"], ["--help"], ["summary", "hookline_cli_models:ready"]]


@pytest.mark.parametrize("args", PIPES, ids=" ".join)
def test_a_reader_who_has_seen_enough_is_no_error(folder, args):
    env = {**os.environ, "PYTHONPATH": HERE}
    run = subprocess.Popen(
        [sys.executable, "-m", "hookline", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=env,
    )
    run.stdout.close()
    assert run.stderr.read() == b"" and run.wait() in (0, 1)
    run.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
def test_a_full_disk_is_told_without_a_traceback(folder):
    for args in PIPES:
        with Path("/dev/full").open("w") as full:
            env = {**os.environ, "PYTHONPATH": HERE}
            command = [sys.executable, "-m", "hookline", *args]
            done = subprocess.run(
                command, stdout=full, stderr=subprocess.PIPE, cwd=folder, env=env, text=True, check=False
            )
        assert done.returncode == 1 and "No space left" in done.stderr and "Traceback" not in done.stderr


def test_without_a_terminal_a_bar_leaves_no_trace(folder):
    layers(folder / "run")
    for args in (["report", "run", "-o", "a.html"], ["export", "run", "a.csv"]):
        done = process(*args, cwd=folder)
        assert done.returncode == 0 and done.stderr == "" and done.stdout.startswith("wrote a.")
        done = process(*[arg.replace("run", "missing") for arg in args], cwd=folder)
        assert done.returncode == 1 and done.stderr.startswith("Error: there is no run in missing")


@pytest.mark.parametrize("width", [24, 40, 60, 80, 120, 200])
def test_a_narrow_terminal_cuts_no_number_and_no_unit(width):
    block = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.BatchNorm2d(64), torch.nn.ReLU())
    model = torch.nn.Sequential(
        OrderedDict(a_module_with_a_long_name=torch.nn.Sequential(block), head=torch.nn.Flatten())
    )
    found = hookline.summary(model, (1, 3, 64, 64))
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(found)
    shown = console.export_text()
    assert max(map(len, shown.splitlines())) <= width
    lines = [line for line in shown.splitlines() if line.strip()]
    table = lines[: next(n for n, line in enumerate(lines) if line.startswith("Parameters"))]
    left_out = " ".join(shown.split()).partition("Left out ")[2]
    rows = {row["name"]: row for row in found.rows}
    for heading, whole in {"Params": f"{rows['']['params']:,}", "MACs": "6.642 M", "Share": "100.0 %"}.items():
        there = heading in table[0].split()
        assert there == any(whole in line for line in table), "whole, or left out"
        assert there or heading.lower() in left_out
    if width == 80:
        assert {"Params", "MACs", "Share"} <= set(table[0].split()) and "\u2588" not in shown, "the bar goes first"
    assert (width < 120) or "\u2588" in shown
