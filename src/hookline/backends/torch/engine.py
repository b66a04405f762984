"""Engine: something around each run of autograd's engine, while somebody wants it.

Three kinds of users: those who want to be told, those who want to be around it, and those whose interest lives as
long as a graph does. The first two note in an Undoing that they have enough. Torch has one engine for the process,
and no hook on it; for that time it is one of a subclass.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from hookline.backends.changing import changing
from hookline.backends.torch.compat import ENGINE, calls_the_model, never_compiled
from hookline.backends.undoing import Undoing, tidied


class EngineRun:
    """A run of autograd's engine: from which tensors, with which gradients, for which inputs (none: for all).

    It `accumulates` gradients in the leaves, or returns them.
    """

    def __init__(self, roots: Any, seeds: Any, create_graph: bool, inputs: Any, accumulates: bool) -> None:
        self.roots, self.seeds, self.create_graph, self.inputs = roots, seeds, create_graph, inputs
        self.accumulates = accumulates
        self.result: Any = None


_around_backward: list[Callable[[], Any]] = []
_listeners: list[tuple[Callable[[EngineRun], None], Callable[[], bool]]] = []
"""With each, whether it wants to be told now."""
_observers: list[Callable[[EngineRun], Any]] = []
_plain_engine: Any = getattr(*ENGINE)


class _Engine(type(_plain_engine)):  # type: ignore[misc]
    """Torch's engine, which is one for the process, with something around each of its runs."""

    def run_backward(
        self, roots: Any, seeds: Any, keep: Any, create: Any, inputs: Any = (), *rest: Any, **options: Any
    ) -> Any:
        if not _around_backward and not _observers and not _wanting():  # as at most steps of most watches
            return super().run_backward(roots, seeds, keep, create, inputs, *rest, **options)
        accumulates = bool(options.get("accumulate_grad", rest[1] if len(rest) > 1 else False))
        run = EngineRun(tuple(roots), tuple(seeds), bool(create), tuple(inputs), accumulates)
        _run_within(run, super().run_backward, roots, seeds, keep, create, inputs, *rest, **options)
        return run.result


never_compiled(_Engine.run_backward)  # by code that is compiled, and calls backward where its graph ends


def _wanting() -> list[Callable[[EngineRun], None]]:
    return [listener for listener, wanted in _listeners if wanted()]


@tidied
@calls_the_model
def _run_within(undoing: Undoing, run: EngineRun, engine: Callable[..., Any], *args: Any, **options: Any) -> None:
    for listener in _wanting():
        listener(run)
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


def _always() -> bool:
    return True


def hear_backwards(
    undoing: Undoing, listener: Callable[[EngineRun], None], wanted: Callable[[], bool] = _always
) -> None:
    """Has `listener(run)` called before every backward while `wanted()`, in all threads; neither must raise."""
    undoing.noted(_set_listener, listener, None)
    _set_listener(listener, wanted)


@changing
def _set_listener(listener: Callable[[EngineRun], None], wanted: Callable[[], bool] | None) -> None:
    others = [one for one in _listeners if one[0] is not listener]
    _listeners[:] = others if wanted is None else [*others, (listener, wanted)]
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
    if _around_backward or _observers or _listeners:
        if found is _plain_engine:
            setattr(*ENGINE, _Engine())
    elif type(found) is _Engine:
        setattr(*ENGINE, _plain_engine)
