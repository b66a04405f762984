"""mypy compares every backend with the protocol, also those whose framework is not installed here."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
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
