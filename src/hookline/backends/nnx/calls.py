"""Calls: one call of a module with taps.

Outside of transforms values are there, and every tap is called at once. Inside of them (jit, grad, vmap, scan,
remat) the code is traced: taps that replace something become part of it, those that look are sent what they asked
for each time it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from hookline.backends.identity_gradients import shared
from hookline.backends.nnx.compat import swapped_value, tracing
from hookline.backends.nnx.events import numbers, program, send
from hookline.backends.nnx.gradients import led, tapping
from hookline.backends.nnx.leaves import Array, array_of, is_float
from hookline.backends.nnx.module_taps import RAW, ModuleTaps, Spec, counts, observes, view_of
from hookline.backends.nnx.modules import is_training, own_parameters
from hookline.backends.nnx.packing import Packing, fingerprint
from hookline.backends.nnx.primitives import listened
from hookline.backends.nnx.replay import Gradient, ReplayedCall, replaying
from hookline.backends.nouns import Module, Tree
from hookline.backends.tap import StatsSpec, Tap
from hookline.errors import Unsupported


def run_call(post: ModuleTaps, spec: Spec, module: Module, args: Tree, kwargs: Any) -> Any:
    """What the module returns, its taps called or built in."""
    if tracing():
        return TracedCall(post, spec, module).call(args, kwargs)
    # Without jit, what would be compiled runs on copies as it is written. Any other copy is nobody's.
    if post.module() is not module and not jax.config.jax_disable_jit:
        return post.base.__call__(module, *args, **kwargs)
    for tap in post.before():
        args, kwargs = _before(tap, module, args, kwargs)
    output = forward(post, module, args, kwargs)
    for tap in post.after():
        output = _after(tap, module, args, kwargs, output)
    return output


def forward(post: ModuleTaps, module: Module, args: Tree, kwargs: Any) -> Any:
    """The module's own call, or what is put in its place."""
    own: Callable[..., Any] = partial(post.base.__call__, module)
    if post.op_watchers:
        own = partial(_listened, post, module, own)
    for fn, _ in post.forwards:
        own = partial(fn, own)
    return own(*args, **kwargs)


