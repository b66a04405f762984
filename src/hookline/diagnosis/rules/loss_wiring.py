"""How the loss hangs on the model: not at all, by a stretched shape, by two softmaxes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Training
from hookline.wiring import Look, Place

SHAPE = re.compile(r"[(\[]([\d, ]*)[)\]]")


@rule(
    "loss_detached",
    severity="error",
    advice="Look for .detach(), .data, .item(), torch.tensor(...) or no_grad between the model's output "
    "and the loss.",
    wiring=True,
)
def loss_detached(training: Training) -> Iterator[Finding]:
    """The loss does not depend on any parameter: backward teaches the model nothing.

    When: the model runs, and the graph of the loss has no parameter of it. Why it can be wrong: the loss is that
    of another model.
    """
    wiring = training.wiring
    if not any(one.calls or not one.counted for one in wiring.modules.values()):
        return
    looks = [one for one in wiring.looks if one.on_params is not None]
    if looks and not any(one.on_params for one in looks) and not any(one.grads for one in wiring.params.values()):
        why = "the loss does not depend on any parameter of the model: its graph was cut off"
        yield found("", looks[0].step, why, line=_line(training), operators=looks[0].operators[:10])


@rule(
    "loss_ignores_input",
    severity="error",
    advice="Look at what forward does with its input, and at what the loss is computed from.",
    wiring=True,
)
def loss_ignores_input(training: Training) -> Iterator[Finding]:
    """The loss does not depend on what comes into the model.

    When: no path of the graph leads from the loss to the input, at each look. Why it can be wrong: a path
    through whole numbers (tokens, indices) can't be followed; then nothing is said.
    """
    looks = [one for one in training.wiring.looks if one.on_input is not None]
    if looks and not any(one.on_input for one in looks):
        why = "the loss does not depend on the input of the model: whatever comes in, it is the same"
        # Where all that ran is part of the loss, its first layer is: the input may have gone a way nobody saw.
        sure = any(one.in_vain for one in looks)
        severity, confidence = ("error", 0.9) if sure else ("note", 0.5)
        yield found("", looks[0].step, why, line=_line(training), severity=severity, confidence=confidence)


@rule(
    "in_vain",
    severity="error",
    advice="Look at what the loss is computed from: is it the model's output?",
    wiring=True,
)
def in_vain(training: Training) -> Iterator[Finding]:
    """The loss does not depend on the output of the model, though backward was called on it.

    When: the graph of the loss shows so at each look, while some parameter is in it (a penalty on weights, say).
    Why it can be wrong: the model is called for something else, and its parts for the loss; then some of them
    are in it.
    """
    looks = training.wiring.looks
    if looks and all("" in one.in_vain for one in looks) and any(one.on_params for one in looks):
        why = "the loss does not depend on the output of the model: what the model computes is for nothing"
        yield found(
            "", looks[0].step, why, line=_line(training), confidence=0.95, operators=looks[0].operators[:10]
        )


@rule(
    "loss_broadcast",
    severity="error",
    advice="Give the output and the target one shape: squeeze or unsqueeze one of them.",
    wiring=True,
)
def loss_broadcast(training: Training) -> Iterator[Finding]:
    """Output and target have shapes that were stretched against each other: all are compared with all.

    When: an operator of the loss makes a result that is larger than both of its operands, (8) against (8, 1)
    say. Where only one of the two is stretched it is a note. Why it can be wrong: pairs are compared on purpose.
    """
    for look, one in _places(training, "broadcast"):
        grows = _grows(one.what)
        yield found(
            one.module,
            look.step,
            f"in the loss, {one.op} stretches shapes against each other: {one.what}",
            severity="error" if grows else "warning" if grows is None else "note",
            confidence=0.95 if grows else 0.6,
            line=one.line,
            shapes=one.what,
        )


@rule(
    "double_softmax",
    advice="Give the loss the raw output: cross entropy has its own softmax. Take the softmax out of the model.",
    wiring=True,
)
def double_softmax(training: Training) -> Iterator[Finding]:
    """A softmax of what is a softmax already: gradients are small and the loss can't come near 0.

    When: an operator of the loss softmaxes what an other one softmaxed. Why it can be wrong: attention over
    probabilities, on purpose.
    """
    for look, one in _places(training, "double_softmax"):
        why = f"{one.op} is given what is a softmax already{f': {one.what}' if one.what else ''}"
        yield found(one.module, look.step, why, line=one.line, confidence=0.95, op=one.op)


def _places(training: Training, name: str) -> Iterator[tuple[Look, Place]]:
    """The places that looks noted, each once."""
    told = set()
    for look in training.wiring.looks:
        for one in getattr(look, name):
            if (one.op, one.module, one.line) not in told:
                told.add((one.op, one.module, one.line))
                yield look, one


def _grows(text: str) -> bool | None:
    """Whether two shapes in a text give one that is larger than both; None where there are no two shapes.

    >>> _grows("(8,) against (8, 1)"), _grows("(8, 3) against (3,)"), _grows("?")
    (True, False, None)
    """
    shapes = [[int(one) for one in re.findall(r"\d+", match)] for match in SHAPE.findall(text)][:2]
    if len(shapes) < 2:
        return None
    length = max(map(len, shapes))
    a, b = ([1] * (length - len(one)) + one for one in shapes)
    together = [max(pair) for pair in zip(a, b, strict=True)]
    return together not in (a, b)


def _line(training: Training) -> str:
    return training.wiring.losses[0].line if training.wiring.losses else ""
