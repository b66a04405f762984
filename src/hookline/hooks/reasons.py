"""Reasons: why a site stayed silent, or why no gradient came, found when a recording ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookline.backends.protocol import Backend
from hookline.hooks.calls import SiteRecord
from hookline.hooks.select import Tree

if TYPE_CHECKING:
    from hookline.hooks.record import Recorder


def explain(
    recorder: Recorder, tree: Tree, backend: Backend, *, stopped: bool, error: BaseException | None
) -> None:
    """Writes into each site of a finished recording what its audit has to say."""
    fired = recorder.recording.names
    last = fired[-1] if fired else ""
    for site in recorder.sites:
        record = site.record
        if record.calls:
            record.why = _no_gradient(record, recorder) if recorder.grads else None
            _add(record, backend.why_no_numbers(record.calls[-1]._output))
        elif stopped:
            record.why = f"the forward was stopped after {last!r}, before it was reached"
        elif site.under_way:
            record.why = f"its forward did not come to an end: {_told(error)}"
        elif error is not None:
            record.why = f"the block was left before it was called: {_told(error)}"
        elif site.elsewhere:
            record.why = f"its {site.elsewhere} calls came from threads or tasks with recordings of their own"
        else:
            record.why = why_silent(backend, tree, record.name, fired)
        _add(record, record.remark)
        _add(record, recorder._store.not_kept.get(record.name))
    for name, remark in backend.remarks(tree.modules).items():
        site_record = recorder.recording._asked.get(name)
        if site_record is not None and site_record.calls:
            _add(site_record, remark)


def _add(record: SiteRecord, remark: str | None) -> None:
    if remark is not None:
        record.why = remark if record.why is None else f"{record.why}; {remark}"


def why_silent(backend: Backend, tree: Tree, name: str, fired: list[str]) -> str:
    """Why the module of that name was not called, while those in `fired` were."""
    told = backend.why_silent(tree.modules, name) if name in tree.modules else None
    return told or (_not_called(name, fired) if fired else backend.not_called)


def _told(error: BaseException | None) -> str:
    return "the call is still under way" if error is None else f"{type(error).__name__}: {error}"


def _not_called(name: str, fired: list[str]) -> str:
    below = f"{name}." if name else ""
    if any(other.startswith(below) for other in fired if other != name):
        return "its parts ran but the module itself was not called: somebody called its .forward(...) directly"
    parent = name.rpartition(".")[0]
    if parent in fired:
        return f"it was never called, though {parent or 'the model'!r} ran"
    return "it was never called in this block"


def _no_gradient(record: SiteRecord, recorder: Recorder) -> str | None:
    calls = [call for call in record.calls if not call._grads_out]
    if not calls:
        return None
    if not recorder._store.backward_ran:
        return "no gradients: no backward ran in this block"
    some = "" if len(calls) == len(record.calls) else f" in {len(calls)} of {len(record.calls)} calls"
    return (
        f"no gradient of its output{some}: it needs none, was made under no_grad, or is not on the way "
        "to what backward was called on"
    )
