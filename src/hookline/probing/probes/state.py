"""state: what `state_dict` saves is all that the model has learned.

What: a copy is trained a little (forwards in train mode, noise on everything that is trainable), its state_dict
is saved to bytes and loaded into another copy, and the two are compared in eval mode.
When: the model can be copied, or `fresh=` makes another. "state_lost" is an error where their outputs differ, or
where loading fails; a note where what is lost has one entry for each sample, as the hidden state of a stateful
RNN; a warning where a tensor that is no buffer holds random numbers, which another model would draw anew.
Why it can be wrong: state that a program saves in another way, or that is not meant to be saved.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from hookline.backends.torch.guarding import same_bits
from hookline.diagnosis.finding import Finding
from hookline.probing.changing import changed
from hookline.probing.comparing import difference
from hookline.probing.registry import CantProbe, probing
from hookline.probing.subject import Subject, found
from hookline.probing.tracing import Place, Seen, Tensors, first_break
from hookline.trees import leaves

STEPS = 2
"""Forwards in train mode."""
MANY = 16
"""Numbers that a tensor needs so that it can be told whether they are random."""


@probing("state")
def state(subject: Subject) -> Iterator[Finding]:
    """Findings "state_lost"."""
    if not subject.base:
        raise CantProbe("its output has no tensor")
    _ = subject.noise
    try:
        trained, twin = copy.deepcopy(subject.model), copy.deepcopy(subject.model)
    except Exception as error:
        raise CantProbe(
            f"the model can't be copied: {type(error).__name__}: {str(error).splitlines()[0]}"
        ) from error
    copied = subject.of_copy(trained)
    if subject.options.fresh is not None:
        twin = subject.options.fresh()
    _train(copied)
    try:
        saved = io.BytesIO()
        torch.save(trained.state_dict(), saved)
        saved.seek(0)
        twin.load_state_dict(torch.load(saved, weights_only=False, map_location="cpu"))
    except Exception as error:
        yield found(
            "state_lost",
            "error",
            Place(""),
            f"its own state_dict can't be saved and loaded: {type(error).__name__}: {_first_line(error)}",
            advice="Look at state_dict, load_state_dict and their hooks, and at parameters made in forward.",
        )
        return
    loaded = subject.of_copy(twin)
    if finding := _compared(copied, loaded, "error", fresh=subject.options.fresh is not None):
        yield finding
        return
    if subject.options.fresh is None:
        yield from _random_constants(subject, trained)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return " ".join(lines[:2])[:200] if lines else ""


def _train(subject: Subject) -> None:
    """What a training does: forwards in train mode, and other numbers in whatever has requires_grad."""
    model = subject.model
    modes = [(module, module.training) for module in model.modules()]
    for _ in range(STEPS):
        try:
            subject.really_run("train")
        except Exception:  # a batch that is too small for BatchNorm: the rest is looked at all the same
            break
    for module, mode in modes:
        module.training = mode
    with torch.no_grad():
        for tensor in {id(one): one for one in _trainable(model)}.values():
            tensor.copy_(tensor + 0.1 * (changed(tensor) - tensor.mean()))


def _trainable(model: nn.Module) -> Iterator[torch.Tensor]:
    """Everything that an optimizer may change, also what no module knows of."""
    for tensor in (*model.parameters(), *(one for _, _, one in unsaved(model))):
        if tensor.requires_grad and tensor.is_leaf and tensor.is_floating_point():
            yield tensor


def unsaved(model: nn.Module) -> Iterator[tuple[str, str, torch.Tensor]]:
    """(module, attribute, tensor) of what is no parameter and no buffer that is saved."""
    known = {id(one) for one in (*model.parameters(), *model.buffers())}
    inside = set(map(id, model.modules()))
    for name, module in model.named_modules():
        for own, value in module._buffers.items():
            if value is not None and own in module._non_persistent_buffers_set:
                yield name, own, value
        for own, value in vars(module).items():
            if own in ("_parameters", "_buffers", "_modules"):
                continue
            hidden = [one for one in leaves(value, (torch.Tensor, nn.Module)) if id(one) not in known | inside]
            for one in hidden:
                if isinstance(one, nn.Module):
                    held = (*one.parameters(), *one.buffers())
                    yield from ((name, own, tensor) for tensor in held if id(tensor) not in known)
                else:
                    yield name, own, one


def _compared(one: Subject, other: Subject, severity: str, *, fresh: bool) -> Finding | None:
    a, b = one.run(), other.run()
    far = float("inf") if len(a) != len(b) else max(map(difference, a, b), default=0.0)
    if not far:
        return None
    place = first_break(one.traced(), other.traced(), _differs)
    lost = _lost(one.model, other.model)
    saved = _not_restored(one.model, other.model)
    samples = {part.tensor.shape[0] for part in one.inputs.parts if part.tensor.dim()}
    if lost and not saved and all(samples & set(shape[:2]) for _, shape in lost):
        severity = "note"
    names = [name for name, _ in lost] + saved
    what = f": {', '.join(names[:8])}" if names else ""
    return found(
        "state_lost",
        severity,
        place,
        f"a model into which its state_dict was loaded gives other outputs, so something is not saved{what}",
        evidence={"apart": far, "not_saved": names, "fresh": fresh},
        advice="Make it a parameter or a buffer (register_buffer), put modules in a ModuleList; get_extra_state "
        "keeps other things.",
    )


def _differs(call: Seen, twin: Seen, which: str) -> bool:
    ours, theirs = getattr(call, which), getattr(twin, which)
    return len(ours) != len(theirs) or any(map(difference, ours, theirs))


def _lost(one: nn.Module, other: nn.Module) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes of what is no part of the state and differs."""
    there: dict[str, list[torch.Tensor]] = {}
    for name, own, tensor in unsaved(other):
        there.setdefault(f"{name}.{own}".lstrip("."), []).append(tensor)
    found_: dict[str, tuple[int, ...]] = {}
    for name, own, tensor in unsaved(one):
        key = f"{name}.{own}".lstrip(".")
        twins = there.get(key, [])
        twin = twins.pop(0) if twins else None
        if twin is None or not same_bits(tensor.detach(), twin.detach()):
            found_.setdefault(key, tuple(tensor.shape))
    plain = _plain(one)
    for key, value in _plain(other).items():
        if key in plain and plain[key] != value:
            found_.setdefault(key, ())
    return list(found_.items())


