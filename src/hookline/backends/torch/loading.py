"""Loading: told when somebody begins to go through a DataLoader."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from torch.utils.data import DataLoader

from hookline.backends.patching import Patch
from hookline.backends.undoing import Undoing

Begun = Callable[[], None]


def hear_loading(undoing: Undoing, told: Begun) -> None:
    """Calls `told()` when a DataLoader with several batches is begun; it must not raise."""
    _loaders.use(undoing, told)


def _telling(begin: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(begin)
    def telling(loader: DataLoader[Any]) -> Any:
        if _loaders.users and has_several(loader):
            for told in _loaders.users:
                told()
        return begin(loader)

    return telling


def has_several(loader: DataLoader[Any]) -> bool:
    """Whether it has more than one batch; no for a stream, of which nobody knows."""
    try:
        return len(loader) > 1
    except (TypeError, NotImplementedError):
        return False


_loaders = Patch[Begun]([(DataLoader, "__iter__")], _telling)
