"""Parameters that an optimizer holds and that no gradient ever comes to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Training
from hookline.wiring import Parameter

ENOUGH = 5
"""A layer whose turn has not come yet has no gradient: at so many steps none came."""
CONTAINERS = ("Sequential", "ModuleList", "ModuleDict")
WHOLE = (
    "Linear",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "Bilinear",
    "LayerNorm",
    "GroupNorm",
    "BatchNorm1d",
    "BatchNorm2d",
)
"""Layers that use all of their parameters at each call."""
LONG = 10
CLEARED = 3
"""At so many steps no parameter had any gradient."""


def without_gradient(training: Training) -> list[str]:
    """Trainable parameters of an optimizer that had no gradient at any step that was looked at."""
    wiring = training.wiring
    frozen = {one.site for one in wiring.changes if one.what == "trainable"}
    fed = {name for name, one in wiring.params.items() if one.grads}
    return [
        name
        for name, one in wiring.params.items()
        if one.trainable and one.groups and not one.grads and one.steps >= (1 if one.cut else ENOUGH)
        if name not in frozen and not fed & {*one.shares_with}
    ]


_VAIN = {
    False: ": the loss does not depend on what comes out of it",
    True: ": the layer computes with something else in its place",
}


def _is_bypassed(training: Training, name: str) -> bool:
    """Whether a layer of a usual kind uses its other parameters and not this one."""
    wiring = training.wiring
    owner = wiring.params[name].module
    module = wiring.modules.get(owner)
    if module is None or module.type not in WHOLE:
        return False
    return any(one.grads for other, one in wiring.params.items() if other != name and one.module == owner)


def _is_cut(one: Parameter) -> bool:
    """Whether the graph between it and the loss is cut; an output that nobody uses is another matter."""
    return bool(one.cut) and (bool(one.cut_line) or "has no graph" in one.cut)


def _is_of_user(training: Training, site: str) -> bool:
    """Whether code of the user's calls the module; a library's may compute what not everybody needs (a pooler)."""
    name = training.owner(site)
    while name:
        name = name.rpartition(".")[0]
        above = training.wiring.modules.get(name)
        if above is not None and above.type not in CONTAINERS:
            return above.is_own
    return False


def _is_called(training: Training, one: Parameter) -> bool:
    module = training.wiring.modules.get(one.module)
    return module is not None and module.calls > 0


@rule(
    "no_gradient",
    severity="error",
    advice="Look for .detach(), .item(), .numpy(), torch.no_grad(), argmax or an in-place copy between this layer "
    "and the loss; with checkpointing give use_reentrant=False.",
    wiring=True,
)
def no_gradient(training: Training) -> Iterator[Finding]:
    """Parameters are trainable, in an optimizer, their module ran, and no gradient ever came: the graph is cut.

    When: no gradient at five steps, or at one where the place of the cut is known. It is an error where the place
    is known; a warning where nothing that ran before it gets a gradient either, or where a layer's bias gets one
    and its weight does not, or where the output is used for nothing. That is a note where a library's module
    computes it (an unused pooler, say). A gradient that is zero all over at each of ten steps is none, either: a
    warning, save for one of several parts that take turns (experts). Why it can be wrong: the layer's turn comes
    later.
    """
    yield from _zero_throughout(training)
    wiring = training.wiring
    every = without_gradient(training)
    missing = [name for name in every if _is_called(training, wiring.params[name])]
    if not missing:
        return
    fed = [training.place(name) for name, one in wiring.params.items() if one.grads]
    first_fed = min(fed, default=None)
    trainable = [name for name, one in wiring.params.items() if one.trainable and one.groups]
    for site, names in training.together(missing, among=trainable).items():
        cut = next((wiring.params[name] for name in names if _is_cut(wiring.params[name])), None)
        is_cut = cut is not None or first_fed is None or max(map(training.place, names)) < first_fed
        where = f": the graph is cut ({cut.cut})" if cut is not None else ""
        bypassed = not is_cut and all(_is_bypassed(training, name) for name in names)
        vain = "" if is_cut else _VAIN[bypassed]
        forgotten = bypassed or _is_of_user(training, site)
        yield found(
            site,
            min((first for name in names if (first := _first_call(training, name)) is not None), default=0),
            f"no gradient ever comes to {_these(names)}{where}{vain}",
            severity="error" if cut is not None else "warning" if is_cut or forgotten else "note",
            confidence=1.0 if cut is not None else 0.8 if is_cut or bypassed else 0.6,
            line=cut.cut_line if cut is not None else "",
            advice=""
            if is_cut or bypassed
            else "If its output is meant to be used, use it; if not, leave it out of the optimizer.",
            params=names[:50],
            steps=max(wiring.params[name].steps for name in names),
        )


def _zero_throughout(training: Training) -> Iterator[Finding]:
    """Modules all of whose parameters have gradients, which are zero: of round, sign, or terms that cancel out."""
    params = training.wiring.params
    held = {name: one for name, one in params.items() if one.trainable and one.groups and one.grads}
    zero = [name for name, one in held.items() if one.grads >= LONG and one.zero_grads == one.grads]
    if not zero or len(zero) == len(held):
        return
    fed = {re.sub(r"\d+", "#", name) for name in held if name not in zero}
    zero = [name for name in zero if re.sub(r"\d+", "#", name) not in fed]
    whole = {
        site: names
        for site, names in training.together(zero, among=held).items()
        if site in training.modules and any(len(params[name].shape) >= 2 for name in names)
    }
    for site, names in whole.items():
        steps = min(params[name].grads for name in names)
        why = f"the gradient of {_these(names)} is zero at each of {steps} steps"
        advice = (
            "Look for round, sign, floor or a comparison between this layer and the loss, for a factor of 0, and "
            "for terms that cancel out: a ratio of a policy to itself, a value minus itself."
        )
        first = min(params[name].first_grad or 0 for name in names)
        yield found(site, first, why, severity="warning", confidence=0.8, advice=advice, params=names[:50])


@rule(
    "gradients_wiped",
    severity="error",
    advice="Call zero_grad before backward, never between backward and step.",
    wiring=True,
)
def gradients_wiped(training: Training) -> Iterator[Finding]:
    """No parameter has a gradient when the optimizer steps, though the loss depends on them: somebody cleared
    them.

    When: at three steps, none of the parameters that the optimizer holds has a gradient other than zero, and the
    graph shows that the loss depends on parameters. Why it can be wrong: the gradient is zero by itself, at a
    loss of 0.
    """
    wiring = training.wiring
    held = {name: one for name, one in wiring.params.items() if one.groups and one.trainable}
    if not held or max(one.steps for one in held.values()) < CLEARED:
        return
    if any(one.grads > one.zero_grads for one in held.values()) or any(one.cut for one in held.values()):
        return
    if not _reaches_outputs(training, held):
        return
    if any(look.on_params for look in wiring.looks) or any(one.in_loss for one in held.values()):
        first = min((one.first_step for one in wiring.losses), default=0)
        why = (
            "no parameter has a gradient when the optimizer steps, though the loss depends on them: "
            "they are cleared"
        )
        yield found("", first, why, confidence=0.9, line=wiring.losses[0].line if wiring.losses else "")


def _reaches_outputs(training: Training, held: dict[str, Parameter]) -> bool:
    """Whether gradients came to what modules with these parameters put out; also where nobody noted them."""
    owners = {one.module for one in held.values()}
    noted = [one for one in training.curves("grad_output") if one.site in owners]
    return not noted or any(one.stats["absmax"].any() for one in noted)


@rule(
    "zero_gradient",
    advice="Look at hooks on it, at what it is multiplied by, and at what comes into its layer.",
    wiring=True,
)
def zero_gradient(training: Training) -> Iterator[Finding]:
    """The gradient of a weight is zero at every step, while that of the bias beside it is not.

    When: ten steps, and a gradient other than zero in the same module. Why it can be wrong: what comes into the
    layer is zero so far.
    """
    wiring = training.wiring
    for name, one in wiring.params.items():
        beside = [other for other in wiring.params.values() if other.module == one.module and other is not one]
        if not one.trainable or not one.groups or one.grads < LONG or one.zero_grads < one.grads:
            continue
        if len(one.shape) >= 2 and any(other.grads > other.zero_grads for other in beside):
            why = f"its gradient is zero at each of {one.grads} steps, while that of its layer's bias is not"
            yield found(
                name, one.first_grad or 0, why, confidence=0.8, rows=[(name, "param_grad")], steps=one.grads
            )


@rule(
    "optimizer_without_gradients",
    severity="error",
    advice="Look at whose parameters it was given: are they those of the model that the loss is of?",
    wiring=True,
)
def optimizer_without_gradients(training: Training) -> Iterator[Finding]:
    """An optimizer steps on and on, and nothing that it holds has a gradient: not ever, or not any more.

    When: five steps, and no gradient in any of its trainable parameters since it began, or since the last one.
    Where the place of the cut is known, another rule tells. Why it can be wrong: its turn comes later, and it
    steps for nothing until then.
    """
    wiring = training.wiring
    for number, one in enumerate(wiring.optimizers):
        held = {
            name: param
            for name, param in wiring.params.items()
            if param.trainable and any(group.partition("/")[0] == str(number) for group in param.groups)
        }
        began, ended = one.first_step or 0, one.last_step or 0
        last = max((param.last_grad for param in held.values() if param.last_grad is not None), default=began - 1)
        idle = int(((training.steps > last) & (training.steps <= ended)).sum()) if last >= began else one.steps
        if not held or idle < ENOUGH or any(param.cut for param in held.values()):
            continue
        ran = any(module.calls or not module.counted for module in wiring.modules.values())
        which = "what is trained is not what it holds" if ran else "the model that it holds is never called"
        yield found(
            next(iter(training.together(held, among=wiring.params))),
            max(began, last + 1),
            f"{one.type} stepped at {idle} steps at which none of its {len(held)} parameters "
            f"had a gradient: {which}",
            confidence=0.9,
            params=list(held)[:50],
            optimizer=number,
        )


@rule("never_called", severity="note", advice="Call it in forward, or take it out of the model.", wiring=True)
def never_called(training: Training) -> Iterator[Finding]:
    """A module's parameters are in an optimizer, and the module was never called nor its parameters used
    otherwise.

    When: no call and no gradient at five steps. Why it can be wrong: it is a spare part (the pooler of BERT), or
    its turn comes later; so it is a note.
    """
    wiring = training.wiring
    names = [
        name
        for name in without_gradient(training)
        if (module := wiring.modules.get(wiring.params[name].module)) is not None and not module.calls
    ]
    for site, some in training.together(names, among=wiring.params).items():
        yield found(
            site, 0, f"{_these(some)} never ran, though an optimizer holds {_them(some)}", params=some[:50]
        )


@rule(
    "updated_uncalled",
    advice="Look at which modules forward calls: a copy may be trained in the place of what runs, or weight decay "
    "shrinks a part that is not used.",
    wiring=False,
)
def updated_uncalled(training: Training) -> Iterator[Finding]:
    """Parameters move at each step, and their module is never called, nor does a gradient come.

    When: five steps without a call or a gradient, and updates that are not zero. Why it can be wrong: weight decay
    moves a spare part; that harms nobody until the part is used.
    """
    wiring = training.wiring
    idle = {
        name
        for name in without_gradient(training)
        if (module := wiring.modules.get(wiring.params[name].module)) is not None and not module.calls
    }
    moving = {one.site: one for one in training.curves("update") if one.site in idle and one.stats["absmax"].any()}
    for site, names in training.together(moving, among=wiring.params).items():
        one = moving[names[0]]
        first = one.steps[one.stats["absmax"] > 0][0]
        yield found(
            site,
            first,
            f"steps change {_these(names)}, and nothing ever calls {_them(names)}",
            confidence=0.8,
            rows=[(name, "update") for name in names[:8]],
            params=names[:50],
        )


def _first_call(training: Training, name: str) -> int | None:
    module = training.wiring.modules.get(training.wiring.params[name].module)
    return None if module is None else module.first_call


def _these(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} parameters"


def _them(names: list[str]) -> str:
    return "it" if len(names) == 1 else "them"
