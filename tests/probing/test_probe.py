"""hookline.probe and `hookline probe`: what may be given, what comes back, what is refused."""

import json

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import hookline
from hookline.cli.main import hookline as command
from tests.probing.models import Attention, Cut, Dropped, Masked, TinyLM, ids, numbers

ALL = ["determinism", "constant", "causality", "batch", "mask", "gradient", "state"]


def test_findings_have_what_a_reader_needs():
    (one,) = found = hookline.probe(TinyLM(Attention(diagonal=2)), ids())
    assert isinstance(found, list) and isinstance(found, hookline.Probed)
    assert (one.rule, one.severity, one.site, one.step) == ("future_leak", "error", "blocks.0", 0)
    assert one.evidence["positions_ahead"] == 1 and one.evidence["apart"] > 0
    assert one.why[0].islower() and not one.why.endswith(".") and one.advice.endswith(".")
    assert found.made == [name for name in ALL if name != "mask"]
    assert found.skipped == {"mask": "the inputs have no mask"}
    assert json.loads(json.dumps(found.to_json()))["findings"][0]["line"].startswith("models.py:")


def test_the_worst_comes_first():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.unused = Dropped(True), nn.Linear(2, 2)

        def forward(self, x):
            return self.drop(x)

    found = hookline.probe(Both(), numbers(4, 6))
    assert [one.severity for one in found] == ["error", "note"]


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (nn.Linear(6, 2), numbers(4, 6)),
        (nn.Linear(6, 2), (numbers(4, 6),)),
        (nn.Linear(6, 2), (4, 6)),
        (nn.Linear(6, 2), [numbers(4, 6), torch.zeros(4)]),
        (nn.Linear(6, 2), (numbers(4, 6), torch.zeros(4))),
        (nn.Linear(6, 2), {"input": numbers(4, 6)}),
        (nn.Bilinear(3, 4, 2), (numbers(4, 3), numbers(4, 4))),
        (nn.Bilinear(3, 4, 2), {"input1": numbers(4, 3), "input2": numbers(4, 4)}),
        (TinyLM(Attention()), (3, 12)),
    ],
)
def test_inputs_are_as_summary_takes_them(model, inputs):
    found = hookline.probe(model, inputs)
    assert not [one for one in found if one.severity != "note"]
    assert "batch" in found.made


def test_keywords_that_forward_takes_without_naming_them():
    class Any(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(6, 2)

        def forward(self, **given):
            return {"logits": self.fc(given["features"])}

    assert "gradient" in hookline.probe(Any(), {"features": numbers(4, 6)}).made


def test_a_loss_decides_what_counts():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 2), nn.Linear(6, 2)

        def forward(self, x):
            return self.a(x), self.b(x)

    assert not hookline.probe(Two(), numbers(4, 6))
    found = hookline.probe(Two(), numbers(4, 6), loss=lambda output: output[0].mean())
    assert [(one.rule, one.severity) for one in found] == [("no_gradient", "note")]
    assert found[0].evidence["parameters"] == ["b.weight", "b.bias"]
    skipped = hookline.probe(Two(), numbers(4, 6), loss=lambda output: output[0]).skipped
    assert "expected a tensor with one number" in skipped["gradient"]


def test_a_loss_may_count_the_weights_of_the_model():
    model = Cut("detach")
    found = hookline.probe(
        model, numbers(4, 6), loss=lambda output: output.mean() + sum(p.square().sum() for p in model.parameters())
    )
    assert "no_gradient" not in [one.rule for one in found]


def test_where_the_samples_are_can_be_said():
    time_first = nn.LSTM(4, 5)
    assert [one.severity for one in hookline.probe(time_first, numbers(6, 3, 4))] == ["note"]
    assert not hookline.probe(time_first, numbers(6, 3, 4), batch_dim=1)
    wrong = hookline.probe(time_first, numbers(6, 3, 4), batch_dim=0)
    assert [(one.rule, one.severity) for one in wrong] == [("batch_mixing", "error")]


