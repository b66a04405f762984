"""trace and source: the order of execution of seed 003, drawn; the code of a forward."""

import functools
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch
from torch import nn

import hookline
from hookline import source, trace
from hookline.summaries import drawing
from hookline.testing import untouched
from tests.support.resnet import BasicBlock, ResNet18


def seed_order():
    """The 75 names that seed 003 prints for ResNet-18, built from its regularities."""
    names = ["conv1", "bn1", "relu", "maxpool"]
    for stage in range(1, 5):
        for block in range(2):
            parts = ["conv1", "bn1", "relu", "conv2", "bn2"]
            if stage > 1 and block == 0:
                parts += ["downsample.0", "downsample.1", "downsample"]
            names += [f"layer{stage}.{block}.{part}" for part in [*parts, "relu"]]
            names.append(f"layer{stage}.{block}")
        names.append(f"layer{stage}")
    return [*names, "avgpool", "fc"]


@pytest.fixture(scope="module")
def resnet():
    return ResNet18().train()


@pytest.fixture(scope="module")
def traced(resnet):
    return trace(resnet, (1, 3, 224, 224))


def test_the_75_entries_of_the_seed(traced):
    assert len(seed_order()) == 75
    assert traced.names == seed_order() and len(traced) == 75
    for number, name in {
        9: "layer1.0.relu",
        24: "layer2.0.downsample.0",
        26: "layer2.0.downsample",
        74: "fc",
    }.items():
        assert traced[number].name == name  # as the seed numbers them


def test_the_order_is_that_of_real_forward_hooks(resnet, traced):
    seen = []
    handles = [
        module.register_forward_hook(lambda m, a, o, name=name: seen.append(name))
        for name, module in resnet.named_modules()
        if name
    ]
    with torch.no_grad():
        resnet.eval()(torch.randn(1, 3, 64, 64))
    for handle in handles:
        handle.remove()
    resnet.train()
    assert traced.names == seen


def test_repeated_calls_are_numbered(traced):
    relus = [step for step in traced if step.name == "layer1.0.relu"]
    assert [step.call for step in relus] == [1, 2] and {step.depth for step in relus} == {3}
    assert str(relus[1]) == "layer1.0.relu (ReLU, call 2): 1x64x56x56 -> 1x64x56x56"
    assert [step.name for step in traced[:2]] == ["conv1", "bn1"] and traced[-1].output == "1x1000"


def test_the_tree(traced):
    lines = traced.tree(depth=1).splitlines()
    assert lines[0] == "(model) (ResNet18): 1x3x224x224 -> 1x1000"
    assert lines[1].startswith("|-- conv1 (Conv2d)") and lines[-1].startswith("`-- fc (Linear)")
    assert len(str(traced).splitlines()) == 76


def test_the_model_is_left_alone(specimen):
    model, args, kwargs = specimen.seeded()
    with untouched(model):
        found = trace(model, *args, **kwargs)
    assert ET.fromstring(drawing.own_svg(found.nodes(), "x")).tag.endswith("svg")


# The graph


def edges(found):
    names = {node.number: node.name for node in found.nodes()}
    return {(names[source], node.name) for node in found.nodes() for source in node.fed_by}


def test_residual_connections_are_edges():
    block = BasicBlock(4, 4).eval()
    model = nn.Sequential(nn.Conv2d(3, 4, 1), block)
    assert edges(trace(model, (1, 3, 8, 8))) == {
        ("0", "1.conv1"),
        ("1.conv1", "1.bn1"),
        ("1.bn1", "1.relu"),
        ("1.relu", "1.conv2"),
        ("1.conv2", "1.bn2"),
        ("1.bn2", "1.relu"),  # added to the block's input, then the second call of relu
        ("0", "1.relu"),
    }


def test_data_is_followed_through_functions_and_structures():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c, self.d = (nn.Linear(3, 3) for _ in range(4))

        def forward(self, x):
            a, b = self.a(x), self.b(x)
            both = torch.cat([a.t(), b.t()[:3]]).view(2, 3, -1)[0].t()  # views of one memory hold both
            unused = self.d(x)
            return {"y": self.c(both), "z": [unused]}

    assert edges(trace(Net(), (2, 3))) == {("a", "c"), ("b", "c")}


