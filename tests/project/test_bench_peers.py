"""hookline beside other tools: what the page says of known numbers, and the checks of what a recorder leaves."""

import pytest
import torch
from torch import nn

from bench.behaviour import after_an_exception
from bench.growth import linears
from bench.harness import Line
from bench.peers import MODELS, Comparison, Found, _record_cases
from bench.peers_page import as_page, better, draw
from bench.recorders import raw, reference
from bench.tools import TOOLS, Recorder


def found(tool, ratio, peak):
    lines = {
        ("record", subject): Line("recorded", f"{ratio:.2f}x", "1.00-2.00", note="0 wrong") for subject in MODELS
    }
    return Found(tool, lines, {"peak": f"{peak} MB", "exception": "clean", "compiled": "4 of 4 right"})


def failed(tool):
    return Found(tool, {("record", subject): Line("recorded", "-", note="Error: no") for subject in MODELS})


def test_the_page_tells_where_others_are_better():
    others = [found("hookline", 1.2, 50), found("fastai", 1.1, 60), failed("captum")]
    imports = [Line("hookline", unit="15 ms"), Line("fastai", unit="400 ms")]
    told = better(Comparison(others, imports, ""))
    assert told == [f"- Record, {subject}: fastai 1.10x; hookline 1.20x." for subject in MODELS]
    assert better(Comparison([found("hookline", 1.2, 50), found("fastai", 1.3, 40)], imports, "")) == [
        "- Peak memory: fastai 40 MB; hookline 50 MB."
    ]
    page = as_page(Comparison(others, [Line("hookline", unit="15 ms")], "load average 0.10 at the start"), "x.png")
    assert "| fastai | 1.10x (1.00-2.00) |" in page and "| captum | can't: Error: no |" in page
    assert "- Load average 0.10 at the start." in page and "![ratios of recording, by tool](x.png)" in page


def test_the_plot_is_the_same_for_the_same_numbers(tmp_path):
    for name in ("a.png", "b.png"):
        draw([found("hookline", 1.2, 50), failed("captum")], tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def leaking(model):
    def run(x):
        for module in model:
            module.register_forward_hook(lambda module, args, output: None)
        return model(x)

    return Recorder(run)


def swallowing(model):
    def run(x):
        try:
            return model(x)
        except ArithmeticError:
            return None

    return Recorder(run)


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (TOOLS["hookline"].record, "clean"),
        (TOOLS["torch hooks, clone"].record, "clean"),
        (leaking, "3 hooks left"),
        (swallowing, "does not raise"),
    ],
)
def test_what_is_left_on_a_model_after_an_exception(record, told):
    assert after_an_exception(record) == told


def test_values_that_a_later_operation_changes_are_counted():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))

    def told(record):
        case = _record_cases(record, model, x)[1]
        return case.remark(case.run())

    assert told(TOOLS["hookline"].record) == "0 of 2 wrong"
    assert told(lambda model: Recorder(lambda x: raw(model, x, reference))) == "1 of 2 wrong"


def test_models_of_the_row_growth_have_as_many_sites():
    model, x = linears(10)
    assert len(model) == 10 and model(x).shape == x.shape
