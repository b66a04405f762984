"""Reasons: why a site stayed silent, or why no gradient came, found when a recording ends."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from hookline.backends.protocol import Backend
from hookline.hooks.audit import times
from hookline.hooks.select import Tree

if TYPE_CHECKING:
    from hookline.hooks.record import Recorder


def explain(
    recorder: Recorder, tree: Tree, backend: Backend, *, stopped: bool, error: BaseException | None
) -> None:
    """Writes into each site of a finished recording what its audit has to say."""
    fired = recorder.recording.names
    last = fired[-1] if fired else ""
    silent = {site.record.name for site in recorder.sites if not site.record.calls}
    not_kept = recorder._store.not_kept
    for site in recorder.sites:
        record = site.record
        if calls := record.calls:
            without = [call for call in calls if not call._grads_out] if recorder.grads else []
            missing = no_gradient(len(without), len(calls), recorder._store.backward_ran) if without else None
            record.why = joined(missing, backend.why_no_numbers(calls[-1]._output))
        elif stopped:
            record.why = f"the forward was stopped after {last!r}, before it was reached"
        elif site.under_way:
            record.why = f"its forward did not come to an end: {told(error)}"
        elif error is not None:
            record.why = f"the block was left before it was called: {told(error)}"
        elif site.elsewhere:
            record.why = f"its {site.elsewhere} calls came from threads or tasks with recordings of their own"
        else:
            record.why = why_silent(backend, tree, record.name, fired, silent)
        repeats = f"its forward was repeated {times(record.repeats)} in a backward" if record.repeats else None
        doubts = dict.fromkeys(call.doubt for call in record.calls)
        record.why = joined(record.why, record.remark, *doubts, not_kept.get(record.name), repeats)
    for name, remark in backend.remarks(tree.modules).items():
        site_record = recorder.recording._asked.get(name)
        if site_record is not None and site_record.calls:
            site_record.why = joined(site_record.why, remark)


def joined(*remarks: str | None) -> str | None:
    """All that there is to say; None where that is nothing."""
    return "; ".join(filter(None, remarks)) or None


def why_silent(backend: Backend, tree: Tree, name: str, fired: list[str], silent: Collection[str]) -> str:
    """Why the module of that name was not called, while those in `fired` were and those in `silent` were not."""
    by_code = backend.why_silent(tree.modules, name, silent) if name in tree.modules else None
    return by_code or (_not_called(name, fired) if fired else backend.not_called)


def told(error: BaseException | None) -> str:
    return "the call is still under way" if error is None else f"{type(error).__name__}: {error}"


def _not_called(name: str, fired: list[str]) -> str:
    below = f"{name}." if name else ""
    if any(other.startswith(below) for other in fired if other != name):
        return (
            "its parts ran but the module itself was not called: its .forward(...) or another method of it was, "
            "or its parts were by somebody else; hooks can't tell which"
        )
    parent = name.rpartition(".")[0]
    if parent in fired:
        return f"it was never called, though {parent or 'the model'!r} ran"
    return "it was never called in this block"


def no_gradient(without: int, calls: int, backward_ran: bool) -> str | None:
    """Why so many of a site's calls have no gradient of their output; None where all have one."""
    if not without:
        return None
    if not backward_ran:
        return "no gradients: no backward ran in this block"
    some = "" if without == calls else f" in {without} of {calls} calls"
    return (
        f"no gradient of its output{some}: it needs none, was made under no_grad, or is not on the way "
        "to what backward was called on"
    )