def _listened(post: ModuleTaps, module: Module, own: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return listened(post, module, own, args, kwargs)


def _before(tap: Tap, module: Module, args: Tree, kwargs: Any) -> tuple[Any, Any]:
    if tap.kwargs:
        new = tap(module, args, kwargs)
        return (args, kwargs) if new is None else new
    new = tap(module, args)
    return (args if new is None else new), kwargs


def _after(tap: Tap, module: Module, args: Tree, kwargs: Any, output: Tree) -> Any:
    new = tap(module, args, kwargs, output) if tap.kwargs else tap(module, args, output)
    return output if new is None else new


class TracedCall:
    """One call in code that is being traced."""

    def __init__(self, post: ModuleTaps, spec: Spec, module: Module) -> None:
        self._post, self._spec, self._module = post, spec, module
        if post.module() is module:
            post.closed_over = True
        self.training = is_training(module)
        self.place = next(numbers)
        self.program = program()
        self.remark: str | None = None  # what listening to gradients may have changed
        self.light = RAW not in spec.inputs | spec.outputs | spec.grads and not spec.params

    def call(self, args: Tree, kwargs: Any) -> Any:
        post, spec, module = self._post, self._spec, self._module
        before, after = post.before(), post.after()
        if stopping := [tap for tap in after if tap.needs.stops]:
            raise Unsupported(
                backend="nnx",
                feature=f"record(stop=True) inside of compiled code (at site {stopping[0].label.site!r})",
                why="a compiled program runs to its end",
                instead="call the model outside of jit, or leave stop=True out",
            )
        for tap in before:
            if not observes(tap) and tap.rank <= 0:
                args, kwargs = _before(tap, module, args, kwargs)
        sending = bool(spec.inputs or spec.outputs or spec.grads or spec.params)
        if spec.begins:
            send(next(numbers), self.program, self._tell_begin, [], light=True)
        mark = fingerprint((args, kwargs)) if spec.grads else jnp.uint32(0)
        given = Packing((args, kwargs), spec.inputs)
        sent = given.taken()
        if spec.grads:
            args, kwargs = self._listened("input", mark, (args, kwargs))
        for tap in before:
            if not observes(tap) and tap.rank > 0:
                args, kwargs = _before(tap, module, args, kwargs)
        restore = self._parameters_listened(mark) if spec.params else None
        try:
            output = forward(post, module, args, kwargs)
        finally:
            if restore is not None:
                restore()
        for tap in after:
            if not observes(tap):
                output = _after(tap, module, args, kwargs, output)
        if spec.grads:
            output = self._listened("output", mark, output)
        if sending or spec.ends:
            output = self._sent(mark, given, sent, output)
        return output

    # Sending

    def _sent(self, mark: Any, given: Packing, sent: list[Any], output: Tree) -> Any:
        """`output` to go on with, led by what sends it: only there it is known whether it is differentiated."""
        place = next(numbers)
        made = Packing(output, self._spec.outputs)
        arrays = [mark, *sent, *made.taken()]
        found = tapping.live(output)[0]

        def emit(differentiated: bool, arrays: Any) -> None:
            tell = partial(self._tell_end, differentiated, given, made)
            reducers = [None, *given.reducers, *made.reducers]
            send(place, self.program, tell, list(arrays), reducers, light=self.light)

        if not found:
            emit(False, arrays)
            return output

        @jax.custom_jvp  # type: ignore[untyped-decorator]
        def identity(sent: Any, outputs: Any) -> Any:
            emit(False, sent)
            return outputs

        @identity.defjvp  # type: ignore[untyped-decorator]
        def differentiated(primals: Any, tangents: Any) -> Any:
            emit(True, primals[0])
            return primals[1], tangents[1]

        new = identity(arrays, [leaf for _, leaf in found])
        return tapping.laid(output, dict(zip((number for number, _ in found), new, strict=True)))

    def _listened(self, which: str, mark: Any, tree: Tree) -> Any:
        """`tree` to go on with; gradients of it are sent."""
        found = tapping.live(tree)[0]
        if not found:
            return tree
        at = [number for number, _ in found]

        def backward(word: Any, carried: list[Any], grads: list[Any]) -> None:
            known = [(number, grad) for number, grad in zip(at, grads, strict=True) if grad is not None]
            packing = Packing([grad for _, grad in known], self._spec.grads)
            tell = partial(self._tell_gradient, which, packing, [[number] for number, _ in known])
            send(
                next(numbers),
                self.program,
                tell,
                [carried[0], *packing.taken()],
                [None, *packing.reducers],
                light=self.light,
            )

        if which == "input":
            self.remark = shared(found)
        new = led([leaf for _, leaf in found], backward, (mark,))
        return tapping.laid(tree, dict(zip(at, new, strict=True)))

    def _parameters_listened(self, mark: Any) -> Any:
        """Has the module's parameters led by taps until the returned function is called."""
        held = {
            name: variable
            for name, variable in own_parameters(self._module).items()
            if isinstance(array_of(variable), Array) and is_float(array_of(variable))
        }
        if not held:
            return None

        def backward(word: Any, carried: list[Any], grads: list[Any]) -> None:
            known = {name: grad for name, grad in zip(held, grads, strict=True) if grad is not None}
            packing = Packing(list(known.values()), [RAW])
            tell = partial(self._tell_parameters, packing, list(known))
            send(next(numbers), self.program, tell, packing.taken())

        names = list(held)
        new = led([array_of(held[name]) for name in names], backward, (mark,))
        undo = [swapped_value(held[name], array) for name, array in zip(names, new, strict=True)]

        def restore() -> None:
            for one in undo:
                one()

        return restore

    # Telling, when the code has run

    def _taps(self) -> tuple[Any, list[Tap]]:
        return self._post.module(), [tap for tap in self._post.before() + self._post.after() if observes(tap)]

    def _tell_begin(self, values: list[Any]) -> None:
        module, taps = self._taps()
        with replaying(ReplayedCall(False, self.training)):
            for tap in taps:
                if not tap.after and counts(tap):
                    _before(tap, module, (), {})

    def _tell_end(self, differentiated: bool, given: Packing, made: Packing, values: list[Any]) -> None:
        key = self.place, int(values[0])
        self._post.shares.called()
        inputs, outputs = values[1 : 1 + given.count], values[1 + given.count :]
        module, taps = self._taps()
        seen: dict[StatsSpec, tuple[Any, Any]] = {}
        with replaying(ReplayedCall(differentiated, self.training, self.remark)) as call:
            for tap in taps:
                view = call.view = view_of(tap)
                if not self._sends_to(tap, view):
                    continue  # it came when this program was compiled, or running, already
                if counts(tap):
                    if tap.after:
                        _after(tap, module, (), {}, None)
                    continue
                args, kwargs = seen.setdefault(view, given.seen(view, inputs))
                if tap.after:
                    _after(tap, module, args, kwargs, made.seen(view, outputs))
                else:
                    _before(tap, module, args, kwargs)
        if self._spec.grads:  # with no ears too: its gradients are nobody else's
            self._post.waiting.called(key, call.ears)

    def _sends_to(self, tap: Tap, view: StatsSpec) -> bool:
        """Whether this program sends what a tap needs."""
        spec, needs = self._spec, tap.needs
        return not (needs.inputs and view not in spec.inputs) and not (needs.outputs and view not in spec.outputs)

    def _tell_gradient(self, which: str, packing: Packing, found_at: list[list[int]], values: list[Any]) -> None:
        def grads(view: StatsSpec) -> list[tuple[list[int], Any]]:
            return list(zip(found_at, packing.seen(view, values[1:]), strict=True))

        self._post.waiting.arrived((self.place, int(values[0])), Gradient(which, grads))

    def _tell_parameters(self, packing: Packing, names: list[str], values: list[Any]) -> None:
        for name, share in zip(names, packing.seen(RAW, values), strict=True):
            total = self._post.shares.add(name, share)
            for sink, _ in list(self._post.param_sinks):
                sink(name, total)
