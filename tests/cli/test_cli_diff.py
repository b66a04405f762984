"""hookline diff: runs, recordings and models from the command line; whether a script does the same twice."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch
from torch import nn

import hookline
from tests.support.processes import listens_to_ctrl_c

MODELS = """
import torch
from torch import nn

def model(eps=1e-5):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8, eps=eps), nn.Linear(8, 2)), torch.ones(3, 4) * 0.1

def same():
    return model()

def other():
    return model(eps=0.5)

def alone():
    return nn.Linear(2, 2)

class Raises(nn.Module):
    def forward(self, x):
        raise ValueError("no forward here")

def raises():
    return Raises(), torch.ones(2)
"""
SCRIPT = """
import os, sys, torch
from torch import nn

print("printed by the script", sys.argv[1:])
if "help" in sys.argv:
    import argparse
    argparse.ArgumentParser(prog="train").parse_args(["-h"])
if "reads" in sys.argv:
    print("it got", sys.stdin.readline().strip(), "and", sys.stdin.readline().strip())
if "bad_second" in sys.argv:
    if os.path.exists("was_here"):
        raise RuntimeError("not again")
    open("was_here", "w").close()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
models = [model] + ([nn.Linear(8, 1)] if "two" in sys.argv else [])
optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in models]
for step in range(12):
    x = torch.randn(32, 8)
    if "fails" in sys.argv and step == 3:
        sys.exit("it is over")
    if "seven" in sys.argv and step >= 7:
        with torch.no_grad():
            model[2].weight[0, 0] = int.from_bytes(os.urandom(4), "little") / 2**32
    for one, optimizer in zip(models, optimizers):
        if "second" in sys.argv and one is not model and step == 4:
            x = x + int.from_bytes(os.urandom(4), "little") / 2**32
        optimizer.zero_grad()
        one(x).square().mean().backward()
        optimizer.step()
