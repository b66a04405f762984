"""Engine: something around each run of autograd's engine, while somebody wants it.

Two kinds of users: those who note in an Undoing that they have enough, and those whose interest lives as long as a
graph does. Torch has one engine for the process, and no hook on it; for that time it is one of a subclass.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from hookline.backends.changing import changing
from hookline.backends.torch.compat import ENGINE, calls_the_model
from hookline.backends.undoing import Undoing, tidied


class EngineRun:
    """A run of autograd's engine: from which tensors, with which gradients, for which inputs (none: for all)."""

    def __init__(self, roots: Any, seeds: Any, create_graph: bool, inputs: Any) -> None:
        self.roots, self.seeds, self.create_graph, self.inputs = roots, seeds, create_graph, inputs
        self.result: Any = None


_around_backward: list[Callable[[], Any]] = []
_observers: list[Callable[[EngineRun], Any]] = []
_plain_engine: Any = getattr(*ENGINE)


class _Engine(type(_plain_engine)):  # type: ignore[misc]
    """Torch's engine, which is one for the process, with something around each of its runs."""

    def run_backward(
        self, roots: Any, seeds: Any, keep: Any, create: Any, inputs: Any = (), *rest: Any, **options: Any
    ) -> Any:
        run = EngineRun(tuple(roots), tuple(seeds), bool(create), tuple(inputs))
        _run_within(run, super().run_backward, roots, seeds, keep, create, inputs, *rest, **options)
        return run.result


@tidied
@calls_the_model
def _run_within(undoing: Undoing, run: EngineRun, engine: Callable[..., Any], *args: Any, **options: Any) -> None:
    for context in list(_around_backward):
        undoing.enter_context(context())
    for observer in list(_observers):
        undoing.enter_context(observer(run))
    run.result = engine(*args, **options)


def around_backward(undoing: Undoing, context: Callable[[], Any]) -> None:
    """Has every backward run within `context()`, in all threads.

    What a backward computes belongs to the dispatch modes that are on when it starts; nothing that hooks
    into its nodes comes early enough. A public hook on the start of a backward would replace this.
    """
    undoing.noted(_set_around, context, False)
    _set_around(context, True)


@changing
def _set_around(context: Callable[[], Any], wanted: bool) -> None:
    _around_backward[:] = [other for other in _around_backward if other != context] + [context] * wanted
    _set_engine()


class Observed:
    """Alive as long as somebody wants backwards to be observed."""

    __slots__ = ("__weakref__",)


def _nobody() -> None:
    return None


_observed: Callable[[], Observed | None] = _nobody
_are_observed: Callable[[], Observed | None] = _nobody  # the same, once the engine is in place


def observe_backwards(observer: Callable[[EngineRun], Any]) -> Observed:
    """As long as somebody has what is returned, every backward runs within `observer(run)`, in all threads.

    The last one lets go of it wherever a graph dies, and what is done there can be cut short without a word. So
    it is done twice, by lines of the standard library.
    """
    return _are_observed() or _observe_backwards(observer)


@changing
def _observe_backwards(observer: Callable[[EngineRun], Any]) -> Observed:
    global _observed, _are_observed
    wanted = _observed()
    if wanted is None:
        wanted = Observed()
        for _ in range(2):
            weakref.finalize(wanted, _set_engine).atexit = False
        _observed = weakref.ref(wanted)
    _observers[:] = [observer]
    _set_engine()
    _are_observed = weakref.ref(wanted)
    return wanted


@changing
def _set_engine() -> None:
    found = getattr(*ENGINE)
    if _observed() is None:
        _observers.clear()
    if _around_backward or _observers:
        if found is _plain_engine:
            setattr(*ENGINE, _Engine())
    elif type(found) is _Engine:
        setattr(*ENGINE, _plain_engine)
