"""Which versions of torch and Python are declared, and what is said where a version is too old or too new."""

import ast
import importlib
import re
import tomllib
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import hookline
from hookline.backends import _check_version
from hookline.backends.torch import compat
from hookline.cli import doctor
from tests.support.models import OwnSequential
from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TORCH = hookline.capabilities()["torch"]


def test_what_pip_may_install_begins_where_the_tests_do():
    extras = PROJECT["optional-dependencies"]
    wanted = [need for extra in ("torch", "demo") for need in extras[extra] if need.startswith("torch")]
    assert wanted == [f"torch>={TORCH.tested[0]}"] * 2
    pythons = [kind.rpartition(" ")[2] for kind in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", kind)]
    assert PROJECT["requires-python"] == f">={pythons[0]}" and pythons == ["3.11", "3.12", "3.13"]


def test_the_docs_tell_of_every_version_that_is_run():
    told = (ROOT / "docs" / "versions.md").read_text()
    run = re.search(r"^TORCHES \?= (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert run is not None
    for version in run[1].split():
        assert f"| {version} |" in told and TORCH.covers(version)


def test_a_newer_torch_is_warned_of_and_an_older_one_too():
    with pytest.warns(hookline.UntestedVersion, match=r"from 1\.0, below 1\.1"):
        _check_version(replace(TORCH, tested=("1.0", "1.1")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _check_version(TORCH)


@pytest.fixture
def old(monkeypatch):
    """As if this torch were older than the first with hooks in compiled code."""
    monkeypatch.setitem(TORCH.since, "compiled", "99.1")


def wrapped(net):
    return torch.compile(net, backend="eager")


def in_place(net):
    net.compile(backend="eager")
    return net


def a_part(net):
    net[0].compile(backend="eager")
    return net


ATTACHED = {
    "record": lambda net: hookline.record(net, grads=True),
    "watch": hookline.watch,
    "edit": lambda net: hookline.edit(net, {"0": lambda output: output * 2}),
    "hook": lambda net: hookline.register_forward_hook(net, lambda m, a, o: None, "**"),
    "backward hook": lambda net: hookline.register_backward_hook(net, lambda m, gi, go: None, "**"),
    "op hook": lambda net: hookline.register_op_hook(net, lambda *told: None),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute of a Tensor that is not")
@pytest.mark.filterwarnings("ignore:Graph break due to unsupported builtin")  # torch 2.6, on its way to the error
@pytest.mark.parametrize("compiled", [wrapped, in_place, a_part])
@pytest.mark.parametrize("attached", ATTACHED)
def test_hooks_in_compiled_code_say_which_torch_they_need(attached, compiled, old):
    net, x = OwnSequential(nn.Linear(2, 2), nn.Tanh()), torch.ones(1, 2)
    model = compiled(net)
    right = model(x)
    said = r"needs torch 99\.1 or newer, and this is " + re.escape(torch.__version__)
    # An older torch has an error of its own for what happens while it traces, with ours as its text.
    kind = hookline.Unsupported if compat.VERSION >= (2, 13) else Exception
    with pytest.raises(kind, match=said), ATTACHED[attached](model):
        model(x)
    assert torch.equal(model(x), right) and not hookline.installed(model)


def test_eager_models_need_no_newer_torch(old):
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    with hookline.record(net, grads=True) as recorded:
        net(torch.ones(1, 2)).sum().backward()
    assert recorded["0"].grad_output is not None


def test_doctor_tells_what_the_installed_torch_is_too_old_for(old, capsys):
    assert doctor.findings()["frameworks"]["torch"]["too_old_for"] == {"compiled": "99.1"}
    doctor.command.callback(as_json=False)
    assert "no compiled: it needs torch 99.1 or newer" in capsys.readouterr().out


def private_names():
    """Every private name of torch in compat.py, in full or, where it is some object's, with a dot in front."""
    tree = ast.parse(Path(compat.__file__).read_text())
    parts_of_others = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in parts_of_others:
            root, *names = ast.unparse(node).split(".")
            if root == "torch" and any(name.startswith("_") for name in names) and names[0] != "__version__":
                yield f"torch.{'.'.join(names)}"
            elif root not in ("torch", "self", "cls", "sys"):
                yield from (f".{name}" for name in names if re.fullmatch(r"_[a-z]\w*", name))
        elif isinstance(node, ast.ImportFrom) and node.module.startswith("torch"):
            yield from (name for one in node.names if "._" in (name := f"{node.module}.{one.name}"))
        elif isinstance(node, ast.Constant) and re.fullmatch(r"_[a-z]\w*", str(node.value)):
            yield f".{node.value}"


SEEN = {name: version for version, names in compat.SEEN.items() for name in names.split()}


def test_every_private_name_is_listed_with_the_versions_it_was_seen_in():
    last = {name.rpartition(".")[2] for name in SEEN} | set(compat.LOOKED_FOR.split())
    missing = {
        name for name in private_names() if (name[1:] not in last if name.startswith(".") else name not in SEEN)
    }
    assert not missing


def numbers(version):
    return tuple(int(part) for part in version.split("."))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own imports
@pytest.mark.parametrize("name", SEEN)
def test_a_private_name_is_there_from_the_version_on_that_is_noted(name):
    assert is_there(name) or numbers(SEEN[name]) > compat.VERSION


def is_there(name):
    examples = {
        "torch.Tensor": torch.ones(1),
        "torch.UntypedStorage": torch.ones(1).untyped_storage(),
        "torch._ops.OpOverload": torch.ops.aten.add.Tensor,
        "torch.autograd.graph.Node": torch.ones(1, requires_grad=True).exp().grad_fn,
        "torch.nn.Module": nn.Identity(),
        "torch._dynamo.eval_frame.OptimizedModule": torch.compile(nn.Identity(), backend="eager"),
    }
    owner, _, last = name.rpartition(".")
    if owner in examples:
        return hasattr(examples[owner], last)
    found, path = torch, "torch"
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        if hasattr(found, part):
            found = getattr(found, part)
        else:  # not imported yet, or a module that its package does not show
            try:
                found = importlib.import_module(path)
            except ImportError:
                return False
    return True
