"""State: hooks on a module's state dict, when it is saved and when it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from hookline.backends.protocol import FunctionTap, Label
from hookline.backends.undoing import Undoing, undoable

REGISTER = {
    ("save", "pre"): nn.Module.register_state_dict_pre_hook,
    ("save", "post"): nn.Module.register_state_dict_post_hook,
    ("load", "pre"): nn.Module.register_load_state_dict_pre_hook,
    ("load", "post"): nn.Module.register_load_state_dict_post_hook,
}


@undoable
def place_state_hook(
    undoing: Undoing, module: nn.Module, when: tuple[str, str], fn: Callable[..., Any], label: Label
) -> None:
    """Registers `fn` as torch's own hook of that kind; returns what removes it."""
    undoing.callback(REGISTER[when](module, FunctionTap(fn, label)).remove)  # type: ignore[no-untyped-call]
