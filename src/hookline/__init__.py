"""Hook, line and sinker for neural networks.

**Hooks** attach to any layer or gradient of a model. Every public name is here; each is imported
when it is first used, and a framework only when one of its models is handed over.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "errors": (
        "HookError",
        "HooklineError",
        "InvalidArgument",
        "MissingExtra",
        "NoSuchSite",
        "NotRecorded",
        "RecordingTooLarge",
        "RunError",
        "Unsupported",
        "WrongReplacement",
    ),
    "hooks.backward": ("HookBackward",),
    "hooks.edit": ("edit", "skip"),
    "hooks.handles": ("Handle",),
    "hooks.record": ("record",),
    "hooks.recording": ("Recording",),
    "hooks.register": (
        "installed",
        "register_backward_hook",
        "register_backward_pre_hook",
        "register_forward_hook",
        "register_forward_pre_hook",
    ),
    "hooks.saving": ("load_recording",),
    "hooks.select": ("where",),
    "hooks.state": (
        "register_load_state_dict_post_hook",
        "register_load_state_dict_pre_hook",
        "register_state_dict_post_hook",
        "register_state_dict_pre_hook",
    ),
    "hooks.stored": ("Hook", "Hooks", "hook_output", "hook_outputs"),
    "integrations.activations": ("ActivationStats",),
    "integrations.hookcallback": ("HookCallback",),
    "sites": ("Site",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = ["__version__", *sorted(_MODULE_OF)]  # a list of names, written once above


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"hookline has no {name!r}; it has {', '.join(sorted(_MODULE_OF))}.")
    value = getattr(importlib.import_module(f"hookline.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_MODULE_OF]


if TYPE_CHECKING:
    from hookline.errors import HookError as HookError
    from hookline.errors import HooklineError as HooklineError
    from hookline.errors import InvalidArgument as InvalidArgument
    from hookline.errors import MissingExtra as MissingExtra
    from hookline.errors import NoSuchSite as NoSuchSite
    from hookline.errors import NotRecorded as NotRecorded
    from hookline.errors import RecordingTooLarge as RecordingTooLarge
    from hookline.errors import RunError as RunError
    from hookline.errors import Unsupported as Unsupported
    from hookline.errors import WrongReplacement as WrongReplacement
    from hookline.hooks.backward import HookBackward as HookBackward
    from hookline.hooks.edit import edit as edit
    from hookline.hooks.edit import skip as skip
    from hookline.hooks.handles import Handle as Handle
    from hookline.hooks.record import record as record
    from hookline.hooks.recording import Recording as Recording
    from hookline.hooks.register import installed as installed
    from hookline.hooks.register import register_backward_hook as register_backward_hook
    from hookline.hooks.register import register_backward_pre_hook as register_backward_pre_hook
    from hookline.hooks.register import register_forward_hook as register_forward_hook
    from hookline.hooks.register import register_forward_pre_hook as register_forward_pre_hook
    from hookline.hooks.saving import load_recording as load_recording
    from hookline.hooks.select import where as where
    from hookline.hooks.state import register_load_state_dict_post_hook as register_load_state_dict_post_hook
    from hookline.hooks.state import register_load_state_dict_pre_hook as register_load_state_dict_pre_hook
    from hookline.hooks.state import register_state_dict_post_hook as register_state_dict_post_hook
    from hookline.hooks.state import register_state_dict_pre_hook as register_state_dict_pre_hook
    from hookline.hooks.stored import Hook as Hook
    from hookline.hooks.stored import Hooks as Hooks
    from hookline.hooks.stored import hook_output as hook_output
    from hookline.hooks.stored import hook_outputs as hook_outputs
    from hookline.integrations.activations import ActivationStats as ActivationStats
    from hookline.integrations.hookcallback import HookCallback as HookCallback
    from hookline.sites import Site as Site
