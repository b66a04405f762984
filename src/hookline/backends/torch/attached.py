"""Attached: which modules have taps, known without going through any model."""

from __future__ import annotations

import weakref

from torch import nn


class Attached:
    """One attachment, held by its first tap: found as long as that is there. It keeps no module alive."""

    def __init__(self) -> None:
        self.held: list[list[weakref.ref[nn.Module]]] = []
        """In one of these lists, a module for each tap that is placed."""

    def modules(self) -> list[nn.Module]:
        """Each module once, as long as it is alive."""
        every = (module for some in self.held for held in some if (module := held()) is not None)
        return list({id(module): module for module in every}.values())


attached: weakref.WeakSet[Attached] = weakref.WeakSet()
"""The attachments there are."""


def tapped_modules() -> list[nn.Module]:
    """Every module that has a tap now."""
    found = {id(module): module for one in list(attached) for module in one.modules()}
    return list(found.values())
