"""explain: what the audit of a recording says of each site, found when the recording ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookline.audit import times
from hookline.backends.kept import Kept
from hookline.backends.protocol import Backend
from hookline.hooks.reasons import describe_error, joined, no_gradient, why_silent
from hookline.hooks.select import ModuleTree

if TYPE_CHECKING:
    from hookline.recording.calls import Call, SiteRecord
    from hookline.recording.recorder import Recorder


def explain(
    recorder: Recorder, tree: ModuleTree, backend: Backend, *, stopped: bool, error: BaseException | None
) -> None:
    """Writes into each site of a finished recording what its audit has to say."""
    fired = recorder.recording.names
    if not recorder._all_is_well(len(fired)):
        _explain_sites(recorder, tree, backend, fired, stopped=stopped, error=error)
    sites = recorder.recording._asked
    for name, remark in backend.remarks(tree.modules, sites).items():
        asked = sites.get(name)
        if asked is not None and asked._has_calls:
            asked.why = joined(asked.why, remark)


def _explain_sites(
    recorder: Recorder,
    tree: ModuleTree,
    backend: Backend,
    fired: list[str],
    *,
    stopped: bool,
    error: BaseException | None,
) -> None:
    silent = {site.record.name for site in recorder._sites if not site.record._has_calls}
    not_kept = recorder._store.not_kept
    plain = () if recorder._grads or not_kept else (backend.tensor, Kept)
    for site in recorder._sites:
        record = site.record
        outputs = record._outputs
        if outputs and type(outputs[-1][1]) in plain and not (record._remark or record._repeats):
            continue  # nearly all of them: there is nothing to say
        doubts: list[str] = []
        if record._has_calls:
            why = backend.why_no_numbers(record._latest_output)
            if recorder._grads:
                without, doubts = _of_gradients(record.calls)
                if without:
                    why = joined(no_gradient(without, len(record.calls), recorder._store.backward_ran), why)
        elif stopped:
            why = f"the forward was stopped after {(fired or [''])[-1]!r}, before it was reached"
        elif site.under_way:
            why = f"its forward did not come to an end: {describe_error(error)}"
        elif error is not None:
            why = f"the block was left before it was called: {describe_error(error)}"
        elif site.elsewhere:
            why = f"its {site.elsewhere} calls came from threads or tasks with recordings of their own"
        else:
            why = why_silent(backend, tree, record.name, fired, silent)
        if record._remark or record._repeats or doubts or not_kept:
            why = joined(why, record._remark, *doubts, not_kept.get(record.name), _repeats(record))
        if why is not None:
            record.why = why


def _of_gradients(calls: list[Call]) -> tuple[int, list[str]]:
    """How many calls have no gradient of their output; what a backward found to remark, each sentence once."""
    without, doubts = 0, []
    for call in calls:
        if not call._grads_out:
            without += 1
        if call._doubt is not None and call._doubt not in doubts:
            doubts.append(call._doubt)
    return without, doubts


def _repeats(record: SiteRecord) -> str | None:
    return f"its forward was repeated {times(record._repeats)} in a backward" if record._repeats else None
