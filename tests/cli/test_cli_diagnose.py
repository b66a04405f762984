"""hookline diagnose: the verdict in a terminal, JSON for machines, exit codes."""

import json
import subprocess
import sys

import pytest
import torch
from torch import nn

import hookline


def run(*args):
    done = subprocess.run(
        [sys.executable, "-m", "hookline", "diagnose", *map(str, args)], capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name in ("good", "dead"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        if name == "dead":
            model[0].bias.data.fill_(-100.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with hookline.watch(model, to=folder / name):
            for _ in range(12):
                optimizer.zero_grad()
                model(torch.rand(8, 4)).square().mean().backward()
                optimizer.step()
    return folder


def test_a_healthy_run_says_so_and_what_was_looked_at(runs):
    code, out, _ = run(runs / "good", "--fail-on", "warning")
    assert code == 0 and out.startswith("Nothing is wrong.\n")
    assert "12 recorded steps, 4 modules and 4 parameters" in out


def test_a_broken_run_names_the_layer_the_step_the_cause_and_what_to_try(runs):
    code, out, _ = run(runs / "dead")
    assert code == 0 and out.startswith("1 thing is wrong: from step 0, 1: all of its outputs are zero")
    assert (
        "✖ 1, from step 0: dead units" in out and "-> 0, from step 0: " in out and "try: Look at its bias" in out
    )
    code, _, _ = run(runs / "dead", "--fail-on", "error")
    assert code == 3
    assert run(runs / "dead", "--ignore", "dead_units", "--fail-on", "error")[0] == 0


def test_json_has_the_findings_with_their_consequences(runs):
    code, out, _ = run(runs / "dead", "--json", "--fail-on", "warning")
    told = json.loads(out)
    assert code == 3 and told["severity"] == "error" and told["looked"]["steps"] == 12
    (one,) = told["findings"]
    fields = {
        "rule",
        "severity",
        "site",
        "step",
        "why",
        "evidence",
        "advice",
        "line",
        "confidence",
        "consequences",
    }
    assert set(one) == fields and (one["rule"], one["site"], one["step"]) == ("dead_units", "1", 0)
    assert {below["site"] for below in one["consequences"]} == {"0", "2.weight"}


def test_a_good_run_to_compare_with(runs):
    code, out, _ = run(runs / "dead", "--baseline", runs / "good", "--rules", "baseline", "--fail-on", "warning")
    assert code == 3 and "where the good run has" in out
    assert run(runs / "good", "--baseline", runs / "good", "--fail-on", "warning")[0] == 0


def test_bad_input_ends_with_a_sentence_and_exit_code_2(runs, tmp_path):
    asked = {
        "there is no run in": [tmp_path / "none"],
        "Did you mean 'dead_units'": [runs / "good", "--rules", "dead_unit"],
        "no site matches 'heat'": [runs / "good", "--ignore", "still:heat"],
        "Did you mean 'still'": [runs / "good", "--ignore", "stil"],
        f"there is no run in {tmp_path / 'x'}": [runs / "good", "--baseline", tmp_path / "x"],
        "Invalid value for '--fail-on'": [runs / "good", "--fail-on", "note"],
    }
    for says, args in asked.items():
        code, out, err = run(*args)
        assert (code, out) == (2, "") and says in err and "Traceback" not in err


def test_a_run_without_rows_says_so(tmp_path):
    store = hookline.RunStore(tmp_path / "empty")
    store.open({"sites": []})
    store.close()
    code, out, _ = run(tmp_path / "empty")
    assert code == 0 and out.startswith("There is nothing to look at: no step was recorded.")
