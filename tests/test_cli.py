"""The command line, as a process of its own, and in this one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import hookline
from hookline.cli.main import hookline as cli

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
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "hookline_cli_models.py").write_text(MODELS)
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
    ],
)
def test_wrong_use_says_what_is_wrong(folder, args, says):
    done = run(*args)
    assert done.exit_code == 2 and says in done.output


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
