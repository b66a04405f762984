"""`hookline run` on trainings: same output, same exit code, same weights to the bit; and what was found."""

import json
import socket

import pytest

import hookline
from tests.support.launched import Started, both, launched, same


def runs_in(folder):
    """{name: run} of what was kept in the one folder of `runs`, the first model's as ""."""
    (kept,) = (folder / "runs").iterdir()
    places = [kept, *sorted(path for path in kept.iterdir() if path.is_dir())]
    return {"" if place == kept else place.name: hookline.open_run(place) for place in places}


def trained(tmp_path, *script, steps=0, models=("",), **how):
    plain, other = both(tmp_path, *script, **how)
    same(plain, other)
    assert plain.code == 0, plain.err
    runs = runs_in(other.folder)
    assert sorted(runs) == sorted(models)
    assert {name: list(run.steps) for name, run in runs.items()} == {
        name: list(range(models[name] if isinstance(models, dict) else steps)) for name in models
    }
    return other, runs


def test_mlp(tmp_path):
    other, runs = trained(tmp_path, "mlp.py", steps=6)
    kinds = {row["kind"] for row in runs[""].rows()}
    assert kinds >= {"output", "grad_output", "param", "param_grad", "update"}
    assert other.told[0].startswith("model (Sequential): ")
    assert other.told[-1] == "kept in {0}; to look at it: hookline view {0}".format(
        next((other.folder / "runs").iterdir()).relative_to(other.folder)
    )


def test_cnn_that_is_built_in_a_function(tmp_path):
    _, runs = trained(tmp_path, "cnn.py", steps=7)  # the seventh is the last validation
    assert "features.1" in runs[""].sites


def test_gan_has_two_runs(tmp_path):
    # After its last step the discriminator is called once more, for the generator.
    other, _ = trained(tmp_path, "gan.py", models={"": 4, "discriminator": 5})
    assert any(line.startswith("generator (Sequential)") for line in other.told)
    assert any(line.startswith("discriminator (Sequential)") for line in other.told)


def test_only_the_student_is_watched(tmp_path):
    other, _ = trained(tmp_path, "teacher.py", steps=4)
    assert other.told[0].startswith("student (Linear)")


@pytest.mark.parametrize("how", ["before", "after", "in place", "late"])
def test_compiled(tmp_path, how, hooks_in_graphs):
    _, runs = trained(tmp_path, "compiled.py", how, steps=4)
    assert len(runs[""].rows("2", kind="grad_output")) == 4


def test_models_that_are_freed(tmp_path):
    trained(tmp_path, "folds.py", steps=3, models=["", "model_2", "model_3"])


def test_lbfgs(tmp_path):
    trained(tmp_path, "closure.py", steps=3)


def test_autocast_scaler_and_accumulation(tmp_path):
    trained(tmp_path, "mixed.py", steps=3)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_loader_with_processes(tmp_path, method):
    trained(tmp_path, "workers.py", method, steps=2)


def test_an_optimizer_written_by_hand(tmp_path):
    _, runs = trained(tmp_path, "by_hand.py", steps=5)
    assert len(runs[""].rows("0.weight", kind="update")) == 4  # the last one's end is told by no further call


def test_a_script_that_trains_nothing(tmp_path):
    other, runs = trained(tmp_path, "forward_only.py", steps=3)
    assert {row["mode"] for row in runs[""].rows()} == {"eval"}
    assert other.told[0].startswith("network (Sequential)")


def test_a_model_that_is_saved_copied_and_loaded(tmp_path):
    plain, other = both(tmp_path, "saved.py")
    same(plain, other)
    assert sorted(runs_in(other.folder)) == ["", "net_2"]


def test_a_thread_that_outlives_the_script(tmp_path):
    trained(tmp_path, "threads.py", steps=3)


def test_warnings_that_are_errors(tmp_path):
    trained(tmp_path, "strict.py", steps=3)


@pytest.mark.parametrize("where", ["forward", "chained", "backward", "making", "empty", "closure", "told"])
def test_crashes(tmp_path, where):
    plain, other = both(tmp_path, "crashes.py", where)
    same(plain, other)
    assert plain.code == 1
    said = "\n".join(other.told)
    if where in ("forward", "closure", "told"):
        assert "head, from step 0 (crashes.py:16): crash" in said
        assert "whose inputs were float32[3, 8], at `return F.linear(" in said
    if where == "backward":
        assert "in the backward, by RuntimeError: Trying to backward" in said and "crashes.py:37" in said
    if where in ("making", "empty"):
        assert "nothing was watched" in said


@pytest.mark.parametrize(("how", "code"), [("os._exit", 7), ("SIGTERM", -15), ("SIGKILL", -9)])
def test_a_process_that_is_ended_keeps_its_run(tmp_path, how, code):
    plain, other = both(tmp_path, "killed.py", how)
    same(plain, other)
    assert other.code == code
    assert list(runs_in(other.folder)[""].steps) == [0, 1, 2, 3]
    assert bool(other.told) == (how == "os._exit")


def test_findings_for_people_and_machines(tmp_path):
    found = launched(tmp_path, "--json", "found.json", "--fail-on", "warning", "--to", "kept", "broken.py")
    assert found.code == 3 and not found.err
    findings = json.loads((found.folder / "found.json").read_text())
    assert {"model", "run", "rule", "severity", "site", "step", "why", "evidence"} <= set(findings[0])
    assert "dead_units" in {finding["rule"] for finding in findings}
    assert any(line.startswith("model (Sequential): ") for line in found.told)
    taken = launched(tmp_path, "--to", "kept", "broken.py")
    assert taken.code == 2 and "there is a run in 'kept' already" in taken.err


def test_a_healthy_script_does_not_fail(tmp_path):
    plain, other = both(tmp_path, "mlp.py", options=["--fail-on", "error", "--no-verdict", "--every", "2"])
    same(plain, other)
    assert [line[:8] for line in other.told] == ["kept in "]
    assert list(runs_in(other.folder)[""].steps) == [0, 2, 4]


def test_a_where_that_means_nothing(tmp_path):
    plain, other = both(tmp_path, "mlp.py", options=["--where", "layers.*"])
    assert other.out == plain.out and other.err == plain.err
    assert other.code == 2
    assert "--where means nothing in the model that was found" in other.told[0] and "layers.*" in other.told[0]


def test_some_layers_only(tmp_path):
    _, other = both(tmp_path, "mlp.py", options=["--where", "0", "--where", "3"])
    sites = {row["site"] for row in runs_in(other.folder)[""].rows(kind="output")}
    assert sites == {"0", "3"}


RANKS = """
import torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 2), nn.ReLU()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, 4)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def test_torchrun_with_two_ranks(tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "ranks.py").write_text(RANKS)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}"]
    found = Started([*torchrun, "-m", "hookline", "run", "ranks.py"], folder).end()
    assert found.code == 0, found.err
    run = runs_in(folder)[""]
    assert {row["rank"] for row in run.rows()} == {0, 1} and list(run.steps) == [0, 1, 2]
    assert {row["site"] for row in run.rows(kind="output")} == {"", "0", "1"}
    assert found.told[0].startswith("model (Sequential): ")
    assert len([line for line in found.told if line.startswith("kept in")]) == 1
