"""determinism: two forwards in eval mode give the same output.

What: the same input with other random numbers, everything else the same; then twice in a row.
When: always. "random_in_eval" is an error where the first operator that differs drops values (dropout that forgot
`training=self.training`), else a note: models that draw samples on purpose do that, too. "state_kept" is a note: a
call changes what the next one gives, as caches and stateful RNNs do.
Why it can be wrong: Monte Carlo dropout is meant to be random.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from hookline.diagnosis.finding import Finding
from hookline.probing.comparing import difference
from hookline.probing.registry import CantProbe, probing
from hookline.probing.subject import Operator, Subject, found
from hookline.probing.tracing import Seen, first_break

DROPS = ("dropout", "attention")
"""Words in the names of operators that drop values at random; attention has its own dropout."""
DRAWS = ("bernoulli", "rand")
SCALED = ("div", "floor", "lt", "gt", "le", "ge")
"""Dropout that is made of smaller operators: numbers are drawn, then compared, or divided by what is kept."""


@probing("determinism")
def determinism(subject: Subject) -> Iterator[Finding]:
    """Findings "random_in_eval" and "state_kept"."""
    if not subject.base:
        raise CantProbe("its output has no tensor")
    inputs = subject.inputs.tensors
    other = subject.run(seed=1)
    if _apart(subject.base, other):
        place = first_break(subject.traced(), subject.traced(seed=1), _differs)
        first = subject.line_of(inputs, inputs, _any_difference, place, seeds=(0, 1))
        drops = _drops(first) or "Drop" in type(subject.model.get_submodule(place.site)).__name__
        by = f"{first.name} draws" if first.name else "it draws"
        yield found(
            "random_in_eval",
            "error" if drops else "note",
            place,
            f"two forwards in eval mode give different outputs: {by} random numbers",
            evidence={"apart": _apart(subject.base, other), "operator": first.name},
            advice="Pass training=self.training to functional dropout, or use nn.Dropout."
            if drops
            else "Fine if it is meant to sample; else draw random numbers in training mode only.",
            line=first.line,
        )
        return
    again = subject.run()
    if _apart(subject.base, again):
        yield found(
            "random_in_eval",
            "warning",
            first_break(subject.traced(), subject.traced(), _differs),
            "two forwards in eval mode give different outputs, even with the same random numbers",
            evidence={"apart": _apart(subject.base, again)},
            advice="Look for a generator of its own, the time, or an operator that is not deterministic.",
        )
        return
    second = subject.run(times=2)
    if _apart(subject.base, second):
        yield found(
            "state_kept",
            "note",
            first_break(subject.traced(), subject.traced(times=2), _differs),
            "a forward in eval mode changes what the next one gives for the same input",
            evidence={"apart": _apart(subject.base, second)},
            advice="Fine for a cache or a stateful RNN; else look at what its forward writes to.",
        )


def _drops(first: Operator) -> bool:
    if any(word in first.name for word in DROPS):
        return True
    drawn = first.name.startswith(DRAWS) and "randn" not in first.name
    return drawn and any(name.rstrip("_") in SCALED for name in first.after)


def _apart(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    if len(one) != len(other):
        return float("inf")
    return max(map(difference, one, other), default=0.0)


def _any_difference(one: torch.Tensor, other: torch.Tensor) -> bool:
    return difference(one, other) > 0


def _differs(call: Seen, twin: Seen, which: str) -> bool:
    return _apart(getattr(call, which), getattr(twin, which)) > 0
