"""Launch: a program in a process and folder of its own, plainly or under `hookline run`, and what came of it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Ran:
    """What a program left."""

    code: int
    stdout: str
    stderr: str
    weights: dict[str, str] = field(default_factory=dict)
    """Of each file of weights that it saved, a digest of its contents."""
    findings: list[dict[str, Any]] | None = None
    """Those of the verdict; None where there is none."""


def run_plain(program: Path, seconds: float) -> Ran:
    """The program as its author runs it."""
    with tempfile.TemporaryDirectory() as folder:
        return _ran([sys.executable, str(program.resolve())], Path(folder), seconds)


def run_watched(program: Path, seconds: float) -> Ran:
    """The program under `hookline run`, with the findings of the verdict."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as kept:
        verdict = Path(kept) / "verdict.json"
        options = ["--json", str(verdict), "--to", str(Path(kept) / "run")]
        command = [sys.executable, "-m", "hookline", "run", *options, str(program.resolve())]
        ran = _ran(command, Path(folder), seconds)
        if verdict.exists():
            ran.findings = json.loads(verdict.read_text())
        return ran


def _ran(command: list[str], folder: Path, seconds: float) -> Ran:
    # One thread: sums in another order would be other weights, and two programs run at a time.
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return Ran(-1, "", f"did not end in {seconds} s")
    saved = {path.name: _digest(path) for path in sorted(folder.glob("*.pt"))}
    return Ran(done.returncode, done.stdout, done.stderr, saved)


def _digest(path: Path) -> str:
    """Of the members of what torch.save wrote, without dates; their bytes are those of the tensors."""
    found = hashlib.sha256()
    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            found.update(name.encode() + archive.read(name))
    return found.hexdigest()
