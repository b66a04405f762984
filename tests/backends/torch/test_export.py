"""Marks and statistics in programs of torch.export: run here, in another process, as an AOTInductor package."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import hookline

pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)
X = torch.linspace(-1, 1, 12).reshape(4, 3)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))


@pytest.fixture
def program():
    model = net()
    with hookline.exported.mark(model, ["0", "2"]):
        exported = torch.export.export(model, (X,))
    assert hookline.installed(model) == []
    return exported


def heard(run):
    seen = {}
    with hookline.exported.on_mark(lambda site, value: seen.setdefault(site, value.clone())):
        output = run(X)
    run(X)
    return output, seen


def test_marks_are_heard_where_the_program_runs(program, tmp_path):
    wanted = {"0": net()[0](X), "2": net()(X)}
    torch.export.save(program, tmp_path / "program.pt2")
    for exported in (program, program.run_decompositions(), torch.export.load(tmp_path / "program.pt2")):
        output, seen = heard(exported.module())
        torch.testing.assert_close(seen, wanted)
        torch.testing.assert_close(output, wanted["2"])


def test_marks_are_heard_in_another_process(program, tmp_path):
    torch.export.save(program, tmp_path / "program.pt2")
    code = f"""
import torch, hookline
with hookline.exported.on_mark(lambda site, value: print(site, tuple(value.shape))):
    torch.export.load({str(tmp_path / "program.pt2")!r}).module()(torch.ones(4, 3))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["0 (4, 4)", "2 (4, 2)"]


def test_marks_are_heard_of_eager_and_compiled_models():
    model = net()
    ran = torch.compile(model, backend="aot_eager", fullgraph=True)
    ran(X)
    with hookline.exported.mark(model, "1"):
        for run in (model, ran):
            _, seen = heard(run)
            torch.testing.assert_close(seen, {"1": model[:2](X)})
    assert heard(ran)[1] == {} and type(model[1]) is nn.ReLU


def statistics_of(tensor):
    row = hookline.lines.collect([hookline.lines.reduce(tensor)])[0].row()
    return [row[name] for name in hookline.exported.with_statistics(net()).statistics]


def test_statistics_are_outputs():
    broken = X.clone()
    broken[0, 0], broken[1, 1], broken[2, 2] = float("nan"), float("inf"), 0.0
    telling = hookline.exported.with_statistics(nn.Sequential(nn.Identity()), "0")
    _, told = torch.export.export(telling, (X,)).module()(broken)
    assert told["0"].tolist() == pytest.approx(statistics_of(broken), rel=1e-12)
    assert hookline.installed(telling) == []


def test_statistics_of_a_package_without_python(tmp_path):
    exported = torch.export.export(hookline.exported.with_statistics(net(), ["0", "2"]), (X,))
    path = torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "net.pt2"))
    output, told = torch._inductor.aoti_load_package(path)(X)
    torch.testing.assert_close(output, net()(X))
    assert told["0"].tolist() == pytest.approx(statistics_of(net()[0](X)), rel=1e-5)


def test_a_package_tells_its_marks_to_python(program, tmp_path):
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "net.pt2"))
    _, seen = heard(torch._inductor.aoti_load_package(path))
    assert sorted(seen) == ["0", "2"]


def test_a_wrong_site_and_a_wrong_callback():
    with pytest.raises(hookline.NoSuchSite):
        hookline.exported.mark(net(), "9")
    with pytest.raises(hookline.InvalidArgument, match="on_mark"):
        hookline.exported.on_mark(3)


def test_an_edit_that_is_in_force_stays_in_the_program():
    model = net()
    with hookline.edit(model, {"0": lambda out: out * 0 + 1}):
        exported = torch.export.export(model, (X,))
    torch.testing.assert_close(exported.module()(X), model[2](torch.ones(4, 4)))


def test_a_recording_is_not_for_export():
    with hookline.record(net_ := net()), pytest.raises(hookline.Unsupported, match=r"hookline\.exported\.mark"):
        torch.export.export(net_, (X,))


@pytest.mark.parametrize("attach", [hookline.record, lambda model: hookline.edit(model, {"0": lambda out: out})])
def test_in_strict_mode_no_hook_is(attach):
    with attach(model := net()), pytest.raises(Exception, match=r"while torch\.export makes a program"):
        torch.export.export(model, (X,), strict=True)
