"""Audit of a watch: for every site and parameter, how often it was measured, or why it was not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from hookline.audit import Audit, AuditEntry, times
from hookline.backends.protocol import Backend
from hookline.hooks.reasons import describe_error, joined, no_gradient, why_silent
from hookline.hooks.select import ModuleTree
from hookline.watching.operators import WatchedOps
from hookline.watching.taps import SiteWatcher
from hookline.watching.weights import Weights


@dataclass(frozen=True)
class Seen:
    """What a watch has to account for."""

    backend: Backend
    tree: ModuleTree
    watchers: Sequence[SiteWatcher]
    weights: Weights | None
    ops: WatchedOps | None
    recorded: bool
    """Whether any step was one to be recorded."""
    error: BaseException | None = None
    """What the block was left by."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Sites that a budget had measured at some recorded steps only, and at how many."""


def audited(seen: Seen) -> Audit:
    """An entry for each site that was asked for, each parameter, and each operator that ran."""
    entries = [AuditEntry(one.target.name, one.fired, why) for one, why in _sites(seen)]
    if seen.weights is not None:
        entries += _parameters(seen.weights)
    if seen.ops is not None:
        entries += [AuditEntry(site, count, seen.ops.broken.get(site)) for site, count in seen.ops.counts.items()]
    return Audit(entries)


def _sites(seen: Seen) -> list[tuple[SiteWatcher, str | None]]:
    fired = [one.target.name for one in seen.watchers if one.fired]
    silent = {one.target.name for one in seen.watchers if not one.fired}
    any_gradient = any(one.heard for one in seen.watchers)
    changed = seen.backend.remarks(seen.tree.modules)
    found: list[tuple[SiteWatcher, str | None]] = []
    for one in seen.watchers:
        name = one.target.name
        if not one.fired:
            by_code = partial(why_silent, seen.backend, seen.tree, name, fired, silent)
            why = _why_never(seen, one, by_code)
            found.append((one, joined(why, one.broken, seen.left_out.get(name))))
            continue
        without = one.fired if one.watch.grads and not one.heard else 0
        if not (without or one.broken or one.remark or one.repeats or name in changed):
            found.append((one, None))  # as nearly always
            continue
        repeats = f"its forward was repeated {times(one.repeats)} in a backward" if one.repeats else None
        missing = no_gradient(without, one.fired, any_gradient)
        found.append((one, joined(missing, one.broken, one.remark, repeats, changed.get(name))))
    return found


def _why_never(seen: Seen, one: SiteWatcher, by_code: Callable[[], str]) -> str | None:
    if not seen.recorded:
        return "no step was recorded: `every` chose none"
    if one.broken:
        return None  # that is the reason, and is told anyway
    if one.under_way:
        return f"its forward did not come to an end: {describe_error(seen.error)}"
    if seen.error is not None:
        return f"the block was left before it was called: {describe_error(seen.error)}"
    if one.elsewhere:
        return f"its {one.elsewhere} calls came from threads or tasks with blocks of their own"
    return by_code()


def _parameters(weights: Weights) -> list[AuditEntry]:
    """Parameters are measured at each recorded step of an optimizer that holds them."""
    entries = [] if weights.stopped is None else [AuditEntry("parameters", 0, weights.stopped)]
    for name in weights.names():
        count, why = weights.counts.get(name, 0), weights.broken.get(name)
        if why is None and not count:
            nothing = "no optimizer has stepped on a recorded step"
            why = "no optimizer that stepped holds it" if weights.stepped else nothing
        elif why is None and name not in weights.with_gradient:
            why = "it had no gradient"
        entries.append(AuditEntry(name, count, why))
    return entries
