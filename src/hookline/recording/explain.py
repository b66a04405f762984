"""explain: what the audit of a recording says of each site, found when the recording ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookline.audit import times
from hookline.backends.protocol import Backend
from hookline.hooks.reasons import describe_error, joined, no_gradient, why_silent
from hookline.hooks.select import ModuleTree

if TYPE_CHECKING:
    from hookline.recording.recorder import Recorder


def explain(
    recorder: Recorder, tree: ModuleTree, backend: Backend, *, stopped: bool, error: BaseException | None
) -> None:
    """Writes into each site of a finished recording what its audit has to say."""
    fired = recorder.recording.names
    last = fired[-1] if fired else ""
    silent = {site.record.name for site in recorder._sites if not site.record.calls}
    not_kept = recorder._store.not_kept
    for site in recorder._sites:
        record = site.record
        if calls := record.calls:
            without = [call for call in calls if not call._grads_out] if recorder._grads else []
            missing = no_gradient(len(without), len(calls), recorder._store.backward_ran) if without else None
            record.why = joined(missing, backend.why_no_numbers(calls[-1]._output))
        elif stopped:
            record.why = f"the forward was stopped after {last!r}, before it was reached"
        elif site.under_way:
            record.why = f"its forward did not come to an end: {describe_error(error)}"
        elif error is not None:
            record.why = f"the block was left before it was called: {describe_error(error)}"
        elif site.elsewhere:
            record.why = f"its {site.elsewhere} calls came from threads or tasks with recordings of their own"
        else:
            record.why = why_silent(backend, tree, record.name, fired, silent)
        repeats = f"its forward was repeated {times(record._repeats)} in a backward" if record._repeats else None
        doubts = dict.fromkeys(call._doubt for call in record.calls)
        record.why = joined(record.why, record._remark, *doubts, not_kept.get(record.name), repeats)
    for name, remark in backend.remarks(tree.modules).items():
        site_record = recorder.recording._asked.get(name)
        if site_record is not None and site_record.calls:
            site_record.why = joined(site_record.why, remark)
