"""Ops: listeners to the operators of a model, which in JAX are primitives."""

from __future__ import annotations

from typing import Any

from flax import nnx

from hookline.backends.nnx.events import settled
from hookline.backends.nnx.interpreting import Watcher
from hookline.backends.nnx.taps import refresh
from hookline.backends.operators import OpListener
from hookline.backends.tap import Label
from hookline.backends.undoing import Undoing


def hook_operators(
    undoing: Undoing, model: nnx.Module, places: dict[str, Any], listener: OpListener, label: Label
) -> None:
    """Has `listener` told of each primitive that runs in these modules or their parts."""
    settled()
    watcher = Watcher(model, places, listener, label)

    def remove() -> None:
        if not any(watcher in post.op_watchers for post in watcher.posts):
            return
        try:
            settled()
        finally:
            for post in watcher.posts:
                post.op_watchers = [other for other in post.op_watchers if other is not watcher]
                refresh(post)

    undoing.noted(remove)
    for post in watcher.posts:
        post.op_watchers.append(watcher)
        refresh(post)