def test_a_fresh_model_is_what_a_program_loads_into():
    class Drawn(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.scale = nn.Linear(6, 2), float(torch.rand(()))

        def forward(self, x):
            return self.fc(x) * self.scale

    assert not hookline.probe(Drawn(), numbers(4, 6))
    (one,) = hookline.probe(Drawn(), numbers(4, 6), fresh=Drawn)
    assert one.rule == "state_lost" and one.evidence["not_saved"] == ["scale"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"only": "batches"}, "Did you mean 'batch'"),
        ({"only": ()}, "asks for nothing"),
        ({"causal": "yes"}, "causal='yes'"),
        ({"batch_dim": -1}, "batch_dim=-1"),
        ({"loss": 3}, "loss=3 can't be called"),
        ({"fresh": 3}, "fresh=3 can't be called"),
    ],
)
def test_wrong_arguments_are_told(options, words):
    with pytest.raises(hookline.InvalidArgument, match=words):
        hookline.probe(nn.Linear(6, 2), numbers(4, 6), **options)


def test_what_is_no_model_and_what_can_not_run_is_told():
    with pytest.raises(hookline.HooklineError):
        hookline.probe("model", numbers(4, 6))
    with pytest.raises(hookline.ForwardError, match="mat1 and mat2"):
        hookline.probe(nn.Sequential(nn.ReLU(), nn.Linear(6, 2)), numbers(4, 5))
    with pytest.raises(hookline.InvalidArgument, match="lazy"):
        hookline.probe(nn.LazyLinear(3), numbers(4, 6))
    with pytest.raises(hookline.InvalidArgument, match="meta"):
        hookline.probe(nn.Linear(6, 2, device="meta"), numbers(4, 6))


def test_a_probe_that_raises_is_skipped_with_the_reason():
    class Picky(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(6, 2)

        def forward(self, x):
            if not torch.is_grad_enabled():
                return self.fc(x)
            raise ZeroDivisionError("no gradients here")

    found = hookline.probe(Picky(), numbers(4, 6))
    assert found.skipped["gradient"] == "the model raised ZeroDivisionError: no gradients here"
    assert "batch" in found.made


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "probed_models.py").write_text(
        "import torch\nfrom torch import nn\n"
        "from torch.nn import functional as F\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc = nn.Linear(6, 2)\n"
        "    def forward(self, x):\n"
        "        return F.dropout(self.fc(x))\n"
        "def broken():\n    return Net(), torch.randn(4, 6)\n"
        "def healthy():\n    return nn.Linear(6, 2), (4, 6)\n"
        "def alone():\n    return nn.Linear(6, 2)\n"
        "def wrong():\n    return nn.Linear(6, 2), torch.randn(4, 5)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def run(*args):
    return CliRunner().invoke(command, ["probe", *args])


def test_the_command_prints_findings_and_what_was_looked_at(folder):
    found = run("probed_models:broken")
    assert found.exit_code == 0, found.output
    assert found.output.startswith("error: random_in_eval at (model) (probed_models.py:9)")
    assert "looked at: determinism, constant, batch, gradient, state" in found.output
    assert "not looked at: mask (the inputs have no mask)" in found.output


def test_the_command_fails_where_it_is_told_to(folder):
    assert run("probed_models:broken", "--fail-on", "error").exit_code == 3
    assert run("probed_models:healthy", "--fail-on", "warning").exit_code == 0
    assert "nothing is wrong" in run("probed_models:healthy").output


def test_the_command_gives_json(folder):
    found = json.loads(run("probed_models:broken", "--json", "--only", "determinism", "--only", "mask").output)
    assert [one["rule"] for one in found["findings"]] == ["random_in_eval"]
    assert found["made"] == ["determinism"] and list(found["skipped"]) == ["mask"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["probed_models:alone"], "expected (model, inputs)"),
        (["probed_models:nothing"], "has no 'nothing'"),
        (["nowhere:f"], "no module 'nowhere'"),
        (["probed_models:healthy", "--only", "nothing"], "no probe is called 'nothing'"),
        (["probed_models:healthy", "--fail-on", "never"], "never"),
    ],
)
def test_bad_input_ends_with_code_2(folder, args, words):
    found = run(*args)
    assert found.exit_code == 2 and words in found.output.replace("\n", " "), found.output


def test_a_mask_of_either_meaning(folder):
    ones = torch.ones(3, 9, dtype=torch.bool)
    for mask in (ones, ones.long(), ones.float()):
        found = hookline.probe(Masked(), {"input_ids": ids(3, 9), "attention_mask": mask})
        assert "mask" in found.made and not [one for one in found if one.severity != "note"], str(found)
