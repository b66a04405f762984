"""Gradients: taps that hand a module's gradients to a hook which may replace them.

Used by register_backward_pre_hook, register_backward_hook and edit. What only looks, a recording,
goes another way that leaves the graph as it is.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any

from hookline.backends.protocol import Backend, Joining, Label, Needs, Placement, Rank, Tap
from hookline.errors import HooklineError
from hookline.hooks.pending import call_number
from hookline.hooks.replacing import GradientStructure, StructureCache, call_hook, hook_error
from hookline.hooks.select import Target
from hookline.hooks.session import Session
from hookline.hooks.site_tap import SiteTap


class OutputGradients(Tap):
    """Has `hook(module, grad_output)` called with the gradients of all outputs of a call.

    With `wrap` the hook gets a tuple in any case, else the gradients in the output's own structure.
    """

    kwargs = False
    rank = Rank.GRADIENT
    needs = Needs(inputs=False, replaces=False, joint=True)
    first_in_backward = True

    def __init__(
        self,
        backend: Backend,
        target: Target,
        label: Label,
        hook: Callable[..., Any],
        session: Session | None = None,
        *,
        wrap: bool = True,
    ) -> None:
        self._backend, self.label, self._hook = backend, label, backend.hooked(hook, label)
        self._module = weakref.ref(target.module)  # a handle that is kept keeps no model alive
        self._session, self._outputs = session, StructureCache(backend, label, wrap=wrap)

    def placements(self) -> list[Placement]:
        return [Placement(self._module(), self)]

    def __call__(self, module: Any, args: Any, output: Any) -> Any:
        references = getrefcount(output)
        if self._session is not None and not self._session.sees_this_context():
            return None
        label, hook = self.label, self._hook
        gradients = self._outputs.of(output)
        # The graph holds this closure and a module may hold the graph, so it must not hold the module.
        owner = weakref.ref(self._backend.lasting(module))

        def sink(grads: list[Any]) -> list[Any] | None:
            new = call_hook(label.site, label.kind, hook, owner(), gradients.shown(grads))
            return gradients.taken(new, grads)

        new = self._backend.joined(output, sink, call_number(self, module, args), references)
        return None if new is output else new


class InputGradients(SiteTap):
    """Has `hook(module, grad_input, grad_output)` called with all gradients of a call.

    Where no input needs a gradient, it is called when those of the outputs are known.
    """

    needs = Needs(inputs=False, replaces=False, joint=True)

    def __init__(
        self,
        backend: Backend,
        target: Target,
        label: Label,
        hook: Callable[..., Any],
        session: Session | None = None,
    ) -> None:
        super().__init__()
        self._backend, self.label, self._hook = backend, label, backend.hooked(hook, label)
        self._module = weakref.ref(target.module)  # a handle that is kept keeps no model alive
        self.session = session
        self._memory, self._joined_inputs = backend.site_memory(target.module), backend.joined_inputs
        self._inputs = StructureCache(backend, label, wrap=False)
        self._outputs = StructureCache(backend, label, wrap=True)

    def placements(self, *, original: bool = False) -> list[Placement]:
        self.rank = Rank.ORIGINAL if original else Rank.GRADIENT
        entrance = self.entrance(self.label, Needs(replaces=False, joint=True), Rank.GRADIENT)
        return [Placement(self._module(), entrance), Placement(self._module(), self)]

    def begin(self, module: Any, args: Any, kwargs: Any) -> tuple[_BackwardCall, Joining]:
        known = self._module  # of a module that others made of this one, as nn.DataParallel does, another
        owner = known if known() is module else weakref.ref(self._backend.lasting(module))
        call = _BackwardCall(self.label, self._hook, owner, self._inputs.of(args))
        return call, self._joined_inputs(call, self._memory)

    def end(self, call: _BackwardCall, passage: Joining, output: Any, number: int, references: int) -> Any:
        call.outputs = self._outputs.of(output)
        if passage.live:
            return passage.leave(output, number, references)
        return self._backend.joined(output, call.without_inputs, number, references)


class _BackwardCall:
    """The gradients of one call, until the hook has them all; holds no tensor of the graph."""

    __slots__ = ("_hook", "_label", "_module", "grads_out", "inputs", "outputs")

    def __init__(
        self, label: Label, hook: Callable[..., Any], module: weakref.ref[Any], inputs: GradientStructure
    ) -> None:
        self._label, self._hook, self._module = label, hook, module
        # Numbered along (args, kwargs); the hook is shown, and may replace, those of args.
        self.inputs = inputs
        self.outputs: GradientStructure | None = None
        self.grads_out: dict[int, Any] | None = None

    # See `backends.passing.Asked`

    def _hear_output(self, numbers: Sequence[int], grad: Any) -> None:
        if self.grads_out is None:
            self.grads_out = {}
        for number in numbers:
            self.grads_out[number] = grad

    def _ask(self, grads: list[Any]) -> list[Any] | None:
        return self._call(grads, self.grads_out or {})

    def _hear_both(self, grad_output: Any, grad_input: Any) -> list[Any] | None:
        # What `_call` and `call_hook` do where each side is a tensor: structures are tuples of one.
        try:
            new = self._hook(self._module(), (grad_input,), (grad_output,))
        except HooklineError:
            raise  # it has its site already
        except Exception as error:
            raise hook_error(self._label.site, self._label.kind, self._hook, error) from error
        return None if new is None else self.inputs.taken(new, [grad_input])

    def without_inputs(self, grads: list[Any]) -> None:
        self._call([None] * self.inputs.places, grads)

    def _call(self, grads_in: list[Any], grads_out: list[Any] | dict[int, Any]) -> list[Any] | None:
        assert self.outputs is not None
        shown_in, shown_out = self.inputs.shown(grads_in), self.outputs.shown(grads_out)
        self.grads_out = None
        new = call_hook(self._label.site, self._label.kind, self._hook, self._module(), shown_in, shown_out)
        return None if new is None else self.inputs.taken(new, grads_in)
