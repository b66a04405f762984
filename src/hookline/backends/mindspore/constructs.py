"""Constructs: a cell's construct replaced for a while; and objects that refuse to be compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindspore import nn

from hookline.backends.capabilities import capabilities
from hookline.backends.mindspore import compat
from hookline.backends.mindspore.failing import clean_after_failures
from hookline.backends.replaced_forward import ReplacedForward
from hookline.backends.tap import Label
from hookline.backends.undoing import Undoing
from hookline.errors import Unsupported


def refused(site: str) -> Unsupported:
    """What is raised where a hook on this site would be compiled."""
    return capabilities()["mindspore"].unsupported("compiled", f"a hook on {site!r}, which is being compiled,")


class ReplacedConstruct(ReplacedForward):
    """A construct that can't be compiled: it does in Python what it was placed for."""

    def __init__(self, module: nn.Cell, fn: Callable[..., Any], label: Label) -> None:
        super().__init__(module, "construct", fn, label)


def _refuse(self: ReplacedConstruct) -> Any:
    raise refused(self.tap.label.site)


setattr(ReplacedConstruct, compat.PARSED, property(_refuse))


def replace_construct(undoing: Undoing, module: nn.Cell, fn: Callable[..., Any], label: Label) -> None:
    """Has `fn(original_construct, *args, **kwargs)` run in place of the construct."""
    clean_after_failures(undoing)
    compat.forget_compiled(undoing)
    construct = ReplacedConstruct(module, fn, label)
    undoing.noted(construct.remove)
    construct.place()
