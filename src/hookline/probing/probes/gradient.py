"""gradient: a gradient reaches every parameter that is to be trained.

What: the gradient of the loss, or of all float outputs weighted by fixed random numbers, in eval mode, in train
mode and in the modes as they are; a parameter that gets one in any of them is fine.
When: the model has parameters with requires_grad. "no_gradient" is an error where the graph is cut between them
and the output (a warning if no loss was given, or where gradients were switched off for a whole part: both may
be meant), a warning where what they compute is used by nobody (a note if it comes with something that is used),
a note where they were not used at all: an expert without tokens, a head for another task. It is a warning where a
gradient arrives and is zero everywhere though the output depends on the parameter, as before a rounding.
Why it can be wrong: a part that is cut off on purpose and left with requires_grad; a loss that has parts of its
own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from hookline.diagnosis.finding import Finding
from hookline.probing.changing import changed
from hookline.probing.comparing import difference
from hookline.probing.graph import Graph
from hookline.probing.registry import CantProbe, probing
from hookline.probing.subject import Subject, found
from hookline.probing.tracing import Link, Place, Seen, Trace
from hookline.trees import leaves

MODES = ("train", "eval", "")
TRIES = 3
"""Forwards in train mode: layers may be left out at random."""
LEAVES = ("detach", "detach_", "_local_scalar_dense", "lift_fresh", "argmax", "argmin")
"""Operators whose results are not in the graph."""
SHOWN = 8
"""Names of parameters in a finding."""


class Lost(NamedTuple):
    """Where the way to the output ends, how, whether gradients are off there, and the last part on it."""

    site: str
    cause: str
    off: bool
    after: str = ""
    several: bool = False
    """Whether that part has other outputs or parameters as well, which are those that are wanted."""


@probing("gradient")
def gradient(subject: Subject) -> Iterator[Finding]:
    """Findings "no_gradient"."""
    trained = {name: one for name, one in subject.model.named_parameters() if one.requires_grad}
    if not trained:
        raise CantProbe("the model has no parameter with requires_grad")
    left, zero, errors, ran = dict(trained), set[str](), [], 0
    for mode in MODES:
        for seed in range(TRIES if mode == "train" else 1):
            if not left:
                return
            try:
                use = partial(_reached, subject, left)
                reached = subject.used(use, live=True, mode=mode, seed=seed)
            except RuntimeError as error:  # BatchNorm of one sample, cuDNN's RNNs in eval mode
                errors.append(error)
                continue
            ran += 1
            zero |= {name for name, is_zero in reached.items() if is_zero}
            left = {name: one for name, one in left.items() if reached.get(name, True)}
    if not ran:
        raise CantProbe(f"it has no gradient: {str(errors[0]).splitlines()[0]}")
    none = {name: one for name, one in left.items() if name not in zero}
    if none and subject.used(partial(_repeats, subject), live=True, mode=""):
        raise CantProbe("it has checkpoints that can't be followed; use_reentrant=False makes such as can be")
    if none:
        yield from _explained(subject, trained, none)
    flat = {name: one for name, one in left.items() if name in zero and _matters(subject, [one])}
    if flat:
        yield _flattened(subject, list(flat), len(trained))


def _is_zero(grad: torch.Tensor) -> bool:
    return not bool(torch.count_nonzero(grad.to_dense() if grad.layout is not torch.strided else grad))


def _reached(subject: Subject, asked: dict[str, nn.Parameter], output: Any) -> dict[str, bool]:
    """The parameters that get a gradient, and whether it is zero."""
    total = _total(subject, output)
    if total is None or not total.requires_grad:
        return {}
    grads = torch.autograd.grad(total, list(asked.values()), allow_unused=True)
    reached = {name: _is_zero(grad) for name, grad in zip(asked, grads, strict=True) if grad is not None}
    for name, one in asked.items():  # a backward inside of it, as reversible layers have, leaves its results here
        if one.grad is not None:
            reached[name] = _is_zero(one.grad)
            one.grad = None
    return reached


def _repeats(subject: Subject, output: Any) -> bool:
    """Whether a part of the graph is made in the backward only, as reentrant checkpoints do."""
    total = _total(subject, output)
    nodes = [] if total is None else [total.grad_fn]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        if node is None:
            continue
        if node.name().startswith("CheckpointFunction"):
            return True
        nodes += [one for one, _ in node.next_functions if one not in seen]
        seen.update(nodes)
    return False


def _total(subject: Subject, output: Any) -> torch.Tensor | None:
    """The loss of an output."""
    if subject.options.loss is not None:
        loss = subject.options.loss(output)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise CantProbe(f"loss(output) gave {_kind(loss)}: expected a tensor with one number")
        return loss.sum()
    floats = [one for one in leaves(output, torch.Tensor) if one.is_floating_point() or one.is_complex()]
    if not floats:
        raise CantProbe("its output has no floating point tensor; give loss=")
    generator = torch.Generator().manual_seed(0)
    parts = []
    for one in floats:
        one = torch.view_as_real(one) if one.is_complex() else one
        if one.requires_grad:
            one = one.to_dense() if one.layout is not torch.strided else one
            weights = torch.randn(one.shape, generator=generator).to(one.device)
            parts.append((one.float() * weights).sum())
    return torch.stack(parts).sum() if parts else None


def _kind(value: Any) -> str:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__


def _explained(
    subject: Subject, trained: dict[str, nn.Parameter], left: dict[str, nn.Parameter]
) -> Iterator[Finding]:
    """One finding for each place and cause."""
    mode = "train" if any(module.training for module in subject.model.modules()) else "eval"
    try:
        places = _places(subject, left, mode)
    except RuntimeError:
        places = _places(subject, left, "eval")
    groups: dict[Lost, list[str]] = {}
    for name, place in places.items():
        groups.setdefault(place, []).append(name)
    for place, names in groups.items():
        cause = place.cause
        beside = {name.rpartition(".")[0] for name in trained if name not in left}
        alone = all(name.rpartition(".")[0] in beside for name in names)  # a bias whose weight has a gradient
        place = place._replace(several=place.several or alone)
        if cause == "cut" and not _matters(subject, [left[name] for name in names]):
            cause = "in vain"
        yield _finding(subject, place._replace(cause=cause), names, len(trained))


def _places(subject: Subject, left: dict[str, nn.Parameter], mode: str) -> dict[str, Lost]:
    trace = Trace()
    return subject.used(  # type: ignore[no-any-return]
        lambda _: {name: _lost(trace, graph, name) for graph in [Graph(left)] for name in left},
        trace=trace,
        live=True,
        mode=mode,
    )


def _lost(trace: Trace, graph: Graph, name: str) -> Lost:
    """Where the way from a parameter to the output ends."""
    owner = name.rpartition(".")[0]
    last: Seen | None = None
    for call in trace.calls:
        if any(graph.reaches(link, name) for link in call.went):
            last = call
        elif any(link.is_float for link in call.went) and any(graph.reaches(link, name) for link in call.came):
            return _outermost(call)
    if last is not None and last.caller is None:
        return Lost("", "loss", False)
    if last is not None:
        several = sum(link.is_float for link in last.went) > 1
        return Lost(last.caller.name if last.caller else "", "cut", False, last.name, several)
    for call in trace.calls:
        if call.name == owner and not any(graph.is_in_it(link) for link in call.went if link.is_float):
            return _outermost(call)
    return Lost(owner, "unused", False)


def _outermost(call: Seen) -> Lost:
    """The call itself; where gradients are off, the outermost one in which they are."""
    off = not call.grad_enabled
    while not call.grad_enabled and call.caller is not None and not call.caller.grad_enabled:
        call = call.caller
    return Lost(call.name, "cut", off)


def _matters(subject: Subject, parameters: list[nn.Parameter]) -> bool:
    """Whether the outputs change when these parameters do."""
    before = [one.detach().clone() for one in parameters]
    try:
        with torch.no_grad():
            for one in parameters:
                one.copy_(changed(one, 1))
        after = subject.run()
    finally:
        with torch.no_grad():
            for one, was in zip(parameters, before, strict=True):
                one.copy_(was)
    return len(after) != len(subject.base) or any(map(difference, subject.base, after))


def _finding(subject: Subject, place: Lost, names: list[str], trained: int) -> Finding:
    evidence = {"parameters": names, "trainable": trained, "cause": place.cause}
    said = f"{_listed(names)} {'gets' if len(names) == 1 else 'get'} no gradient"
    if place.cause == "cut":
        sure = (subject.options.loss is not None and not place.off) or len(names) == trained
        how = (
            "gradients are switched off in it"
            if place.off
            else "what it puts out does not depend on them any more"
        )
        after = f", after {place.after!r}" if place.after else ""
        return found(
            "no_gradient",
            "error" if sure else "warning",
            Place(place.site),
            f"{said}, since the graph is cut here{after}: {how}",
            evidence=evidence,
            advice="Look for detach(), .data, .item(), numpy(), torch.tensor(...), argmax or no_grad(); "
            "if it is meant, set requires_grad to False.",
            line=_line(subject, place.site),
        )
    if place.cause == "loss":
        whole = len(names) == trained
        return found(
            "no_gradient",
            "error" if whole else "note",
            Place(""),
            f"{said}, since the loss does not depend on what {'it makes' if len(names) == 1 else 'they make'}",
            evidence=evidence,
            advice="Look how the loss is made of the output: detach(), .item(), argmax, another variable."
            if whole
            else "Fine for an output that is not trained on.",
        )
    if place.cause == "in vain":
        return found(
            "no_gradient",
            "note" if place.several else "warning",
            Place(place.site),
            f"{said}, since no output depends on what is computed with {'it' if len(names) == 1 else 'them'}",
            evidence=evidence,
            advice="Look where the result was to be used; a variable may have been overwritten.",
        )
    return found(
        "no_gradient",
        "note",
        Place(place.site),
        f"{said}, since this input does not use {'it' if len(names) == 1 else 'them'}",
        evidence=evidence,
        advice="Fine for experts without tokens and heads used in turn; else look whether its call was forgotten.",
    )


def _flattened(subject: Subject, names: list[str], trained: int) -> Finding:
    """Of parameters that matter and whose gradient is zero, as before a rounding."""
    trace = Trace()
    site = subject.used(lambda output: _where_flat(_total(subject, output), trace), trace=trace, live=True)
    return found(
        "no_gradient",
        "warning",
        Place(site),
        f"the gradient of {_listed(names)} is zero everywhere, though the output depends on "
        f"{'it' if len(names) == 1 else 'them'}: it is lost here",
        evidence={"parameters": names, "trainable": trained, "cause": "zero"},
        advice="Look for round, floor, sign, a comparison or an activation whose units are all off.",
    )


def _where_flat(total: torch.Tensor | None, trace: Trace) -> str:
    """The first module behind whose output there is a gradient, and before it none."""
    links = {id(link.tensor): link.tensor for call in trace.calls for link in (*call.came, *call.went)}
    asked = {key: one for key, one in links.items() if one.requires_grad and one.is_floating_point()}
    if total is None or not asked:
        return ""
    grads = torch.autograd.grad(total, list(asked.values()), allow_unused=True)
    zero = {key: grad is None or _is_zero(grad) for key, grad in zip(asked, grads, strict=True)}

    def is_flat(links: list[Link]) -> bool:
        known = [zero[id(link.tensor)] for link in links if id(link.tensor) in zero]
        return bool(known) and all(known)

    before = ""
    for call in trace.calls:
        if is_flat(call.came) and call.went and not is_flat(call.went):
            return call.name
        if is_flat(call.went):
            before = call.caller.name if call.caller is not None else ""
    return before


def _listed(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _line(subject: Subject, site: str) -> str:
    """The line of the module's own code that leaves the graph, if there is just one."""
    try:
        events = subject.operators(subject.inputs.tensors, 0, site)
    except Exception:  # what can't be watched at this level is named by its module
        return ""
    names = {event.source for event in events if event.module == site and event.op.rpartition(".")[2] in LEAVES}
    return (names.pop() or "") if len(names) == 1 else ""
