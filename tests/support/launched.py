"""Scripts run by python and by `hookline run`, side by side."""

import difflib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

SCRIPTS = Path(__file__).parent.parent / "launching" / "scripts"
OURS = "hookline: "
"""What every line of hookline's own begins with."""


class Ended(NamedTuple):
    """How a script ended; `told` are the lines of hookline's, which `err` is without."""

    code: int
    out: str
    err: str
    told: list[str]
    folder: Path


class Started:
    """Python, started with these words in a folder; one that is not there gets the scripts."""

    def __init__(self, words, folder, *, stdin="", env=None):
        if not folder.exists():
            shutil.copytree(SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
        self.folder, self.stdin = folder, stdin
        self.process = subprocess.Popen(
            [sys.executable, *map(str, words)],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self):
        """Waits for it: an Ended."""
        out, err = self.process.communicate(self.stdin, timeout=300)
        out, err = (text.replace(str(self.folder), "HERE") for text in (out, err))
        lines = err.splitlines(keepends=True)
        told = [line[len(OURS) :].rstrip("\n") for line in lines if line.startswith(OURS)]
        rest = "".join(line for line in lines if not line.startswith(OURS))
        return Ended(self.process.returncode, out, rest, told, self.folder)


def both(tmp_path, *script, options=(), flags=(), **how):
    """(by python, by hookline run): how a script ended, at the same time, each in a folder of its own."""
    plain = Started([*flags, *script], tmp_path / "plain", **how)
    other = Started([*flags, "-m", "hookline", "run", *options, *script], tmp_path / "other", **how)
    return plain.end(), other.end()


def launched(tmp_path, *words, **how):
    """How `hookline run` with these words ended."""
    return Started(["-m", "hookline", "run", *words], tmp_path / "here", **how).end()


def same(plain, other):
    """Asserts that nothing of a script's own is different."""
    for one, two in ((plain.out, other.out), (plain.err, other.err)):
        assert two == one, "\n".join(difflib.unified_diff(one.splitlines(), two.splitlines(), "plain", "other"))
    assert other.code == plain.code, f"{other.code} for {plain.code}"
