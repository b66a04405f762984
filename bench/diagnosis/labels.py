"""Labels: what is wrong with each program, told by who wrote it: one file of labels/ for each set."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
SETS = ("tuning", "held-out", "second", "third")
"""Rules may be tuned on programs of the first; nobody looks at the others while rules are written. The programs of
"second" and "third" are each by someone who had not seen the rules."""
PROOFS = ("metric", "weights")


@dataclass(frozen=True)
class Label:
    """What is to be found in one program, or that there is nothing.

    `fault` is a class of causes.toml, "" where the program is healthy. `sites` are globs of the modules and
    parameters that may be named; "" is the model as a whole. `onset` is the first and the last step that may be
    named. `fix` are texts of the program and what they would be without the fault: the proof that it is where the
    label says.
    """

    name: str
    set: str
    about: str
    style: str
    fault: str = ""
    sites: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    """Rules that are right besides those of the class."""
    onset: tuple[int, int] = (0, 0)
    twin: str = ""
    """A healthy program that looks nearly the same, besides the fixed one."""
    fix: tuple[tuple[str, str], ...] = ()
    metric: str = "loss"
    """The word before the number by which the program tells how well it learns."""
    higher: bool = False
    """Whether more of it is better."""
    proof: str = "metric"
    """What the fix changes: the last metric, or only the weights that are saved."""
    share: float = 0.8
    """The last metric of the repaired program is at most so much of the broken one's."""
    hard: bool = False
    """It can't be told from what a run knows, as far as we know; it is scored all the same."""

    @property
    def healthy(self) -> bool:
        return not self.fault

    @property
    def path(self) -> Path:
        return HERE / "programs" / self.set.replace("-", "_") / f"{self.name}.py"

    def fixed(self) -> str:
        """The text of the program without the fault; ValueError where a text that the label names is not in it."""
        text = self.path.read_text()
        for old, new in self.fix:
            if text.count(old) != 1:
                raise ValueError(f"{self.name}: {old!r} is {text.count(old)} times in the program, expected once")
            text = text.replace(old, new)
        return text


def read_labels(sets: Sequence[str] = SETS, only: Sequence[str] = ()) -> list[Label]:
    """The labels of these sets; those whose name fits one of the globs `only`, if there are any."""
    found = []
    for one in sets:
        data = tomllib.loads((HERE / "labels" / f"{one.replace('-', '_')}.toml").read_text())
        found += [_label(name, one, fields) for name, fields in data.items()]
    return [one for one in found if not only or any(fnmatchcase(one.name, glob) for glob in only)]


def _label(name: str, which: str, fields: dict[str, object]) -> Label:
    fields = {key: _tuples(value) for key, value in fields.items()}
    return Label(name=name, set=which, **fields)  # type: ignore[arg-type]


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


@cache
def rules_of_faults() -> dict[str, tuple[str, ...]]:
    """Of each class of faults the rules that name it rightly: globs."""
    data = tomllib.loads((HERE / "causes.toml").read_text())
    return {fault: tuple(one["rules"]) for fault, one in data.items()}
