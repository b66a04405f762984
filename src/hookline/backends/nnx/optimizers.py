"""Optimizers: the steps of `nnx.Optimizer`, heard while somebody watches a model.

`Optimizer.update` gets the model and its gradients. Outside of transforms both are real. In a compiled train step
the statistics of parameters, gradients and updates are part of the program; listeners are told when it has run.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import nnx

from hookline.backends.gate import Gate
from hookline.backends.nnx.compat import tracing
from hookline.backends.nnx.events import numbers, program, send, settled
from hookline.backends.nnx.leaves import NotSent, array_of, is_float
from hookline.backends.nnx.module_taps import Spec, post_in
from hookline.backends.nnx.modules import own_parameters, walk
from hookline.backends.nnx.packing import Packing
from hookline.backends.nouns import Model, Tensor
from hookline.backends.patching import Patch
from hookline.backends.tap import StatsSpec
from hookline.backends.undoing import Undoing


class Listener(NamedTuple):
    """Somebody who wants to know of steps of the optimizers of one model."""

    model: Callable[[], Any]
    before: Callable[..., None]
    after: Callable[[set[int]], None]


def hear_steps(
    undoing: Undoing,
    model: nnx.Module,
    before: Callable[..., None],
    after: Callable[[set[int]], None],
    gate: Gate | None = None,
) -> None:
    """Calls `before(held, gradients)` and `after(held)` around each update of the model's parameters."""
    mine = Listener(weakref.ref(model), before, after)
    _steps.use(undoing, mine)
    undoing.noted(_settle_for, mine)  # done first: what was sent before the end is told


def _settle_for(listener: Listener) -> None:
    if any(one is listener for one in _steps.users):
        settled()  # not under the lock: what is waited for may need it


class Weight(NamedTuple):
    """A parameter that an optimizer holds: of the model that is watched, of the one at hand, and its gradient."""

    watched: Any
    at_hand: Any
    grad: Any


def _told(update: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(update)
    def told(optimizer: Any, model: Model, grads: Any, /, **kwargs: Any) -> Any:
        weights = _weights(model, grads)
        run = partial(update, optimizer, model, grads, **kwargs)
        return _traced(run, model, weights) if tracing() else _run(run, weights)

    return told


_steps: Patch[Listener] = Patch([(nnx.Optimizer, "update")], _told)


def _run(update: Callable[[], Any], weights: list[Weight]) -> Any:
    """A step outside of transforms."""
    settled()  # what the forward and the backward of this step sent comes first
    held = {id(weight.watched) for weight in weights}
    gradients = {id(weight.watched): weight.grad for weight in weights if weight.grad is not None}
    listeners = list(_concerned(held))
    for listener in listeners:
        listener.before(held, gradients)
    result = update()
    for listener in listeners:
        listener.after(held)
    return result


def _traced(update: Callable[[], Any], model: Model, weights: list[Weight]) -> Any:
    """A step in code that is being traced."""
    views: frozenset[StatsSpec] = frozenset()
    for _, module in walk(model):
        views |= type(module).__dict__.get("__hookline_spec__", Spec()).steps
    if not views:
        return update()
    before = [array_of(weight.at_hand) for weight in weights]
    result = update()
    after = [array_of(weight.at_hand) for weight in weights]
    moved = [_lost(*three) for three in zip(before, after, (weight.grad for weight in weights), strict=True)]
    packing = Packing(
        (before, [weight.grad for weight in weights], [b - a for a, b in zip(before, after, strict=True)]), views
    )
    tell = partial(_tell, [weight.watched for weight in weights], packing, views)
    send(next(numbers), program(), tell, [*packing.taken(), *moved], packing.reducers, light=True)
    return result


def _lost(before: Any, after: Any, grad: Tensor) -> Any:
    """The share of elements with a gradient that a step left as they were; -1 in full precision."""
    if grad is None or after.dtype.itemsize > 2:
        return jnp.float32(-1)
    moved = grad != 0
    return (moved & (before == after)).sum() / jnp.maximum(moved.sum(), 1)


def _tell(watched: list[Any], packing: Packing, views: frozenset[StatsSpec], values: list[Any]) -> None:
    """Tells listeners of a step that compiled code has made."""
    seen = [packing.seen(view, values) for view in views]
    before, grads, updates = (_merged([one[part] for one in seen]) for part in range(3))
    lost = [None if share < 0 else float(share) for share in values[packing.count :]]
    facts = zip(watched, before, updates, lost, strict=True)
    told = ReplayedStep({id(variable): (old, change, share) for variable, old, change, share in facts})
    held = set(map(id, watched))
    gradients = {id(one): grad for one, grad in zip(watched, grads, strict=True) if grad is not None}
    for listener in _concerned(held):
        _thread.step = told
        try:
            listener.before(held, gradients)
            listener.after(held)
        finally:
            _thread.step = None


def _merged(views: list[list[Any]]) -> list[Any]:
    """Stand-ins with the statistics of all views."""
    merged = []
    for same in zip(*views, strict=True):
        first = same[0]
        for other in same[1:]:
            if first is not None:
                first.rows |= other.rows
                first.numbers |= other.numbers
        merged.append(first)
    return merged


class ReplayedStep:
    """A step of compiled code, of which listeners are told now: what it did to the Variables that are watched.

    Three methods of the backend answer for it: `value_of`, `update_of` and `lost`.
    """

    def __init__(self, facts: dict[int, tuple[NotSent, NotSent, float | None]]) -> None:
        self._facts = facts

    def value(self, variable: Any) -> NotSent:
        return self._facts[id(variable)][0]

    def update(self, variable: Any) -> NotSent:
        return self._facts[id(variable)][1]

    def lost(self, variable: Any) -> float | None:
        return self._facts[id(variable)][2]


class _Thread(threading.local):
    step: ReplayedStep | None = None


_thread = _Thread()


def replayed_step() -> ReplayedStep | None:
    """The step that listeners are told of in this thread; None where a step happens now."""
    return _thread.step


def _weights(model: Model, grads: Any) -> list[Weight]:
    """The parameters of the model that is updated; traced copies with the Variables that they were copied from."""
    named = {".".join(map(str, path)): array_of(leaf) for path, leaf in nnx.to_flat_state(nnx.state(grads))}
    found: dict[int, Weight] = {}
    for name, module in walk(model):
        post = post_in(type(module))
        original = module if post is None else post.module()
        if original is None:
            continue
        originals = own_parameters(original)
        for own, variable in own_parameters(module).items():
            if own not in originals or not is_float(array_of(variable)):
                continue
            grad = named.get(f"{name}.{own}" if name else own)
            if id(variable) not in found or found[id(variable)].grad is None:
                found[id(variable)] = Weight(originals[own], variable, grad)
    return list(found.values())


def _concerned(held: set[int]) -> Iterable[Listener]:
    """The listeners whose model has one of these Variables."""
    for listener in _steps.users:
        model = listener.model()
        if model is not None and any(
            id(variable) in held for _, module in walk(model) for variable in own_parameters(module).values()
        ):
            yield listener
