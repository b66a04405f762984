"""causality: an output does not depend on later inputs.

What: everything from one position on is changed, in two ways, and the outputs before it are compared.
When: an input of ids (batch, time) or of numbers (batch, time, channels) or (batch, channels, time), and an
output with as many positions. "future_leak" is an error where the model is meant to be causal: `causal=True`,
its configuration, its name, a triangular mask among its buffers, tril or triu in its code. It is a warning where
that can be guessed from the leak alone (outputs see far back and only a little ahead, or only ahead), and a note
or nothing else: an encoder is meant to look both ways.
Why it can be wrong: a model with some lookahead on purpose; a decoder that is used as an encoder.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from hookline.diagnosis.finding import Finding
from hookline.probing.changing import KINDS, changed_at
from hookline.probing.comparing import positions_apart
from hookline.probing.layout import Along, Counted, aligned, apart
from hookline.probing.registry import CantProbe, probing
from hookline.probing.subject import Subject, found
from hookline.probing.tracing import Tensors, first_break

SHORTEST = 4
"""Positions that are needed."""
FAR = 3
"""Outputs that see so many times farther back than ahead were not meant to look ahead."""
DECODERS = re.compile(r"GPT|CausalLM|LMHead|Decoder|Causal|Autoregressive|WaveNet|TCN")
ENCODERS = re.compile(r"Encoder|Bert|MaskedLM|TokenClassification|Bidirectional|ViT|Electra")
TRIANGLES = re.compile(r"\b(?:tril|triu|is_causal\s*=\s*True|causal\s*=\s*True|square_subsequent_mask)\b")


class Reach(NamedTuple):
    """How far outputs see, in positions."""

    back: int
    ahead: int


@probing("causality")
def causality(subject: Subject) -> Iterator[Finding]:
    """Findings "future_leak"."""
    if subject.options.causal is False:
        raise CantProbe("causal=False says that outputs may depend on later inputs")
    counted, places = _positions(subject)
    noise = subject.noise
    leak = _leak(subject, counted, places, noise)
    if leak is None:
        return
    tensors, cut, far, number = leak
    reach = _reach(subject, counted, places[number], number, noise)
    meant, severity = _judged(subject, reach, counted.count)
    if not severity:
        return

    def differs(a: torch.Tensor, b: torch.Tensor, where: Along) -> bool:
        return apart(where.part(a, 0, cut), where.part(b, 0, cut), a, noise) > 0

    one, other = subject.traced(), subject.traced(tensors)
    place = first_break(one, other, counted.broken(one, differs))
    first = subject.line_of(subject.inputs.tensors, tensors, counted.at_operator(differs), place)
    yield found(
        "future_leak",
        severity,
        place,
        f"outputs before position {cut} change when only inputs from position {cut} on do"
        + (f", though the model is meant to be causal ({meant})" if meant else ""),
        evidence={
            "changed_from": cut,
            "apart": far,
            "positions_ahead": reach.ahead,
            "positions_back": reach.back,
            "output": number,
            "operator": first.name,
        },
        advice="Look at the mask (its diagonal, whether True keeps or drops), at convolutions (padded on the left "
        "only), at norms and means over time."
        if severity != "note"
        else "Fine for an encoder; causal=True has it checked, causal=False leaves it out.",
        line=first.line,
        confidence=1.0 if severity == "error" else 0.7,
    )


def _positions(subject: Subject) -> tuple[Counted, list[Along | None]]:
    """The dimension of time, in the inputs and outputs."""
    parts = subject.inputs.parts
    content = subject.inputs.places("content")
    config = getattr(subject.model, "config", None)
    decoder = [at for at in content if re.match(r"decoder_|tgt|target", parts[at].name)]
    if getattr(config, "is_encoder_decoder", False) and not decoder:
        raise CantProbe("what the decoder gets is made of what the encoder gets; give decoder_input_ids")
    short = False
    for first in decoder or content:
        for dim in _dimensions(subject, parts[first].tensor):
            count = parts[first].tensor.shape[dim]
            short = short or count < SHORTEST
            if count < SHORTEST:
                continue
            counted = aligned(subject, first, dim)
            if counted.outputs_of_fewer is None and dim != 1:
                continue  # by size alone it could as well be channels
            places = counted.outputs()
            if any(places):
                return counted, places
    if short:
        raise CantProbe(f"it needs a sequence of at least {SHORTEST} positions")
    raise CantProbe("no output has as many positions as an input")


def _dimensions(subject: Subject, tensor: torch.Tensor) -> list[int]:
    """Dimensions that may be time."""
    if subject.options.batch_dim == 1:
        return [0]
    if tensor.is_floating_point():
        return [1, 2] if tensor.dim() == 3 else []
    return [1] if tensor.dim() == 2 else []


def _changed(subject: Subject, counted: Counted, places: list[int], kind: int) -> Tensors:
    tensors = list(subject.inputs.tensors)
    for at, dim in counted.at.items():
        if subject.inputs.parts[at].role == "content":
            tensors[at] = changed_at(tensors[at], dim, places, kind)
    return tensors


def _leak(
    subject: Subject, counted: Counted, places: list[Along | None], noise: float
) -> tuple[Tensors, int, float, int] | None:
    """Inputs that differ from a position on and change an output before it."""
    count = counted.count
    for cut in dict.fromkeys((count // 2, count - 1, 1)):
        for kind in range(KINDS):
            tensors = _changed(subject, counted, list(range(cut, count)), kind)
            out = subject.attempt(tensors)
            if out is None or len(out) != len(places):
                continue
            for number, (a, b, where) in enumerate(zip(subject.base, out, places, strict=True)):
                if where is None or a.shape != b.shape:
                    continue
                far = apart(where.part(a, 0, cut), where.part(b, 0, cut), a, noise)
                if far:
                    return tensors, cut, far, number
    return None


def _reach(subject: Subject, counted: Counted, where: Along | None, number: int, noise: float) -> Reach:
    """How far back and ahead outputs see: one position is changed at a time."""
    assert where is not None
    back = ahead = 0
    for at in (0, counted.count // 2, counted.count - 1):
        out = subject.attempt(_changed(subject, counted, [at], 0))
        if out is None or len(out) <= number or out[number].shape != subject.base[number].shape:
            continue
        seen = [one // where.each for one in positions_apart(subject.base[number], out[number], where.dim, noise)]
        back = max([back, *(one - at for one in seen)])
        ahead = max([ahead, *(at - one for one in seen)])
    return Reach(back, ahead)


def _judged(subject: Subject, reach: Reach, count: int) -> tuple[str, str]:
    """(by what the model is meant to be causal, severity of a leak); no severity where none is meant."""
    if subject.options.causal:
        return "causal=True", "error"
    meant, encodes = _intention(subject.model, count)
    if meant and not encodes:
        return meant, "error"
    if encodes:
        return "", ""
    if 0 < FAR * reach.ahead <= reach.back:
        return f"outputs see {reach.back} positions back and {reach.ahead} ahead", "warning"
    if reach.back == 0 and reach.ahead > 1:
        return "outputs see later positions only", "warning"
    return "", "note"


def _intention(model: nn.Module, count: int) -> tuple[str, bool]:
    """By what the model is meant to be causal, and whether it is meant to look both ways."""
    config: Any = getattr(model, "config", None)
    name = type(model).__name__
    if getattr(config, "is_decoder", None) is True:
        return "config.is_decoder", False
    if DECODERS.search(name):
        return f"it is a {name}", False
    if ENCODERS.search(name):
        return "", True
    for part, module in model.named_modules():
        for own, buffer in module.named_buffers(recurse=False):
            if _is_triangle(buffer, count):
                return f"{part}.{own} is a triangular mask".lstrip("."), False
    for module in {type(module): module for module in model.modules()}.values():
        kind = type(module)
        if getattr(module, "is_causal", None) is True:
            return f"{kind.__name__}.is_causal", False
        if not kind.__module__.startswith(("torch.", "transformers.")) and TRIANGLES.search(_source(kind)):
            return f"the code of {kind.__name__} makes a triangular mask", False
    # Models of transformers say so where they are decoders.
    return "", getattr(config, "is_decoder", None) is False or type(model).__module__.startswith("transformers.")


def _source(kind: type) -> str:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # it was typed in, or made by a program
        return ""


def _is_triangle(buffer: torch.Tensor, count: int) -> bool:
    """Whether a buffer is a mask that tells earlier from later."""
    if buffer.dim() < 2 or buffer.shape[-1] != buffer.shape[-2] or buffer.shape[-1] < max(count, SHORTEST):
        return False
    mask = buffer.reshape(-1, *buffer.shape[-2:])[0].detach().float().cpu()
    upper = torch.triu(torch.ones_like(mask), 2).bool()
    lower = torch.tril(torch.ones_like(mask), -2).bool()
    return all(len(torch.unique(mask[side])) == 1 for side in (upper, lower)) and bool(
        mask[upper][0] != mask[lower][0]
    )
