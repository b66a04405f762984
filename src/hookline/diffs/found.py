"""Found: what a diff says. Plain data, no framework."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

EQUAL, WITHIN, RANDOM, DIFFERENT = "equal", "within", "random", "different"
"""Verdicts of a place that both sides have: the same bits; apart by no more than the tolerance; apart, but A is
apart from itself as well; apart."""
MISSING, EXTRA, REORDERED, SHAPE, DTYPE, CALLS = "missing", "extra", "reordered", "shape", "dtype", "calls"
"""Verdicts of what can't be compared number by number: only A has it, only B has it, it comes at another time,
has another shape, another dtype, or is called another number of times."""
TELLING = (DIFFERENT, SHAPE, MISSING, EXTRA, CALLS, REORDERED, DTYPE)
"""Verdicts by which two sides differ."""

Arrays = tuple[NDArray[Any], NDArray[Any]]
"""A place's values in A and in B."""


@dataclass(frozen=True)
class Measure:
    """How far two tensors are apart; relative numbers are relative to the scale of A's tensor.

    `max_abs` is the largest difference, `max_rel` that over A's largest number, `l2_rel` the norm of the
    difference over A's norm. `ulp` is the largest difference in steps of the coarser dtype there. `index` is
    where the largest difference is. `nan_mismatch` and `inf_mismatch` count numbers that are such on one side
    only; they are in no other figure. `beyond` is the share of numbers that differ by more than the tolerance.
    """

    max_abs: float = 0.0
    max_rel: float = 0.0
    l2_rel: float = 0.0
    cosine: float = 1.0
    norm_ratio: float = 1.0
    ulp: float = 0.0
    nan_mismatch: int = 0
    inf_mismatch: int = 0
    beyond: float = 0.0
    index: tuple[int, ...] = ()
    count: int = 0


@dataclass(frozen=True)
class SiteDiff:
    """One place of two computations: what crosses a site in one call (or at one step of a run).

    `site` is its name in A, `other` its name in B, `type` that of the module. `kind` is "output", "input",
    "grad_output", "grad_input", "param" or "param_grad". `part` says which tensor of a structure it is, as
    "[0]" or "['hidden']".
    `error` and `tolerance` are in one unit, `metric` ("max_rel", "l2_rel", "stat"), chosen so that `error` above
    `tolerance` means different. `born`: whether the error is made here, and not handed on from before; None where
    that is not known. `added` is the error that this place adds, `added_tolerance` what rounding alone may add;
    `estimated`, whether that was worked out from errors around it, without a run.
    """

    site: str
    kind: str = "output"
    call: int = 0
    step: int = 0
    verdict: str = EQUAL
    error: float = 0.0
    tolerance: float = 0.0
    metric: str = "max_rel"
    born: bool | None = None
    added: float | None = None
    added_tolerance: float | None = None
    estimated: bool = False
    line: str = ""
    why: str = ""
    other: str = ""
    type: str = ""
    order: int = 0
    part: str = ""
    shape: tuple[int, ...] = ()
    dtypes: tuple[str, str] = ("", "")
    measure: Measure = Measure()
    sources: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether the two sides differ here."""
        return self.verdict in TELLING

    @property
    def label(self) -> str:
        """The site as it is shown: `encoder.3:output`, with the number of the call from the second on."""
        name = f"{self.site or '(model)'}{f' #{self.call}' if self.call else ''}"
        return name if self.kind == "output" else f"{name}:{self.kind}"

    def to_json(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return plain(self)


@dataclass(frozen=True)
class Cause:
    """Why two computations differ, as far as it can be told: `name` is one of the words of docs/diff.md.

    `site` is where (A's name), `sentence` says it in words, `evidence` has the names and numbers.
    """

    name: str
    site: str
    sentence: str
    evidence: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def to_json(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {**plain(self), "evidence": {key: number_of(value) for key, value in self.evidence.items()}}


def plain(thing: Any) -> dict[str, Any]:
    """The fields of a dataclass as JSON has them."""
    found: dict[str, Any] = {}
    for one in fields(thing):
        value = getattr(thing, one.name)
        found[one.name] = plain(value) if isinstance(value, Measure) else number_of(value)
    return found


def number_of(value: Any) -> Any:
    """A value as JSON has it: NaN and Inf are texts, tuples lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [number_of(one) for one in value]
    return value
