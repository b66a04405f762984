"""Parts that are frozen from the start, and that nobody ever trained."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Training
from hookline.wiring import Parameter

MUCH = 0.3
"""Of all numbers of the model: less that is frozen is a note."""


@rule(
    "frozen_fresh",
    advice="Look at what sets requires_grad: a name that fits more than was meant, a condition the wrong way "
    "round, a module that is another's and no copy of it. Or are weights to be loaded first?",
    wiring=True,
)
def frozen_fresh(training: Training) -> Iterator[Finding]:
    """A part of the model is frozen from the start and has the random weights that it was made with.

    When: all of its matrices are as torch draws them, none wants a gradient at any time, and no part that is
    trained has the same shapes: that one is the target or teacher of the other. It is a note where it is less than
    three tenths of the model, or where what is trained lies inside of it (adapters). Why it can be wrong: random
    features are kept on purpose.
    """
    wiring = training.wiring
    changed = {one.site for one in wiring.changes if one.what in ("trainable", "replaced")}
    frozen = {name: one for name, one in wiring.params.items() if not one.trainable and name not in changed}
    trained = {name: one for name, one in wiring.params.items() if one.trainable and one.grads}
    if not frozen or not trained:
        return
    sites = training.together(frozen, among=wiring.params)
    fresh = {site: names for site, names in sites.items() if _is_fresh([frozen[name] for name in names])}
    fresh = {site: names for site, names in fresh.items() if not _has_twin(names, frozen, trained)}
    fresh = {site: names for site, names in fresh.items() if _ran(training, names)}
    if not fresh:
        return
    every = [name for names in fresh.values() for name in names]
    share = _size(frozen[name] for name in every) / _size(wiring.params.values())
    site = max(fresh, key=lambda one: _size(frozen[name] for name in fresh[one]))
    shared = {other.partition(".")[0] for name in every for other in frozen[name].shares_with}
    also = (
        f"; it is the same module as {', '.join(sorted(shared - {site}))}, and no copy" if shared - {site} else ""
    )
    inside = any(training.owner(name).startswith(f"{one}.") for one in fresh for name in trained)
    yield found(
        site,
        0,
        f"{len(every)} parameters, {share:.0%} of the model, are frozen and have the random weights that they "
        f"were made with{also}",
        severity="warning" if share >= MUCH and not inside else "note",
        confidence=0.7,
        params=every[:50],
        sites=list(fresh)[:20],
    )


def _is_fresh(params: list[Parameter]) -> bool:
    told = [one.fresh for one in params if one.fresh is not None]
    return bool(told) and all(told)


def _has_twin(names: list[str], frozen: dict[str, Parameter], trained: dict[str, Parameter]) -> bool:
    """Whether each has a trained one of the same name at its end and the same shape."""
    known = {(name.rpartition(".")[2], *one.shape) for name, one in trained.items()}
    return all((name.rpartition(".")[2], *frozen[name].shape) in known for name in names)


def _ran(training: Training, names: list[str]) -> bool:
    modules = (training.wiring.modules.get(training.wiring.params[name].module) for name in names)
    return any(module is not None and module.calls > 0 for module in modules)


def _size(params: object) -> int:
    return sum(prod(one.shape) for one in params)  # type: ignore[attr-defined]