"""


def run(*args, cwd, stdin=None):
    done = subprocess.run(
        [sys.executable, "-m", "hookline", "diff", *map(str, args)],
        capture_output=True,
        text=True,
        cwd=cwd,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("diff")
    (place / "hookline_diff_models.py").write_text(MODELS)
    (place / "train.py").write_text(SCRIPT)
    for name, lr in (("a", 0.1), ("b", 0.1), ("c", 0.2)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        with hookline.watch(model, to=place / name, fingerprint=True, progress=False):
            for _ in range(4):
                optimizer.zero_grad()
                model(torch.ones(3, 4)).sum().backward()
                optimizer.step()
        with hookline.record(model) as recording:
            model(torch.ones(3, 4))
        recording.save(place / f"{name}.safetensors")
    return place


def test_runs(folder):
    code, out, _ = run("a", "b", cwd=folder)
    assert code == 0 and out.startswith("The same, ") and "A: a\n" in out
    code, out, _ = run("a", "c", "--where", "0", "--json", folder / "diff.json", cwd=folder)
    told = json.loads((folder / "diff.json").read_text())
    assert code == 1 and out.startswith("Different, first at ") and told["first"]["kind"] == "update"
    assert {one["name"] for one in told["causes"]} == {"setting"}
    assert run("a", "c", "--rtol", "10", "--atol", "10", cwd=folder)[0] == 0
    assert run("a", "c", "--rtol", "**=10", "--rtol", "0.weight=1e-9", cwd=folder)[0] == 1


def test_json_on_standard_output_and_a_page(folder):
    code, out, err = run("a", "c", "--json", "-", "-o", "diff.html", cwd=folder)
    assert code == 1 and json.loads(out)["verdict"] == "different" and "wrote diff.html" in err
    assert (folder / "diff.html").read_text().lstrip().lower().startswith("<!doctype html>")


def test_recordings(folder):
    assert run("a.safetensors", "b.safetensors", cwd=folder)[0] == 0
    code, out, _ = run("a.safetensors", "c.safetensors", cwd=folder)
    assert code == 1 and out.startswith("Different, first at 0")


def test_models(folder):
    assert run("hookline_diff_models:model", "hookline_diff_models:same", cwd=folder)[0] == 0
    code, out, _ = run("hookline_diff_models:model", "hookline_diff_models:other", cwd=folder)
    assert code == 1 and "first at 1" in out and "0.5" in out


def test_a_map(folder):
    (folder / "map.toml").write_text('"0" = "0"\n')
    assert run("a", "b", "--map", "map.toml", cwd=folder)[0] == 0
    (folder / "wrong.toml").write_text('"x" = "y"\n')
    code, _, err = run("a", "b", "--map", "wrong.toml", cwd=folder)
    assert code == 2 and "the map names nothing" in err


def test_what_can_not_be_compared_is_told_in_a_sentence_with_exit_code_2(folder):
    asked = {
        "there is no run in none": ["a", "none"],
        "expected A and B, got 1: a": ["a"],
        "expected A and B, got nothing": [],
        "expected A and B, got 3": ["a", "b", "c"],
        "expected two of a kind": ["a", "a.safetensors"],
        "no module 'nothing_here' is found": ["nothing_here:f", "a"],
        "expected (model, inputs)": ["hookline_diff_models:alone", "hookline_diff_models:same"],
        "no forward here": ["hookline_diff_models:raises", "hookline_diff_models:raises"],
        "no site matches 'fc'": ["a", "b", "--where", "fc"],
        "expected a number as 1e-3": ["a", "b", "--rtol", "much"],
        "rtol": ["a", "b", "--rtol", "-1"],
        "ends in .html": ["a", "b", "-o", "x.txt"],
        "No such option": ["a", "b", "--no-such"],
        "the map none.toml can't be read": ["a", "b", "--map", "none.toml"],
        "--to is for --twice": ["a", "b", "--to", "x"],
        "expected a script after --twice": ["--twice"],
        "--rtol is for A and B": ["--twice", "--rtol", "1", "train.py"],
        "there is no script 'none.py'": ["--twice", "none.py"],
    }
    for says, args in asked.items():
        code, out, err = run(*args, cwd=folder)
        assert code == 2 and says in err and "Traceback" not in err, (args, code, out, err)


def test_a_deterministic_script(folder):
    code, out, err = run("--twice", "train.py", "--epochs", "-o", cwd=folder)
    assert code == 0 and out.startswith("Deterministic: all bits of its model were the same in both runs.\n")
    assert err.count("printed by the script ['--epochs', '-o']") == 1 and "kept in" not in err
    assert not (folder / "runs").exists()


def test_a_script_that_is_deterministic_until_a_step(folder):
    code, out, _ = run("--twice", "--json", "twice.json", "train.py", "seven", cwd=folder)
    assert code == 1 and out.startswith("Not deterministic: the bits part at step 7, at 2.\n")
    told = json.loads((folder / "twice.json").read_text())
    assert told["deterministic"] is False and (told["first"]["step"], told["first"]["site"]) == (7, "2")
    assert told["a"] == "train.py, first run"


def test_a_script_that_fails_helps_or_reads(folder):
    code, out, err = run("--twice", "train.py", "fails", cwd=folder)
    assert (code, out) == (2, "") and "it is over" in err
    assert "train.py ended with exit code 1 in its first run: nothing was compared." in err
    code, out, err = run("--twice", "train.py", "help", cwd=folder)
    assert (code, out) == (2, "") and "usage: train" in err
    assert "nothing was watched in the first run of train.py" in err
    code, out, err = run("--twice", "train.py", "reads", cwd=folder, stdin="one\ntwo\nthree\n")
    assert code == 0 and err.count("it got one and two") == 1
    assert run("--twice", "train.py", "reads", cwd=folder)[0] == 0


def test_a_script_that_fails_the_second_time(folder, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    code, out, err = run("--twice", "train.py", "bad_second", cwd=tmp_path)
    assert code == 2 and out == "" and "not again" in err
    assert "succeeded in its first run, and ended with exit code 1 in its second" in err


def test_several_models_and_both_runs_kept(folder):
    code, out, _ = run("--twice", "--to", "kept", "train.py", "two", cwd=folder)
    assert code == 0 and "all bits of its 2 models" in out
    assert {path.name for path in (folder / "kept").iterdir()} == {"first", "second"}
    assert run("kept/first", "kept/second", cwd=folder)[0] == 0
    code, out, _ = run("--twice", "train.py", "two", "second", cwd=folder)
    assert code == 1 and "part at step 4" in out.splitlines()[0]
    code, _, err = run("--twice", "--to", "kept", "train.py", cwd=folder)
    assert code == 2 and "there is a run in" in err


def test_a_module_and_some_steps(folder):
    code, out, _ = run("--twice", "--every", "5", "-m", "train", "seven", cwd=folder)
    assert code == 1 and "part at step 10" in out.splitlines()[0]


def test_ctrl_c_ends_the_script_too(folder, tmp_path):
    script = tmp_path / "sleeps.py"
    script.write_text(
        textwrap.dedent("""
        import os, time
        print("process", os.getpid(), flush=True)
        time.sleep(100)
        """)
    )
    with subprocess.Popen(
        [sys.executable, "-m", "hookline", "diff", "--twice", str(script)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listens_to_ctrl_c,
    ) as process:
        line = next(line for line in process.stderr if line.startswith("process"))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    child = int(line.split()[1])
    for _ in range(100):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("the script still runs")


def test_the_help(folder):
    code, out, _ = run("--help", cwd=folder)
    assert code == 0 and "hookline diff --twice train.py" in out and "The exit code is 0" in out