def test_own_drawing_is_svg_with_a_box_a_call(traced):
    text = drawing.own_svg(traced.nodes(), "<ResNet>")
    root = ET.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    leaves = len(traced) - 8 - 4 - 3  # blocks, stages and downsamples are no leaves
    assert len(root.findall(f".//{space}rect")) == leaves == len(traced.nodes())
    arrows = root.findall(f"{space}path")
    assert len(arrows) == sum(len(node.fed_by) for node in traced.nodes())


def test_graphviz_draws_where_it_is_installed(traced, tmp_path, monkeypatch):
    script = tmp_path / "dot"
    script.write_text(f"#!/bin/sh\ncat > {tmp_path}/in\necho '<svg>drawn by dot</svg>'\n")
    script.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(script))
    assert "drawn by dot" in traced.svg() and "drawn by dot" in traced._repr_html_()
    assert "->" in (tmp_path / "in").read_text() and "layer1.0.conv1" in (tmp_path / "in").read_text()
    script.write_text("#!/bin/sh\nexit 3\n")
    assert "Order of execution of ResNet18" in traced.svg()  # a broken dot is no reason to draw nothing
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert traced.save(tmp_path / "net.svg").read_text().startswith("<svg")


def test_errors_name_the_module():
    with pytest.raises(hookline.ForwardError, match="'1' \\(Linear\\)"):
        trace(nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 2)), (2, 3))


# source


def test_the_source_of_a_forward_with_file_and_line(resnet):
    found = source(resnet.layer1[0])
    assert (
        found.text.startswith("def forward(self, x):\n    identity = x\n") and found.name == "BasicBlock.forward"
    )
    lines = Path(found.file).read_text().splitlines()
    assert found.file.endswith("tests/support/resnet.py") and "def forward" in lines[found.line - 1]
    assert str(found).startswith(f"# BasicBlock.forward, {found.file}:{found.line}\ndef forward")


class Base(nn.Module):
    def forward(self, x):
        return x + 1


class Child(Base):
    pass


def wrapping(fn):
    @functools.wraps(fn)
    def wrapper(*args):
        return fn(*args)

    return wrapper


def careless(fn):
    def wrapper(*args):
        return fn(*args)

    return wrapper


class Decorated(nn.Module):
    @wrapping
    @torch.no_grad()
    def forward(self, x):
        return x * 3


class Carelessly(nn.Module):
    @careless
    def forward(self, x):
        return x * 4


class InC(nn.Module):
    forward = torch.relu


def test_inherited():
    found = source(Child())
    assert found.name == "Base.forward" and "return x + 1" in found.text and "inherits it from Base" in found.note


@pytest.mark.parametrize(("kind", "line"), [(Decorated, "return x * 3"), (Carelessly, "return x * 4")])
def test_decorated(kind, line):
    found = source(kind())
    assert line in found.text and "wrapper" not in found.text.splitlines()[-1]
    assert found.file.endswith("test_trace.py")


def test_replaced_on_the_object():
    module = nn.Linear(2, 2)
    old = module.forward
    module.forward = functools.partial(lambda inner, x: inner(x) * 2, old)
    found = source(module)
    assert "inner(x) * 2" in found.text and "replaced on this very object" in found.note


def test_a_c_function_says_so():
    found = source(InC())
    assert found.file is None and found.line is None
    assert "is a C function" in str(found) and "relu" in str(found)


def test_code_without_a_file_says_so():
    space = {"nn": nn}
    exec("class Typed(nn.Module):\n    def forward(self, x): return x\n", space)
    assert "typed in" in source(space["Typed"]()).note


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.jit is deprecated, and still about
def test_torchscript_shows_its_own_code():
    found = source(torch.jit.script(nn.ReLU()))
    assert "TorchScript" in found.note and "relu" in found.text


def test_functions_have_a_source_too_and_other_things_not():
    assert source(wrapping).name == "wrapping"
    with pytest.raises(hookline.InvalidArgument, match="expected a model"):
        source(3)
