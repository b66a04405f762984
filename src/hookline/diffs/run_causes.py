"""Run causes: why two trainings part, as far as their runs tell: other data, settings, weights, mode, chance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hookline.diagnosis.training import Scalar
from hookline.diffs.found import Cause, SiteDiff
from hookline.diffs.run_reading import StoredRun

SETTINGS = ("lr", "weight_decay", "loss_scale")
"""Scalars that somebody sets; of several groups they have a number behind them: lr/1."""
NOT_COMPARED = frozenset(
    (*SETTINGS, "loss", "grad_norm", "grad_norm_clipped", "batch", "batch_rms", "backwards", "accumulated")
) | {"stale_grads", "loaders_begun", "share"}
"""Scalars of hookline's own: they are places, causes, or follow from these; `share` is a matter of time."""
SHOWN = 3


@dataclass(frozen=True)
class PartedScalar:
    """A number of the training that is another one in the two runs, from a step on."""

    name: str
    step: int
    a: float
    b: float


def parted(a: Mapping[str, Scalar], b: Mapping[str, Scalar]) -> dict[str, PartedScalar]:
    """The numbers that both trainings have and that part, with the first step at which they do."""
    found = {}
    for name in a.keys() & b.keys():
        steps, mine, others = np.intersect1d(a[name].steps, b[name].steps, return_indices=True)
        one, other = a[name].values[mine], b[name].values[others]
        apart = np.flatnonzero((one != other) & ~(np.isnan(one) & np.isnan(other)))
        if len(apart):
            at = int(apart[0])
            found[name] = PartedScalar(name, int(steps[at]), float(one[at]), float(other[at]))
    return found


def causes(
    a: StoredRun,
    b: StoredRun,
    first: SiteDiff,
    scalars: Mapping[str, PartedScalar],
    weights: Sequence[SiteDiff],
    modes: Mapping[str, tuple[str, str]],
) -> list[Cause]:
    """Why they part at `first`, the likeliest first; `weights` are those that differ before any step was made."""
    before = {name: one for name, one in scalars.items() if one.step <= first.step}
    found = [
        *_weights(weights),
        *_inputs(before, first),
        *_modes(modes),
        *_settings(a, b),
        *_set_scalars(before),
        *_chance(first),
    ]
    return found or [*_by_kind(first)]


def _weights(weights: Sequence[SiteDiff]) -> Iterator[Cause]:
    if weights:
        names = [one.site for one in weights]
        sentence = f"the weights are others before the first step: {_some(names)}."
        yield Cause("weights", names[0], sentence, {"weights": names, "step": weights[0].step})


def _inputs(before: Mapping[str, PartedScalar], first: SiteDiff) -> Iterator[Cause]:
    if (batch := before.get("batch")) is not None:
        when = "at that step" if batch.step == first.step else f"at step {batch.step:,}"
        sentence = f"the model gets another batch {when}: the data are others, or come in another order."
        yield Cause("inputs", "", sentence, {"step": batch.step})


def _modes(modes: Mapping[str, tuple[str, str]]) -> Iterator[Cause]:
    if modes:
        site, (one, other) = next(iter(modes.items()))
        sentence = f"the model runs in {one} mode in A and in {other} mode in B."
        yield Cause("mode", site, sentence, {"a": one, "b": other})


def _settings(a: StoredRun, b: StoredRun) -> Iterator[Cause]:
    """What was set otherwise: the config, optimizers, numbers that modules were made with."""
    for where, site, one, other in _pairs_of_settings(a, b):
        for name in sorted(one.keys() | other.keys()):
            mine, others = one.get(name), other.get(name)
            if mine != others and not (mine != mine and others != others):
                told = [
                    f"{value!r}" if name in side else "not there" for side, value in ((one, mine), (other, others))
                ]
                sentence = f"{where}{name} is {told[0]} in A and {told[1]} in B."
                yield Cause("setting", site, sentence, {"name": f"{where}{name}", "a": mine, "b": others})


def _pairs_of_settings(
    a: StoredRun, b: StoredRun
) -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    yield "config: ", "", _flat(a.meta.get("config", {})), _flat(b.meta.get("config", {}))
    for number, (one, other) in enumerate(zip(a.wiring.optimizers, b.wiring.optimizers, strict=False)):
        which = "the optimizer's " if number == 0 else f"optimizer {number}'s "
        yield which, "", {"type": one.type}, {"type": other.type}
        for mine, others in zip(one.groups, other.groups, strict=False):
            yield which, "", mine, others
    for name, module in a.wiring.modules.items():
        if (same := b.wiring.modules.get(name)) is not None and module.type == same.type:
            yield f"{name or 'the model'}'s ", name, module.settings, same.settings


def _set_scalars(before: Mapping[str, PartedScalar]) -> Iterator[Cause]:
    for name, one in sorted(before.items()):
        if name.partition("/")[0] in SETTINGS:
            sentence = f"{name} is {one.a:.6g} in A and {one.b:.6g} in B, from step {one.step:,} on."
            yield Cause("setting", "", sentence, {"name": name, "step": one.step, "a": one.a, "b": one.b})


def _chance(first: SiteDiff) -> Iterator[Cause]:
    if first.kind == "output" and "dropout" in first.type.lower():
        sentence = (
            f"{first.site} is a {first.type}, which draws random numbers, and these are others: set the same "
            "seed, and draw as many random numbers before it."
        )
        yield Cause("random numbers", first.site, sentence)


def _by_kind(first: SiteDiff) -> Iterator[Cause]:
    """What the place itself tells: all that comes before it in its step is the same."""
    step = f"step {first.step:,}" if first.metric == "bits" else f"step {first.step:,}, as far as statistics tell,"
    if first.site == "loss" and first.kind == "scalar":
        yield Cause(
            "loss", "", f"all outputs of {step} are the same, the loss is not: other targets or another loss."
        )
    elif first.kind.startswith("grad") or first.kind == "param_grad":
        sentence = (
            f"all outputs of {step} are the same, gradients are not: the loss, or a backward that adds up in "
            "another order, as non-deterministic operators do."
        )
        yield Cause("backward", first.site, sentence)
    elif first.kind in ("update", "moment", "moment_sq"):
        sentence = f"all gradients of {step} are the same, what the optimizer makes of them is not."
        yield Cause("optimizer", first.site, sentence)
    elif first.kind == "param":
        sentence = (
            f"the weights are others at {step}, and no step of an optimizer made that: something else writes them."
        )
        yield Cause("weights", first.site, sentence)


def _flat(config: Any, above: str = "") -> dict[str, Any]:
    """Settings by their dotted names."""
    if not isinstance(config, Mapping):
        return {above: config}
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= _flat(value, f"{above}.{name}" if above else str(name))
    return found


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return ", ".join(listed[:SHOWN]) + more
