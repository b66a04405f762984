"""batch: in eval mode, what comes out for one sample does not depend on the others.

What: one sample is changed, and the outputs of the others are compared; the first and the last one.
When: all inputs have a common first dimension and the model runs with fewer samples. Outputs without it, and
matrices of samples with samples, are left out. "batch_mixing" is an error; a warning for inputs of shape (n,
features), which may be one set or sequence, and where samples may be in the second dimension; a note where
modules of the model expect them there (batch_first=False).
Why it can be wrong: models that learn from the other samples on purpose. `batch_dim=` says where samples are.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from hookline.diagnosis.finding import Finding
from hookline.probing.changing import KINDS, changed_at
from hookline.probing.layout import Along, Counted, apart
from hookline.probing.registry import CantProbe, probing
from hookline.probing.subject import Subject, found
from hookline.probing.tracing import Tensors, first_break

ADVICE = {
    "norm": "Keep running statistics (track_running_stats=True), or use LayerNorm or GroupNorm.",
    "": "Look for view or reshape where permute is meant, softmax, mean or norm over dim 0, batch_first, and "
    "BatchNorm in training mode.",
}


@probing("batch")
def batch(subject: Subject) -> Iterator[Finding]:
    """Findings "batch_mixing"."""
    asked = subject.options.batch_dim
    dim = 0 if asked is None else asked
    subject, counted = samples(subject, dim)
    noise = subject.noise
    mixed = _mixed(subject, counted, noise)
    if mixed is None:
        return
    tensors, changed_sample, far, output = mixed
    swapped = asked is None and _is_second(subject, noise)
    content = [subject.inputs.parts[at].tensor for at in subject.inputs.places("content")]
    is_set = asked is None and all(one.dim() == 2 and one.is_floating_point() for one in content)

    def differs(a: torch.Tensor, b: torch.Tensor, where: Along) -> bool:
        rest = where.without(a, changed_sample), where.without(b, changed_sample)
        return apart(*rest, a, noise) > 0

    one, other = subject.traced(), subject.traced(tensors)
    place = first_break(one, other, counted.broken(one, differs))
    first = subject.line_of(subject.inputs.tensors, tensors, counted.at_operator(differs), place)
    kind = subject.model.get_submodule(place.site)
    is_set = is_set and not hasattr(kind, "track_running_stats")
    why = "in eval mode the output for one sample depends on the other samples of the batch"
    if swapped:
        why = "outputs depend on each other along the first dimension and not along the second"
    yield found(
        "batch_mixing",
        _severity(subject.model, swapped=swapped, is_set=is_set),
        place,
        why,
        evidence={"changed_sample": changed_sample, "apart": far, "output": output, "operator": first.name},
        advice="Fine if the first dimension is time; else give attention and RNNs batch_first=True."
        if swapped
        else ADVICE["norm" if "Norm" in type(kind).__name__ else ""],
        line=first.line,
        confidence=0.5 if swapped else 0.8 if is_set else 1.0,
    )


def _severity(model: nn.Module, *, swapped: bool, is_set: bool) -> str:
    """How sure it is that the first dimension is meant to be the samples."""
    if not swapped:
        return "warning" if is_set else "error"
    time_first = any(
        isinstance(part, nn.RNNCellBase) or getattr(part, "batch_first", True) is False for part in model.modules()
    )
    return "note" if time_first else "warning"


def samples(subject: Subject, dim: int) -> tuple[Subject, Counted]:
    """The subject with at least two samples, and where they are counted; CantProbe where there are none."""
    sizes = {part.tensor.shape[dim] if part.tensor.dim() > dim else -1 for part in subject.inputs.parts}
    if not subject.inputs.places("content"):
        raise CantProbe("the inputs have no tensor whose numbers could be others")
    if len(sizes) != 1 or -1 in sizes:
        raise CantProbe(f"the inputs have no common dimension {dim} that would be the samples")
    (count,) = sizes
    if count == 1:
        subject, count = subject.with_tensors([torch.cat([one, one], dim) for one in subject.inputs.tensors]), 2
        if subject.attempt(subject.inputs.tensors) is None:
            raise CantProbe("there is one sample only, and the model does not run with two")
    counted = Counted(subject, dict.fromkeys(range(len(subject.inputs.parts)), dim), count)
    if counted.outputs_of_fewer is None:
        raise CantProbe(f"the model does not run with {counted.less} instead of {count} in dimension {dim}")
    if not any(counted.outputs()):
        raise CantProbe("no output has one part for each sample")
    return subject, counted


def _mixed(subject: Subject, counted: Counted, noise: float) -> tuple[Tensors, int, float, int] | None:
    """Inputs with another sample that changes the outputs of others: which, by how much, in which output."""
    places = counted.outputs()
    for sample in dict.fromkeys((counted.count - 1, 0)):
        for kind in range(KINDS):
            tensors = list(subject.inputs.tensors)
            for at in subject.inputs.places("content"):
                tensors[at] = changed_at(tensors[at], counted.at[at], [sample], kind)
            out = subject.attempt(tensors)
            if out is None or len(out) != len(places):
                continue
            for number, (a, b, where) in enumerate(zip(subject.base, out, places, strict=True)):
                if where is None or a.shape != b.shape:
                    continue
                far = apart(where.without(a, sample), where.without(b, sample), a, noise)
                if far:
                    return tensors, sample, far, number
    return None


def _is_second(subject: Subject, noise: float) -> bool:
    """Whether samples may well be in the second dimension: nothing depends on each other along that."""
    content = [subject.inputs.parts[at].tensor for at in subject.inputs.places("content")]
    if not all(one.dim() == (3 if one.is_floating_point() else 2) for one in content):
        return False
    try:
        other, counted = samples(subject, 1)
        return all(where is not None and where.dim == 1 for where in counted.outputs() if where) and (
            _mixed(other, counted, noise) is None
        )
    except CantProbe:
        return False