def _plain(model: nn.Module) -> dict[str, Any]:
    return {
        f"{name}.{own}".lstrip("."): value
        for name, module in model.named_modules()
        for own, value in vars(module).items()
        if isinstance(value, (bool, int, float, str)) and own != "training"
    }


def _not_restored(one: nn.Module, other: nn.Module) -> list[str]:
    """Parameters and buffers that differ though they were loaded."""
    there = dict([*other.named_parameters(), *other.named_buffers()])
    return [
        name
        for name, tensor in [*one.named_parameters(), *one.named_buffers()]
        if name in there and not same_bits(tensor.detach(), there[name].detach())
    ]


def _random_constants(subject: Subject, model: nn.Module) -> Iterator[Finding]:
    """Tensors with random numbers that are not saved and that matter."""
    drawn = [(name, own, one) for name, own, one in unsaved(model) if not one.requires_grad and looks_random(one)]
    if not drawn:
        return
    copied = subject.of_copy(model)
    before = copied.run()
    for name, own, tensor in drawn:
        with torch.no_grad():
            kept = tensor.clone()
            tensor.copy_(changed(tensor))
            after = copied.run()
            tensor.copy_(kept)
        if _moved(before, after):
            yield found(
                "state_lost",
                "warning",
                Place(name),
                f"{own} holds random numbers, matters and is not saved: another model would draw others",
                evidence={"not_saved": [f"{name}.{own}".lstrip(".")], "shape": list(tensor.shape)},
                advice="Make it a buffer: self.register_buffer(name, tensor).",
                confidence=0.7,
            )


def _moved(one: Tensors, other: Tensors) -> bool:
    return len(one) != len(other) or any(map(difference, one, other))


def looks_random(tensor: torch.Tensor) -> bool:
    """Whether numbers next to each other have nothing to do with each other, in any dimension.

    >>> drawn = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
    >>> looks_random(drawn), looks_random(torch.arange(64.0))
    (True, False)
    """
    if not tensor.is_floating_point() or tensor.numel() < MANY:
        return False
    numbers = tensor.detach().double().cpu()
    if not bool(numbers.isfinite().all()) or len(torch.unique(numbers)) < 0.9 * numbers.numel():
        return False
    for dim in range(numbers.dim()):
        size = numbers.shape[dim]
        if size < 3:
            continue
        a, b = numbers.narrow(dim, 0, size - 1).flatten(), numbers.narrow(dim, 1, size - 1).flatten()
        both = torch.corrcoef(torch.stack([a, b]))[0, 1]
        if not bool(both.abs() < 4 / len(a) ** 0.5):
            return False
    return True
