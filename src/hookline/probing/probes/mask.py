"""mask: positions that a mask leaves out have no influence, and the mask has one.

What: the content of positions that are masked is changed, and the outputs of the others are compared; then the
mask is changed, and everything is compared.
When: an input is called mask or padding, has the shape (batch, time), and another input has as many positions.
"padding_leak" is an error where outputs of kept positions change, "mask_ignored" a warning where the mask
changes nothing.
Why it can be wrong: what a mask means is judged by its name ("padding": True drops) or by what most of it is
(kept). A convolution looks over the border of the padding, and is a note: that is often put up with.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from hookline.diagnosis.finding import Finding
from hookline.probing.changing import KINDS, changed_at
from hookline.probing.comparing import difference, is_float
from hookline.probing.layout import Along, Counted, Differs, aligned, apart
from hookline.probing.registry import CantProbe, probing
from hookline.probing.subject import Subject, found
from hookline.probing.tracing import Place, Tensors, first_break

LEAST = 3
"""Positions that are needed."""


@probing("mask")
def mask(subject: Subject) -> Iterator[Finding]:
    """Findings "padding_leak" and "mask_ignored"."""
    masks = subject.inputs.places("mask")
    if not masks:
        raise CantProbe("the inputs have no mask")
    made, why = False, ""
    for at in masks:
        name = subject.inputs.parts[at].name
        content = _content_of(subject, at)
        if content is None:
            why = f"{name} does not have the shape (batch, time) of another input"
            continue
        made = True
        yield from _one(subject, at, content)
    if not made:
        raise CantProbe(why)


def _content_of(subject: Subject, at: int) -> tuple[int, int] | None:
    """(input, dimension) of the positions that a mask is about."""
    shape = subject.inputs.parts[at].tensor.shape
    if len(shape) != 2 or shape[1] < LEAST:
        return None
    prefix = subject.inputs.parts[at].name.partition("_")[0]
    for alike in (True, False):
        for other in subject.inputs.places("content"):
            part = subject.inputs.parts[other]
            if alike and not part.name.startswith(prefix):
                continue
            for dim in (1, 2):
                if (
                    part.tensor.dim() > dim
                    and part.tensor.shape[dim] == shape[1]
                    and part.tensor.shape[0] == shape[0]
                ):
                    return other, dim
    return None


def _one(subject: Subject, at: int, content: tuple[int, int]) -> Iterator[Finding]:
    noise = subject.noise
    given = subject.inputs.parts[at]
    kept = _kept(given.name, given.tensor)
    count = given.tensor.shape[1]
    half = max(1, count // 3)
    config = getattr(subject.model, "config", None)
    decoded = any(part.name.startswith("decoder") for part in subject.inputs.parts)
    if getattr(config, "is_encoder_decoder", False) and not decoded:
        raise CantProbe("what the decoder gets is made of what the encoder gets; give decoder_input_ids")
    reacts, leaks, ran = False, list[Finding](), False
    for places in (_places(count - half, count), _places(0, half), _places(half, 2 * half)):
        masked = list(subject.inputs.tensors)
        whole = torch.full_like(given.tensor, kept)
        masked[at] = whole.clone()
        open_out = subject.attempt(masked)
        masked[at] = whole.index_fill(1, torch.tensor(places, device=whole.device), _other(kept, given.tensor))
        out = subject.attempt(masked)
        if out is None or open_out is None:
            continue
        ran = True
        reacts = reacts or len(out) != len(open_out) or any(map(difference, open_out, out))
        if not leaks and (leak := _leak(subject.with_tensors(masked), at, content, places, noise)) is not None:
            leaks.append(leak)
    if not ran:
        raise CantProbe(f"the model does not run with another {given.name}")
    if reacts:
        yield from leaks
        return
    yield found(
        "mask_ignored",
        "error" if leaks else "warning",
        Place(leaks[0].site if leaks else ""),
        f"{given.name} changes nothing: the outputs are the same whatever it leaves out",
        evidence={"mask": given.name, "kept": float(kept)},
        advice="Look whether it is passed on to every attention, and what it means there: True keeps in "
        "scaled_dot_product_attention and drops in nn.MultiheadAttention.",
        line=leaks[0].line if leaks else "",
        consequences=tuple(leaks),
    )


def _leak(subject: Subject, at: int, content: tuple[int, int], places: list[int], noise: float) -> Finding | None:
    which, dim = content
    count = subject.inputs.parts[at].tensor.shape[1]
    counted = aligned(subject, which, dim)
    positions = counted.outputs()
    pooled = _pooled(subject, counted, at) if places[0] > 0 and places[-1] + 1 < count else []

    def differs(a: torch.Tensor, b: torch.Tensor, where: Along) -> bool:
        sides = ((0, places[0]), (places[-1] + 1, count))
        return any(
            apart(where.part(a, *side), where.part(b, *side), a, noise) for side in sides if side[0] < side[1]
        )

    for kind in range(KINDS):
        tensors: Tensors = list(subject.inputs.tensors)
        tensors[which] = _changed(tensors[which], dim, places, kind)
        out = subject.attempt(tensors)
        if out is None or len(out) != len(subject.base):
            continue
        for number, (a, b) in enumerate(zip(subject.base, out, strict=True)):
            where = positions[number]
            if not is_float(a) or a.shape != b.shape:
                continue
            of_all = number in pooled and difference(a, b, noise=noise) > 0
            if of_all or (where is not None and differs(a, b, where)):
                return _told(subject, counted, tensors, at, number, places, differs)
    return None


def _places(first: int, last: int) -> list[int]:
    return list(range(first, last))


def _pooled(subject: Subject, counted: Counted, at: int) -> list[int]:
    """Outputs that have one entry for each sample, made of all positions.

    A model may take the first or the last position for that, masked or not: these are looked at where neither is.
    """
    everything = dict.fromkeys(range(len(subject.inputs.parts)), 0)
    samples = Counted(subject, everything, subject.inputs.parts[at].tensor.shape[0])
    if samples.outputs_of_fewer is None or counted.outputs_of_fewer is None:
        return []
    both = zip(counted.outputs(), samples.outputs(), strict=True)
    return [number for number, (position, sample) in enumerate(both) if position is None and sample is not None]


def _changed(tensor: torch.Tensor, dim: int, places: list[int], kind: int) -> torch.Tensor:
    """Other content; ids in the middle of those that occur, since the least and the greatest often end a text."""
    if tensor.is_floating_point():
        return changed_at(tensor, dim, places, kind)
    values = torch.unique(tensor)
    new = values[min(len(values) // 2 + kind, len(values) - 1)]
    return tensor.index_fill(dim, torch.tensor(places, device=tensor.device), int(new))


def _told(
    subject: Subject, counted: Counted, tensors: Tensors, at: int, number: int, places: list[int], differs: Differs
) -> Finding:
    one, other = subject.traced(), subject.traced(tensors)
    place = first_break(one, other, counted.broken(one, differs))
    first = subject.line_of(subject.inputs.tensors, tensors, counted.at_operator(differs), place)
    name = subject.inputs.parts[at].name
    return found(
        "padding_leak",
        "note" if "Conv" in type(subject.model.get_submodule(place.site)).__name__ else "error",
        place,
        f"outputs of positions that {name} keeps change with what stands at positions that it leaves out",
        evidence={"mask": name, "left_out": places, "output": number, "operator": first.name},
        advice="Look whether the mask reaches every attention, and whether means, norms and convolutions over "
        "time leave out what is masked.",
        line=first.line,
    )


def _kept(name: str, tensor: torch.Tensor) -> float:
    """The value that means "kept"."""
    if "padding" in name and "attention" not in name:
        return 0.0
    if name.endswith("attention_mask"):
        return 1.0
    return float(tensor.float().median())


def _other(kept: float, tensor: torch.Tensor) -> float:
    """The value that means "left out"."""
    if "float" in str(tensor.dtype) and kept == 0.0:
        return float("-inf")  # an additive mask
    return 1.0 - kept
