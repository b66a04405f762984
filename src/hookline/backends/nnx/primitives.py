"""Primitives: the call of a module whose operators are told, as a function of arrays.

JAX turns code into a list of primitives (a jaxpr). Where somebody listens, a model's call is turned into one, with
the module of each primitive in its name stack, and gone through primitive by primitive, on real values or as part
of the program that is being traced. Its backward is a second such list. Loops and branches (scan, while, cond) are
one primitive each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from flax import nnx

from hookline.backends.nnx.compat import tracing
from hookline.backends.nnx.interpreting import Interpreter, differentiable
from hookline.backends.nnx.leaves import Array, array_of
from hookline.backends.nnx.module_taps import ModuleTaps
from hookline.backends.nouns import Module, Tensor, Tree
from hookline.errors import Unsupported
from hookline.trees import map_leaves


class _Thread(threading.local):
    """Whether a call is being turned into primitives on this thread, and how often it has called each module."""

    active = False
    calls: dict[int, int] | None = None


_thread = _Thread()


def listened(post: ModuleTaps, module: Module, own: Callable[..., Any], args: Tree, kwargs: Any) -> Any:
    """own(*args, **kwargs), the module's call, with its primitives told."""
    if _thread.active:
        assert _thread.calls is not None
        call = _thread.calls.get(post.number, 0)
        _thread.calls[post.number] = call + 1
        with jax.named_scope(f"@{post.number}#{call}@"):
            return own(*args, **kwargs)
    return _Passage(post, module, args, kwargs).result(own.func)  # type: ignore[attr-defined]


class _Passage:
    """One call of a module as a function of arrays: those of its state and of its arguments."""

    def __init__(self, post: ModuleTaps, module: Module, args: Tree, kwargs: Any) -> None:
        self._post, self._module = post, module
        self._graph, state = nnx.split(module)
        held, self._state = jax.tree.flatten(state)
        self._given: list[Any] = list(held)
        self._held = len(held)
        self._template = map_leaves(self._take, (args, kwargs), Array)
        self._watchers = [watcher for watcher in post.op_watchers if tracing() or watcher.listener.is_mine()]
        self._output: Any = None
        self._changed: list[int] = []
        self._floats: list[bool] = []

    def _take(self, leaf: Tensor) -> _Place:
        self._given.append(array_of(leaf))
        return _Place(len(self._given) - 1)

    def result(self, call: Callable[..., Any]) -> Any:
        """What the call returns; the module's state is what it left."""
        run = partial(self._run, call)
        outs = differentiable(run, Interpreter(self._watchers))(self._given)
        if self._changed:
            leaves = self._given[: self._held]
            for number, value in zip(self._changed, outs, strict=False):
                leaves[number] = value
            nnx.update(self._module, jax.tree.unflatten(self._state, leaves))
        return map_leaves(lambda place: outs[place.index], self._output, _Place)

    def _run(self, call: Callable[..., Any], arrays: list[Any]) -> list[Any]:
        """The changed state and the outputs, as arrays; called with traced ones."""
        module = nnx.merge(self._graph, jax.tree.unflatten(self._state, arrays[: self._held]))
        args, kwargs = map_leaves(lambda place: arrays[place.index], self._template, _Place)
        before, _thread.active, _thread.calls = (_thread.active, _thread.calls), True, {}
        try:
            # The class's own call: taps around it were passed already.
            with jax.named_scope(f"@{self._post.number}#0@"):
                output = call(module, *args, **kwargs)
        finally:
            _thread.active, _thread.calls = before
        held, structure = jax.tree.flatten(nnx.split(module)[1])
        if structure != self._state:
            raise Unsupported(
                backend="nnx",
                feature="an op hook on a model that adds Variables while it runs",
                why="its state has another structure afterwards",
                instead="call the model once before, so that the Variables are there",
            )
        self._changed = [n for n, (a, b) in enumerate(zip(held, arrays, strict=False)) if a is not b]
        outs = [held[number] for number in self._changed]

        def put(leaf: Tensor) -> _Place:
            outs.append(array_of(leaf))
            return _Place(len(outs) - 1)

        self._output = map_leaves(put, output, Array)
        return outs


class _Place:
    def __init__(self, index: int) -> None:
        self.index = index
