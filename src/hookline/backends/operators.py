"""Operators: their names in a model, and who listens to them; the same for every framework.

A backend follows the calls of a model's modules and hands each operator that runs to an OpListener,
with the OpSite that it is: its place in the sequence of operators of its module. Steps form a tree that
grows only when a module does something new, so an operator that ran before costs one lookup to name.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from hookline.backends.nouns import Tree

FORWARD = "forward"
BACKWARD = "backward"


class Operator(NamedTuple):
    """An operator as its framework names it: ("aten.add", "Tensor"); most frameworks know no overloads."""

    name: str
    overload: str = ""

    @property
    def bare(self) -> str:
        """The name without its namespace.

        >>> Operator("aten.convolution", "default").bare
        'convolution'
        """
        return self.name.rpartition(".")[2]


class OpSite:
    """One operator of one module in one phase; `next` has the steps that came after it, by the backend's keys.

    >>> start = OpSite.start("fc")
    >>> first = start.then("mm", Operator("aten.mm"), wanted=True)
    >>> again = first.then("mm", Operator("aten.mm"), wanted=True)
    >>> first.site, again.site, again.node(0, "output"), again.node(2, "input", 1)
    ('fc/mm', 'fc/mm_1', 'fc/mm_1.output', 'fc#2/mm_1.input1')
    >>> OpSite.start("fc", BACKWARD).then("mm", Operator("aten.mm"), wanted=True).site
    'fc/mm_backward'
    """

    __slots__ = ("_before", "_named", "_nodes", "module", "next", "operator", "phase", "wanted")

    def __init__(self, module: str, phase: str, before: OpSite | None, operator: Operator, wanted: bool) -> None:
        self.module, self.phase, self.operator, self.wanted = module, phase, operator, wanted
        self.next: dict[Any, OpSite] = {}
        self._before = before
        self._named: tuple[str, int] | None = None  # found out when somebody asks: most are never asked
        self._nodes: dict[tuple[int, str, int], str] = {}

    @property
    def site(self) -> str:
        """The operator's name as a site, `fc/addmm`; `fc/addmm_1` where it is the second in its module."""
        label, number = self._name()
        return f"{self.module}/{label}_{number}" if number else f"{self.module}/{label}"

    def _name(self) -> tuple[str, int]:
        if self._named is None:
            label = _label(self.operator.bare, self.phase)
            before = self._before
            while before is not None and _label(before.operator.bare, before.phase) != label:
                before = before._before
            self._named = (label, 0 if before is None else before._name()[1] + 1)
        return self._named

    @classmethod
    def start(cls, module: str, phase: str = FORWARD) -> OpSite:
        """What stands before the first operator of a module."""
        return cls(module, phase, None, Operator(""), False)

    def then(self, key: Any, operator: Operator, *, wanted: bool) -> OpSite:
        """The step that follows this one when the operator `key` runs."""
        step = self.next[key] = OpSite(self.module, self.phase, self, operator, wanted)
        return step

    def node(self, call: int, role: str, index: int = -1) -> str:
        """The name of a value: `fc/mm.output`, or `fc#1/mm.output` in the second call of the module."""
        key = (call, role, index)
        name = self._nodes.get(key)
        if name is None:
            place = role if index < 0 else f"{role}{index}"
            again = f"#{call}" if call else ""
            name = self._nodes[key] = f"{self.module}{again}/{self.site[len(self.module) + 1 :]}.{place}"
        return name

    def goes_by(self, name: str, call: int, role: str, index: int = -1) -> None:
        """Has a value go by the framework's own name for it.

        >>> step = OpSite.start("fc").then("fc", Operator("FullyConnected"), wanted=True)
        >>> step.goes_by("dense0_fwd_output", 0, "output")
        >>> step.node(0, "output"), step.site
        ('dense0_fwd_output', 'fc/FullyConnected')
        """
        self._nodes[call, role, index] = name


@lru_cache(maxsize=4096)
def _label(bare: str, phase: str) -> str:
    if phase == FORWARD or "backward" in bare:
        return bare
    return f"{bare.rstrip('_')}_backward"


class Scope:
    """One call of a module, and how far it is in its sequence of operators, forward and backward.

    `muted` is a call that repeats an earlier one (activation checkpointing): its operators are not told
    again. `sequence` and `repeated_in` are for the backend's `recomputed`.
    """

    __slots__ = ("backward", "call", "module", "muted", "repeated_in", "sequence", "step", "task")

    def __init__(self, module: str, call: int, step: OpSite, sequence: int = 0, muted: bool = False) -> None:
        self.module, self.call, self.step = module, call, step
        self.sequence, self.muted = sequence, muted
        self.backward: OpSite | None = None
        self.task: Any = None
        self.repeated_in: Any = None


class OpListener(Protocol):
    """Who is told of operators. `inputs`: before they run as well; `sources`: with the line of code.

    Listeners of one `key` want the same: compiled code that was made for one serves the other.
    """

    inputs: bool
    sources: bool

    @property
    def key(self) -> Hashable:
        """Equal for listeners that want the same."""

    def wants(self, operator: Operator, phase: str) -> bool:
        """Whether this operator is to be told; asked once for each place where it stands."""

    def is_mine(self) -> bool:
        """Whether the forward or backward that begins in this context is to be listened to."""

    def before(self, step: OpSite, call: int, tensors: Sequence[Any], source: str | None) -> None:
        """An operator is about to run on these tensors."""

    def after(self, step: OpSite, call: int, output: Tree, source: str | None) -> None:
        """An operator has run; `output` is a tensor, or a tuple or list of tensors and None."""
