"""Inductor: its pass over finished graphs, in which op hooks are put while somebody listens."""

from __future__ import annotations

from hookline.backends.patching import Shared
from hookline.backends.torch import compat
from hookline.backends.torch.compiled.inserting import insert
from hookline.backends.undoing import Undoing

_installed = Undoing()


def install(undoing: Undoing) -> None:
    """Has graphs that are compiled from now on looked at."""
    _passes.use(undoing, object())


_passes = Shared[object](lambda: compat.inductor_pass(_installed, insert), _installed.close)
