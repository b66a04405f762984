"""Interpreting: a function gone through primitive by primitive, and its backward, with listeners told of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from hookline.backends.nnx.compat import bound, inner_jaxpr, is_symbolic_zero, source_line
from hookline.backends.nnx.events import numbers, program, send
from hookline.backends.nnx.gradients import Note, refuse_forward_mode
from hookline.backends.nnx.leaves import is_float
from hookline.backends.nnx.module_taps import RAW, ModuleTaps, module_taps_of
from hookline.backends.nnx.modules import walk
from hookline.backends.nnx.packing import Packing
from hookline.backends.operators import BACKWARD, FORWARD, Operator, OpListener, OpSite
from hookline.backends.tap import Label

_SENDING = {"debug_callback", "custom_vmap_call"}
"""Hookline's own primitives, and those of callbacks."""


class Watcher:
    """Who listens, and to which modules under which names."""

    def __init__(self, model: nnx.Module, places: dict[str, Any], listener: OpListener, label: Label) -> None:
        self.listener, self.label = listener, label
        self.names: dict[int, str] = {}
        self.posts: list[ModuleTaps] = []
        for name, module in walk(model):
            post = module_taps_of(module)
            if post.number not in self.names and any(_within(name, place) for place in places):
                self.names[post.number] = name
                self.posts.append(post)
        self._starts: dict[tuple[str, str], OpSite] = {}

    def start(self, module: str, phase: str) -> OpSite:
        key = module, phase
        if key not in self._starts:
            self._starts[key] = OpSite.start(module, phase)
        return self._starts[key]


def _within(name: str, place: str) -> bool:
    return not place or name == place or name.startswith(f"{place}.")


def differentiable(run: Callable[[list[Any]], list[Any]], interpreter: Interpreter) -> Callable[..., Any]:
    """`run` gone through by `interpreter`; so is its backward, which is made when JAX asks for it."""

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def function(arrays: list[Any]) -> list[Any]:
        return interpreter.through(run, arrays)  # type: ignore[no-any-return]

    def forwards(arrays: list[Any]) -> Any:
        moving = [number for number, array in enumerate(arrays) if array.perturbed]
        values = [array.value for array in arrays]
        kinds: list[bool] = []

        def with_backward(values: list[Any]) -> Any:
            def of(moved: list[Any]) -> Any:
                whole = list(values)
                for number, value in zip(moving, moved, strict=True):
                    whole[number] = value
                outs = run(whole)
                kinds[:] = [is_float(out) for out in outs]
                return [out for out in outs if is_float(out)], [out for out in outs if not is_float(out)]

            return jax.vjp(of, [values[number] for number in moving], has_aux=True)

        floats, backward, others = interpreter.through(with_backward, values)
        queues = {True: iter(floats), False: iter(others)}
        note = Note((tuple(moving), len(values), tuple(kinds)))
        return [next(queues[kind]) for kind in kinds], (backward, note)

    def backwards(kept: Any, grads: list[Any]) -> Any:
        backward, note = kept
        moving, count, kinds = note.word
        wanted = [
            jnp.zeros(grad.aval.shape, grad.aval.dtype) if is_symbolic_zero(grad) else grad
            for grad, kind in zip(grads, kinds, strict=True)
            if kind
        ]
        (found,) = interpreter.through(lambda backward, wanted: backward(wanted), backward, wanted)
        result: list[Any] = [None] * count
        for number, grad in zip(moving, found, strict=True):
            result[number] = grad
        return (result,)

    function.defvjp(forwards, backwards, symbolic_zeros=True)

    def checked(arrays: list[Any]) -> Any:
        refuse_forward_mode(arrays, "hearing operators")
        return function(arrays)

    return checked


_SCOPE = re.compile(r"@(\d+)#(\d+)@")


class Interpreter:
    """Goes through the primitives of a function and tells of each."""

    def __init__(self, watchers: list[Watcher]) -> None:
        self._watchers = watchers
        self._steps: dict[tuple[int, int, int, str], OpSite] = {}

    def through(self, function: Callable[..., Any], *given: Any) -> Any:
        """function(*given), primitive by primitive."""
        structure: list[Any] = []

        def flat(*given: Any) -> list[Any]:
            leaves, tree = jax.tree.flatten(function(*given))
            structure.append(tree)
            return list(leaves)

        closed = jax.make_jaxpr(flat)(*given)
        found: list[Any] = self._run(closed.jaxpr, closed.consts, jax.tree.leaves(given), "")
        return jax.tree.unflatten(structure[-1], found)

    def _run(self, jaxpr: Any, consts: Iterable[Any], given: Iterable[Any], stack: str) -> list[Any]:
        known = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(zip(jaxpr.invars, given, strict=True))

        def value(variable: Any) -> Any:
            return variable.val if hasattr(variable, "val") else known[variable]

        for equation in jaxpr.eqns:
            values = [value(variable) for variable in equation.invars]
            place = f"{stack}/{equation.source_info.name_stack}"
            inner = inner_jaxpr(equation)
            if inner is not None:
                outs = self._run(inner.jaxpr, inner.consts, values, place)
            else:
                outs = self._told(equation, values, place)
            known.update(zip(equation.outvars, outs, strict=True))
        return [value(variable) for variable in jaxpr.outvars]

    def _told(self, equation: Any, values: list[Any], stack: str) -> list[Any]:
        name = equation.primitive.name
        scopes = _SCOPE.findall(stack)
        if name in _SENDING or not scopes:
            return bound(equation, values)
        number, call = map(int, scopes[-1])
        phase = BACKWARD if "transpose(" in stack else FORWARD
        operator = Operator(f"lax.{name}")
        wanted = [
            (watcher.listener, step)
            for watcher in self._watchers
            if number in watcher.names and (step := self._next(watcher, number, call, phase, operator)).wanted
        ]
        source = source_line(equation) if any(listener.sources for listener, _ in wanted) else None
        for listener, step in wanted:
            if listener.inputs:
                _tell(partial(listener.before, step, call), values, source)
        outs = bound(equation, values)
        for listener, step in wanted:
            _tell(partial(_after, listener, step, call), outs, source)
        return outs

    def _next(self, watcher: Watcher, number: int, call: int, phase: str, operator: Operator) -> OpSite:
        key = id(watcher), number, call, phase
        at = self._steps.get(key) or watcher.start(watcher.names[number], phase)
        step = at.next.get(operator) or at.then(operator, operator, wanted=watcher.listener.wants(operator, phase))
        self._steps[key] = step
        return step


def _after(listener: OpListener, step: OpSite, call: int, outs: list[Any], source: str | None) -> None:
    listener.after(step, call, outs[0] if len(outs) == 1 else tuple(outs), source)


def _tell(tell: Callable[[list[Any], str | None], None], values: list[Any], source: str | None) -> None:
    """Tells at once of real values; those of a program, when it runs."""
    if not any(isinstance(value, jax.core.Tracer) for value in values):
        tell([jnp.asarray(value) for value in values], source)
        return
    packing = Packing(values, [RAW])
    send(
        next(numbers),
        program(),
        lambda sent: tell(packing.seen(RAW, sent), source),
        packing.taken(),
    )
