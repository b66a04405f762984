"""Parameters that ran and that no optimizer trains, and optimizers that hold what no module has."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Training

MINORITY = 0.5
"""Below this share of the trainable parameters, what was left out was forgotten."""
WAS = re.compile(r"was '([^']+)'")


def left_out(training: Training) -> list[str]:
    """Parameters that want a gradient, get one, and are in no optimizer."""
    wiring = training.wiring
    if not any(one.steps for one in wiring.optimizers):
        return []
    frozen = {one.site for one in wiring.changes if one.what == "trainable" and one.to == "False"}
    held = {name for name, one in wiring.params.items() if one.groups}
    # An optimizer that is gone at the end, as the function that made it is left, held them until then.
    held |= {one.site for one in wiring.changes if one.what == "optimizer" and one.step >= training.last_step}
    return [
        name
        for name, one in wiring.params.items()
        if one.trainable and name not in frozen and name not in held and not held & {*one.shares_with}
        # A teacher or an average of the weights runs without gradients: nobody wants to train it so.
        if one.grads or one.in_loss
    ]


@rule(
    "not_in_optimizer",
    severity="error",
    advice="Give these parameters to the optimizer (make it after the model is complete; keep modules in "
    "nn.ModuleList, not in a list), or call requires_grad_(False) on them if they are to stay as they are.",
    wiring=True,
)
def not_in_optimizer(training: Training) -> Iterator[Finding]:
    """Parameters ran and got gradients, and no optimizer holds them: they stay as they are.

    When: an optimizer steps, the parameter is trainable, the loss depends on it, and it is in no group. A module
    that is in a Python list, and so no part of the model, is always an error. Why it can be wrong: only a head
    is to be trained, and the rest was not frozen by requires_grad; then nearly everything but the last layers is
    left out, which is a note.
    """
    wiring = training.wiring
    missing = left_out(training)
    if not missing:
        return
    trainable = [name for name, one in wiring.params.items() if one.trainable]
    inside: list[str] = []
    outside: dict[str, list[str]] = {}
    for name in missing:
        module = wiring.modules.get(wiring.params[name].module)
        if module is not None and module.outside:
            outside.setdefault(module.outside.partition("[")[0], []).append(name)
        else:
            inside.append(name)
    groups = [(site, names, "") for site, names in training.together(inside, among=trainable).items()]
    groups += [(site, names, site) for site, names in outside.items()]
    for site, names, where in groups:
        step = min((_since(training, name) for name in names), default=0)
        them, what = ("them", f"{len(names)} parameters") if len(names) > 1 else ("it", names[0])
        why = (
            f"{what} ran and got gradients, and no optimizer holds {them}: training leaves {them} as at the start"
        )
        severity, confidence = ("error", 1.0) if where else _weighed(training, names, trainable, missing)
        yield found(
            site,
            step,
            f"{why}. {where} is a list or the like, which is no part of the model" if where else why,
            severity=severity,
            confidence=confidence,
            rows=[(name, "param") for name in names[:8]],
            params=names[:50],
        )


def _since(training: Training, name: str) -> int:
    """The step from which on a parameter is in no optimizer: since it was replaced or taken out, or its first."""
    wiring = training.wiring
    changed = [one.step for one in wiring.changes if one.site == name and one.what in ("replaced", "optimizer")]
    return max(changed, default=wiring.params[name].first_grad or 0)


def _weighed(training: Training, names: list[str], trainable: list[str], missing: list[str]) -> tuple[str, float]:
    """How bad it is, and how sure: who trains a head alone leaves out nearly all that runs before it."""
    params = training.wiring.params
    held = [name for name in trainable if params[name].groups]
    if not held:
        return "error", 0.9
    comes_first = max(map(training.place, names)) < min(map(training.place, held))
    if not comes_first or len(missing) <= MINORITY * len(trainable):
        return "error", 1.0
    return ("note", 0.5) if len({params[name].module for name in held}) <= 1 else ("warning", 0.6)


@rule(
    "optimizer_holds_strangers",
    severity="error",
    advice="Make the optimizer after the last change of the model (.to(), new heads, resized embeddings, "
    "quantised or "
    "wrapped layers), or give it the new parameters with add_param_group.",
    wiring=True,
)
def optimizer_holds_strangers(training: Training) -> Iterator[Finding]:
    """An optimizer holds tensors that no module has: they were replaced after it was made.

    When: it holds a tensor that was a parameter of the model before, or holds tensors of nobody while parameters
    of the model that got gradients are in no optimizer. Why it can be wrong: the tensors are of another model or
    of the loss; then nothing of this model is left out, and there is no finding.
    """
    wiring = training.wiring
    missing = left_out(training)
    for number, one in enumerate(wiring.optimizers):
        replaced = [match[1] for text in one.strangers if (match := WAS.search(text))]
        new = [name for name in missing if name in replaced] or missing
        if not one.strangers or not (replaced or new):
            continue
        names = new if new else replaced
        among = [name for name, other in wiring.params.items() if other.trainable]
        site = next(iter(training.together(names, among=[*among, *names])))
        changed = [change.step for change in wiring.changes if change.what == "replaced" and change.site in names]
        held = f"{len(one.strangers)} tensor{'s' if len(one.strangers) > 1 else ''}"
        yield found(
            site,
            min(changed, default=0),
            f"{one.type} holds {held} that the model no longer has: parameters of {site or 'the model'} "
            "were replaced "
            "after the optimizer was made, so it trains the old ones",
            params=names[:50],
            strangers=one.strangers[:10],
            optimizer=number,
        )


@rule("two_optimizers", advice="Let each parameter be in one optimizer only.", wiring=True)
def two_optimizers(training: Training) -> Iterator[Finding]:
    """One parameter is in two optimizers that step: each moves it without knowing of the other.

    When: it is in groups of two optimizers. Why it can be wrong: two losses share a trunk on purpose.
    """
    wiring = training.wiring
    several = {
        name: {group.partition("/")[0] for group in one.groups}
        for name, one in wiring.params.items()
        if one.groups
    }
    twice = [name for name, optimizers in several.items() if len(optimizers) > 1]
    for site, names in training.together(twice, among=several).items():
        kinds = [
            wiring.optimizers[int(one)].type
            for one in sorted(several[names[0]])
            if int(one) < len(wiring.optimizers)
        ]
        yield found(
            site,
            0,
            f"{len(names)} parameter{'s are' if len(names) > 1 else ' is'} in {len(several[names[0]])} optimizers "
            f"({', '.join(kinds)}), and each of them moves {'them' if len(names) > 1 else 'it'}",
            confidence=0.8,
            params=names[:50],
        )
