"""State: hooks on a module's state dict, when it is saved and when it is loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from hookline.backends.protocol import FunctionTap, Label
from hookline.backends.torch.compat import ON_STATE, note_hook
from hookline.backends.undoing import Undoing

REGISTER = {
    ("save", "pre"): nn.Module.register_state_dict_pre_hook,
    ("save", "post"): nn.Module.register_state_dict_post_hook,
    ("load", "pre"): nn.Module.register_load_state_dict_pre_hook,
    ("load", "post"): nn.Module.register_load_state_dict_post_hook,
}


def place_state_hook(
    undoing: Undoing, module: nn.Module, when: tuple[str, str], fn: Callable[..., Any], label: Label
) -> None:
    """Registers `fn` as torch's own hook of that kind."""
    tap = FunctionTap(fn, label)
    note_hook(undoing, module, ON_STATE[when], tap)
    REGISTER[when](module, tap)  # type: ignore[no-untyped-call]
