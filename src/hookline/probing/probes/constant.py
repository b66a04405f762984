"""constant: the output moves when the input does.

What: the outputs for the inputs and for two others, bit for bit.
When: the model has float outputs and inputs with content. "constant_output" is an error where none of them
moves; a note where the place has weights that are all zero, as a last layer that starts at zero has.
Why it can be wrong: a model that is meant to ignore what comes in, as a learned constant.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from hookline.backends.torch.guarding import same_bits
from hookline.diagnosis.finding import Finding
from hookline.probing.changing import KINDS, changed
from hookline.probing.comparing import is_float
from hookline.probing.registry import CantProbe, probing
from hookline.probing.subject import Subject, found
from hookline.probing.tracing import Place, Tensors, Trace


@probing("constant")
def constant(subject: Subject) -> Iterator[Finding]:
    """Findings "constant_output"."""
    content = subject.inputs.places("content")
    if not content:
        raise CantProbe("the inputs have no tensor whose numbers could be others")
    if not any(is_float(one) for one in subject.base):
        raise CantProbe("its output has no floating point tensor")
    _ = subject.noise
    others = [
        [changed(one, kind) if at in content else one for at, one in enumerate(subject.inputs.tensors)]
        for kind in range(KINDS)
    ]
    made = [(other, out) for other in others if (out := subject.attempt(other)) is not None]
    if not made:
        raise CantProbe("the model does not run with other numbers in its inputs")
    if any(not _same_floats(subject.base, out) for _, out in made):
        return
    place = _where_it_dies(subject.traced(), subject.traced(made[0][0]))
    zeros = _zero_weights(subject, place)
    is_nan = all(bool(one.isnan().all()) for one in subject.base if is_float(one))
    why = "its outputs are the same whatever comes in" + (": NaN" if is_nan else "")
    if zeros:
        why += f", since {zeros[0]} is all zero"
    yield found(
        "constant_output",
        "note" if zeros else "error",
        place,
        why,
        evidence={"inputs_tried": len(made) + 1, "nan": is_nan, "zero_weights": zeros},
        advice="Fine before the first step, if it starts at zero on purpose; else look at how it is initialised."
        if zeros
        else "Look at what comes into this module and what goes out: dead ReLUs, a saturated activation, a "
        "variable that was overwritten.",
    )


def _same_floats(one: Tensors, other: Tensors) -> bool:
    if len(one) != len(other):
        return False
    return all(same_bits(a, b) for a, b in zip(one, other, strict=True) if is_float(a))


def _where_it_dies(one: Trace, other: Trace) -> Place:
    """The module that gets different inputs and puts out the same, after which nothing differs any more."""
    pairs = list(one.pairs(other))
    last = max((at for at, (a, b) in enumerate(pairs) if not _same_floats(a.outputs, b.outputs)), default=-1)
    for a, b in pairs[last + 1 :]:
        if not all(map(same_bits, a.inputs, b.inputs)):
            return Place(a.name)
    caller = pairs[last][0].caller if last >= 0 else None
    return Place("" if caller is None else caller.name)


def _zero_weights(subject: Subject, place: Place) -> list[str]:
    module = subject.model.get_submodule(place.site)
    return [
        f"{place.site}.{name}".lstrip(".")
        for name, one in module.named_parameters(recurse=False)
        if "bias" not in name and one.numel() and not bool(torch.count_nonzero(one))
    ]
