"""Backends look alike: mypy compares each with the protocol, and their files have the same names."""

import ast
import re
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

BACKENDS = ROOT / "src" / "hookline" / "backends"
CLASSES = {
    "torch": "TorchBackend",
    "nnx": "NNXBackend",
    "mxnet": "MxnetBackend",
    "mindspore": "MindSporeBackend",
}


def test_every_folder_has_a_backend_of_the_protocols_type():
    folders = {path.parent.name for path in BACKENDS.glob("*/compat.py")}
    assert folders == set(CLASSES)
    for folder, kind in CLASSES.items():
        tree = ast.parse((BACKENDS / folder / "__init__.py").read_text())
        found = [ast.unparse(node) for node in tree.body if isinstance(node, ast.AnnAssign)]
        assert f"BACKEND: Backend = {kind}()" in found, folder


FILES = {"__init__", "compat", "describe", "gradients", "modules", "ops", "optimizers", "parameters", "statistics"}
FILES |= {"taps", "values"}
NOT_THERE = {"mindspore": {"statistics"}}  # all of it goes through numpy, as defaults.py does it


@pytest.mark.parametrize("folder", CLASSES)
def test_the_files_of_every_backend_have_the_same_names(folder):
    missing = FILES - {path.stem for path in (BACKENDS / folder).glob("*.py")}
    assert missing == NOT_THERE.get(folder, set())


@pytest.mark.parametrize("folder", CLASSES)
def test_how_it_is_entered_is_told_in_its_folder(folder):
    text = (BACKENDS / folder / "README.md").read_text()
    named = set(re.findall(r"`([a-z_/]+\.py)`", text))
    places = [BACKENDS / folder, *(path for path in (BACKENDS / folder).iterdir() if path.is_dir()), BACKENDS]
    own = {name for name in named if not name.startswith("hooks/")}
    assert [name for name in sorted(own) if not any((place / name).exists() for place in places)] == []


PROBE = """
from hookline.backends.{folder} import {kind}
from hookline.backends.protocol import Backend

whole: Backend = {kind}()


class Lacks:
    def is_model(self, thing: object) -> bool:
        return False


class Differs({kind}):
    def is_training(self, model: object, more: int) -> bool:  # type: ignore[override]
        return False


number: int = {kind}()  # an error unless the class is Any to mypy
lacks: Backend = Lacks()
differs: Backend = Differs()
"""


@pytest.mark.parametrize("folder", CLASSES)
def test_mypy_tells_a_backend_that_differs_from_the_protocol(folder, tmp_path):
    text = PROBE.format(folder=folder, kind=CLASSES[folder])
    starts = "number: ", "lacks: ", "differs: "
    wanted = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith(starts)]
    probe = tmp_path / "probe.py"
    probe.write_text(text)
    command = [sys.executable, "-m", "mypy", "--no-pretty", str(probe)]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    errors = [line.split(": ")[0] for line in out.splitlines() if ": error: " in line]
    assert errors == [f"{probe}:{number}" for number in wanted], out
