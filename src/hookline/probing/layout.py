"""Layout: which dimension of a tensor is that of the samples or of the positions, found by running on fewer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from hookline.probing.comparing import difference, is_float, scale_of
from hookline.probing.registry import CantProbe
from hookline.probing.subject import Subject
from hookline.probing.tracing import Broken, Seen, Tensors, Trace


@dataclass(frozen=True)
class Along:
    """Where something is counted in a tensor: in `dim`, each of the `count` taking `each` places in a row."""

    dim: int
    count: int
    each: int = 1

    def part(self, tensor: torch.Tensor, first: int, last: int) -> torch.Tensor:
        """Those from `first` up to `last`, without it."""
        return tensor.narrow(self.dim, first * self.each, (last - first) * self.each)

    def without(self, tensor: torch.Tensor, at: int) -> torch.Tensor:
        """All but one."""
        return torch.cat([self.part(tensor, 0, at), self.part(tensor, at + 1, self.count)], self.dim)


def along(whole: torch.Tensor, fewer: torch.Tensor, count: int, less: int) -> Along | None:
    """Where `count` are counted, given the same with `less`; None where nowhere, or where it can't be told.

    >>> along(torch.ones(4, 3), torch.ones(2, 3), 4, 2), along(torch.ones(3, 3), torch.ones(3, 3), 4, 2)
    (Along(dim=0, count=4, each=1), None)
    """
    if whole.dim() != fewer.dim():
        return None
    shrunk = [dim for dim, (a, b) in enumerate(zip(whole.shape, fewer.shape, strict=True)) if a != b]
    if len(shrunk) != 1:
        return None
    (dim,) = shrunk
    each, rest = divmod(whole.shape[dim], count)
    return Along(dim, count, each) if rest == 0 and each and fewer.shape[dim] == each * less else None


def by_size(tensor: torch.Tensor, count: int, likely: int) -> Along | None:
    """Where `count` are counted, by size alone: in the only such dimension, or in the likely one."""
    dims = [dim for dim, size in enumerate(tensor.shape) if size == count]
    if len(dims) == 1:
        return Along(dims[0], count)
    return Along(likely, count) if likely in dims else None


Differs = Callable[[torch.Tensor, torch.Tensor, Along], bool]
"""Whether two tensors differ where they must not."""


class Counted:
    """The dimension of the samples or of the positions: in the inputs, and in whatever comes out of modules.

    `at` says which of the inputs have it, and where. `outputs_of_fewer` is None where the model does not run on
    fewer: it is judged by sizes then.
    """

    def __init__(self, subject: Subject, at: dict[int, int], count: int) -> None:
        self.subject, self.at, self.count = subject, at, count
        self.less = max(count - 1, 1)
        self.likely = next(iter(at.values()))
        self._fewer = self.cut(self.less)
        self.outputs_of_fewer = subject.attempt(self._fewer)
        self._trace: Trace | None = None

    def cut(self, count: int, tensors: Sequence[torch.Tensor] | None = None) -> Tensors:
        """The inputs with the first `count` only."""
        whole = list(self.subject.inputs.tensors if tensors is None else tensors)
        for place, dim in self.at.items():
            whole[place] = whole[place].narrow(dim, 0, count)
        return whole

    def outputs(self) -> list[Along | None]:
        """Where they are counted in each output; None for an output without them, or one that is not a float."""
        base, fewer = self.subject.base, self.outputs_of_fewer
        if fewer is None:
            return [by_size(one, self.count, self.likely) if is_float(one) else None for one in base]
        if len(fewer) != len(base):
            raise CantProbe("the number of outputs depends on how much comes in")
        return [
            along(one, less, self.count, self.less) if is_float(one) else None
            for one, less in zip(base, fewer, strict=True)
        ]

    def broken(self, one: Trace, differs: Differs) -> Broken:
        """A function for `first_break`: whether tensors of a call differ where they must not."""
        if self._trace is None and self.outputs_of_fewer is not None:
            self._trace = self.subject.traced(self._fewer)
        fewer = {} if self._trace is None else {id(a): b for a, b in one.pairs(self._trace)}

        def is_broken(call: Seen, twin: Seen, which: str) -> bool:
            less = fewer.get(id(call))
            ours, theirs = getattr(call, which), getattr(twin, which)
            for number, (a, b) in enumerate(zip(ours, theirs, strict=False)):
                if less is None:
                    where = by_size(a, self.count, self.likely)
                else:
                    small: Tensors = getattr(less, which)
                    where = along(a, small[number], self.count, self.less) if number < len(small) else None
                if where is not None and is_float(a) and a.shape == b.shape and differs(a, b, where):
                    return True
            return False

        return is_broken

    def at_operator(self, differs: Differs) -> Callable[[torch.Tensor, torch.Tensor], bool]:
        """As `broken`, for what an operator puts out: judged by sizes, where just one dimension has this size."""

        def is_broken(a: torch.Tensor, b: torch.Tensor) -> bool:
            where = by_size(a, self.count, -1)
            return where is not None and is_float(a) and a.shape == b.shape and differs(a, b, where)

        return is_broken


def aligned(subject: Subject, first: int, dim: int) -> Counted:
    """The positions of an input, and of what has to be cut with it: masks, or all that has as many of them."""
    parts = subject.inputs.parts
    count = parts[first].tensor.shape[dim]
    alike = {
        at: dim for at, part in enumerate(parts) if part.tensor.dim() > dim and part.tensor.shape[dim] == count
    }
    beside = {at: dim for at in alike if parts[at].role != "content"}
    made = [Counted(subject, {first: dim, **beside}, count)]
    if made[0].outputs_of_fewer is None and len(alike) > 1:
        made.append(Counted(subject, {first: dim, **alike}, count))
    return next((one for one in made if one.outputs_of_fewer is not None), made[0])


def apart(a: torch.Tensor, b: torch.Tensor, whole: torch.Tensor, noise: float = 0.0) -> float:
    """How far two parts of a tensor are apart, relative to the size of the whole; 0.0 for rounding."""
    return difference(a, b, scale_of(whole), noise)
