"""Attached: which modules have taps, known without going through any model."""

from __future__ import annotations

import weakref

from torch import nn

from hookline.backends.protocol import Placement


class Attached:
    """One attachment, held by its first tap: found as long as that is there. It keeps no module alive."""

    def __init__(self, placements: list[Placement]) -> None:
        self._modules = [weakref.ref(module) for module in {id(m): m for m, _ in placements}.values()]

    def modules(self) -> list[nn.Module]:
        return [module for held in self._modules if (module := held()) is not None]


attached: weakref.WeakSet[Attached] = weakref.WeakSet()
"""The attachments there are."""


def tapped_modules() -> list[nn.Module]:
    """Every module that has a tap now."""
    found = {id(module): module for one in list(attached) for module in one.modules()}
    return list(found.values())
