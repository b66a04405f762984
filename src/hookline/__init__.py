"""Hook, line and sinker for neural networks.

**Hooks** attach to any layer or gradient of a model, **lines** reduce what flows past to statistics.
Every public name is here; each is imported when it is first used, and a framework only when one of
its models is handed over.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from hookline.version import __version__ as __version__

_HOME = {
    "audit": ("Audit", "AuditEntry"),
    "backends.capabilities": ("Framework", "capabilities"),
    "backends.tap": ("Label",),
    "diagnosis.finding": ("Finding",),
    "diagnosis.registry": ("found", "rule"),
    "diagnosis.training": ("Scalar", "Training"),
    "diagnosis.verdict": ("Verdict", "verdict"),
    "diffs.compare": ("diff",),
    "diffs.found": ("Cause", "Measure", "SiteDiff"),
    "diffs.mapping": ("Map", "read_map", "write_map"),
    "diffs.proposing": ("propose_map",),
    "diffs.result": ("Diff",),
    "diffs.weights": ("load_weights", "save_weights"),
    "errors": (
        "FindingRaised",
        "ForwardError",
        "HookError",
        "HooklineError",
        "InvalidArgument",
        "MissingExtra",
        "NoSuchSite",
        "NotRecorded",
        "RecordingTooLarge",
        "RunError",
        "TrainingStopped",
        "Unsupported",
        "UntestedVersion",
        "WrongReplacement",
    ),
    "fastai.activations": ("ActivationStats",),
    "fastai.callback": ("HookCallback",),
    "fastai.hooks": ("Hook", "Hooks", "hook_output", "hook_outputs"),
    "fastai.summary": (
        "dummy_eval",
        "has_params",
        "layer_info",
        "model_sizes",
        "module_summary",
        "num_features_model",
        "total_params",
    ),
    "hooks.backward": ("HookBackward",),
    "hooks.edit": ("Edits", "edit", "skip"),
    "hooks.handles": ("Handle",),
    "hooks.ops": ("OpEvent", "register_op_hook"),
    "hooks.parameters": ("register_post_accumulate_grad_hook",),
    "hooks.register": (
        "installed",
        "register_backward_hook",
        "register_backward_pre_hook",
        "register_forward_hook",
        "register_forward_pre_hook",
    ),
    "hooks.select": ("Where", "where"),
    "hooks.sites": ("Sites", "sites"),
    "hooks.state": (
        "register_load_state_dict_post_hook",
        "register_load_state_dict_pre_hook",
        "register_state_dict_post_hook",
        "register_state_dict_pre_hook",
    ),
    "launching.inside": ("Watching", "watching"),
    "launching.launch": ("Script",),
    "page.report": ("report",),
    "page.serve": ("serve",),
    "probing.probe": ("probe",),
    "probing.probed": ("Probed",),
    "recording.calls": ("Call", "SiteRecord"),
    "recording.loading": ("load_recording",),
    "recording.record": ("record",),
    "recording.recorder": ("Recorder",),
    "recording.recording": ("Recording",),
    "runfiles.store": ("RunStore",),
    "runs.diagnosing": ("diagnose", "health"),
    "runs.recordings": ("Recordings",),
    "runs.run": ("Run", "open_run"),
    "site": ("Site",),
    "watching.block": ("Watch",),
    "watching.watch": ("watch",),
    "wiring": ("Wiring",),
    "summaries.memory": ("TrainingMemory",),
    "summaries.source": ("Source", "source"),
    "summaries.summary": ("Summary", "summary"),
    "summaries.trace": ("Trace", "trace"),
}
_FOLDERS = ("examples", "exported", "lines", "plots", "schedule", "sinks", "testing")
_OLD = {
    "Server": ("page.serve", "what hookline.serve gives, without a public name"),
    "mark": ("exported", "hookline.exported.mark"),
    "on_mark": ("exported", "hookline.exported.on_mark"),
    "with_statistics": ("exported", "hookline.exported.with_statistics"),
}
"""Names that work for one version more: where each is, and what it is called now."""
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = ["__version__", *sorted(_MODULE_OF)]  # a list of names, written once above


def __getattr__(name: str) -> Any:
    if name in _FOLDERS:
        return importlib.import_module(f"hookline.{name}")
    if name in _OLD:
        module, new = _OLD[name]
        message = f"hookline.{name} goes with the next version: it is {new} now."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(f"hookline.{module}"), name)
    if name not in _MODULE_OF:
        raise AttributeError(f"hookline has no {name!r}; it has {', '.join(sorted(_MODULE_OF))}.")
    value = getattr(importlib.import_module(f"hookline.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_MODULE_OF, *_FOLDERS]


if TYPE_CHECKING:
    from hookline import examples as examples
    from hookline import exported as exported
    from hookline import lines as lines
    from hookline import plots as plots
    from hookline import schedule as schedule
    from hookline import sinks as sinks
    from hookline import testing as testing
    from hookline.audit import Audit as Audit
    from hookline.audit import AuditEntry as AuditEntry
    from hookline.backends.capabilities import Framework as Framework
    from hookline.backends.capabilities import capabilities as capabilities
    from hookline.backends.tap import Label as Label
    from hookline.diagnosis.finding import Finding as Finding
    from hookline.diagnosis.registry import found as found
    from hookline.diagnosis.registry import rule as rule
    from hookline.diagnosis.training import Scalar as Scalar
    from hookline.diagnosis.training import Training as Training
    from hookline.diagnosis.verdict import Verdict as Verdict
    from hookline.diagnosis.verdict import verdict as verdict
    from hookline.diffs.compare import diff as diff
    from hookline.diffs.found import Cause as Cause
    from hookline.diffs.found import Measure as Measure
    from hookline.diffs.found import SiteDiff as SiteDiff
    from hookline.diffs.mapping import Map as Map
    from hookline.diffs.mapping import read_map as read_map
    from hookline.diffs.mapping import write_map as write_map
    from hookline.diffs.proposing import propose_map as propose_map
    from hookline.diffs.result import Diff as Diff
    from hookline.diffs.weights import load_weights as load_weights
    from hookline.diffs.weights import save_weights as save_weights
    from hookline.errors import FindingRaised as FindingRaised
    from hookline.errors import ForwardError as ForwardError
    from hookline.errors import HookError as HookError
    from hookline.errors import HooklineError as HooklineError
    from hookline.errors import InvalidArgument as InvalidArgument
    from hookline.errors import MissingExtra as MissingExtra
    from hookline.errors import NoSuchSite as NoSuchSite
    from hookline.errors import NotRecorded as NotRecorded
    from hookline.errors import RecordingTooLarge as RecordingTooLarge
    from hookline.errors import RunError as RunError
    from hookline.errors import TrainingStopped as TrainingStopped
    from hookline.errors import Unsupported as Unsupported
    from hookline.errors import UntestedVersion as UntestedVersion
    from hookline.errors import WrongReplacement as WrongReplacement
    from hookline.fastai.activations import ActivationStats as ActivationStats
    from hookline.fastai.callback import HookCallback as HookCallback
    from hookline.fastai.hooks import Hook as Hook
    from hookline.fastai.hooks import Hooks as Hooks
    from hookline.fastai.hooks import hook_output as hook_output
    from hookline.fastai.hooks import hook_outputs as hook_outputs
    from hookline.fastai.summary import dummy_eval as dummy_eval
    from hookline.fastai.summary import has_params as has_params
    from hookline.fastai.summary import layer_info as layer_info
    from hookline.fastai.summary import model_sizes as model_sizes
    from hookline.fastai.summary import module_summary as module_summary
    from hookline.fastai.summary import num_features_model as num_features_model
    from hookline.fastai.summary import total_params as total_params
    from hookline.hooks.backward import HookBackward as HookBackward
    from hookline.hooks.edit import Edits as Edits
    from hookline.hooks.edit import edit as edit
    from hookline.hooks.edit import skip as skip
    from hookline.hooks.handles import Handle as Handle
    from hookline.hooks.ops import OpEvent as OpEvent
    from hookline.hooks.ops import register_op_hook as register_op_hook
    from hookline.hooks.parameters import register_post_accumulate_grad_hook as register_post_accumulate_grad_hook
    from hookline.hooks.register import installed as installed
    from hookline.hooks.register import register_backward_hook as register_backward_hook
    from hookline.hooks.register import register_backward_pre_hook as register_backward_pre_hook
    from hookline.hooks.register import register_forward_hook as register_forward_hook
    from hookline.hooks.register import register_forward_pre_hook as register_forward_pre_hook
    from hookline.hooks.select import Where as Where
    from hookline.hooks.select import where as where
    from hookline.hooks.sites import Sites as Sites
    from hookline.hooks.sites import sites as sites
    from hookline.hooks.state import register_load_state_dict_post_hook as register_load_state_dict_post_hook
    from hookline.hooks.state import register_load_state_dict_pre_hook as register_load_state_dict_pre_hook
    from hookline.hooks.state import register_state_dict_post_hook as register_state_dict_post_hook
    from hookline.hooks.state import register_state_dict_pre_hook as register_state_dict_pre_hook
    from hookline.launching.inside import Watching as Watching
    from hookline.launching.inside import watching as watching
    from hookline.launching.launch import Script as Script
    from hookline.page.report import report as report
    from hookline.page.serve import serve as serve
    from hookline.probing.probe import probe as probe
    from hookline.probing.probed import Probed as Probed
    from hookline.recording.calls import Call as Call
    from hookline.recording.calls import SiteRecord as SiteRecord
    from hookline.recording.loading import load_recording as load_recording
    from hookline.recording.record import record as record
    from hookline.recording.recorder import Recorder as Recorder
    from hookline.recording.recording import Recording as Recording
    from hookline.runfiles.store import RunStore as RunStore
    from hookline.runs.diagnosing import diagnose as diagnose
    from hookline.runs.diagnosing import health as health
    from hookline.runs.recordings import Recordings as Recordings
    from hookline.runs.run import Run as Run
    from hookline.runs.run import open_run as open_run
    from hookline.site import Site as Site
    from hookline.summaries.memory import TrainingMemory as TrainingMemory
    from hookline.summaries.source import Source as Source
    from hookline.summaries.source import source as source
    from hookline.summaries.summary import Summary as Summary
    from hookline.summaries.summary import summary as summary
    from hookline.summaries.trace import Trace as Trace
    from hookline.summaries.trace import trace as trace
    from hookline.watching.block import Watch as Watch
    from hookline.watching.watch import watch as watch
    from hookline.wiring import Wiring as Wiring
