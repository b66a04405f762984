"""Row import: how long `import hookline` takes in a new process, and that it brings no framework along."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from bench.harness import Case, Goal, Table

HEAVY = ("torch", "jax", "tensorflow", "mindspore", "mxnet", "pandas", "matplotlib")
CODE = "import sys, time; t = time.process_time()\n{code}\nprint(time.process_time() - t, *sorted(sys.modules))"


def tables() -> Iterator[Table]:
    yield Table(
        "Import, in a new process",
        [
            _case("import torch"),
            _case("import numpy"),
            _case("import hookline", Goal(50, "unit", text="<= 50 ms, no torch")),
            _case("from hookline import *"),
            _case("import captum.attr", needs="captum"),
            _case("import nnsight", needs="nnsight"),
        ],
        rounds=7,
        absolute=True,
    )


def import_cases(wanted: dict[str, str]) -> list[Case]:
    """A case for each name, with the code that imports it."""
    return [dataclasses.replace(_case(code), name=name) for name, code in wanted.items()]


def _case(code: str, goal: Goal | None = None, needs: str = "") -> Case:
    return Case(
        code,
        partial(_seconds, code),
        goal=goal,
        needs=needs,
        own_clock=True,
        remark=lambda _: _brought_along(code),
    )


def _seconds(code: str) -> float:
    return float(_output(code)[0])


def _brought_along(code: str) -> str:
    names = set(_output(code)[1:])
    heavy = [name for name in HEAVY if name in names]
    return f"loads {', '.join(heavy)}" if heavy else "loads no framework"


def _output(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", CODE.format(code=code)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    return done.stdout.split()
