"""Calls: what was recorded of one site, call by call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hookline.backends.kept import Kept
from hookline.errors import NotRecorded, Unsupported
from hookline.recording.budget import Cell
from hookline.recording.store import Store
from hookline.site import Recorded
from hookline.trees import ONE, filled, leaves, map_leaves

MISSING = object()
ONE_ARGUMENT: tuple[Any, dict[str, Any]] = ((ONE,), {})
ONLY = (0,)
"""The number of the place where a single tensor stands."""
NONE_YET: dict[int, Any] = {}
"""The gradients of every call that is to get some and has none; what has one has a dict of its own."""
NO_PARAMETERS_YET: dict[str, Any] = {}
"""The same of gradients of parameters."""


class Call(Recorded):
    """One call of a site: what went in, what came out, and their gradients.

    `order` is its place among all calls that were recorded, `ended` its place in the order in which they ended:
    there a module comes after its parts.
    """

    # Defaults of the class, not set in __init__: a call is made on every event, and most have few of these.
    _output: Any = MISSING
    _input: Any = MISSING
    _kwargs: Any = MISSING
    _template_in: Any = None
    _template_out: Any = None
    _grads_in: dict[int, Any] | None = None
    _grads_out: dict[int, Any] | None = None
    _backward = -1
    sequence = 0
    repeated_in: Any = None
    _doubt: str | None = None
    """What the audit has to say of its gradients."""

    def __init__(self, site: str, order: int, store: Store | None = None) -> None:
        # The name, not the SiteRecord: a cycle would keep a dropped recording's memory until gc runs.
        self.site = site
        self.order = self.ended = order
        self._store = store

    @property
    def output(self) -> Any:
        """What the module returned, in its own structure."""
        return self._read(self._output, "its output")

    @property
    def input(self) -> Any:
        """The positional arguments, a tuple."""
        return self._read(self._input, "its input (pass inputs=True)")

    @property
    def kwargs(self) -> Any:
        """The keyword arguments, a dict."""
        return self._read(self._kwargs, "its kwargs (pass inputs=True)")

    @property
    def grad_output(self) -> Any:
        """The gradient of the output, in the output's structure; None where there is none."""
        return self._gradients(self._template_out, self._grads_out)

    @property
    def grad_input(self) -> Any:
        """A tuple along the positional arguments, with None where there is no gradient."""
        return self._gradients(self._template_in and self._template_in[0], self._grads_in)

    @property
    def grad_kwargs(self) -> Any:
        """A dict along the keyword arguments, with None where there is no gradient."""
        return self._gradients(self._template_in and self._template_in[1], self._grads_in)

    # What it hears of its gradients: see `backends.passing.Told`

    def _hear_input(self, numbers: Sequence[int], grad: Any) -> None:
        if self._grads_in is NONE_YET and self._store is not None and self._store.open:
            self._grads_in = {}
        self._take(self._grads_in, numbers, grad)

    def _hear_output(self, numbers: Sequence[int], grad: Any) -> None:
        if self._grads_out is NONE_YET and self._store is not None and self._store.open:
            self._grads_out = {}
            self._store.heard += 1
        self._take(self._grads_out, numbers, grad)

    def _hear_both(self, grad_output: Any, grad_input: Any) -> None:
        store = self._store
        first = self._grads_in is NONE_YET and self._grads_out is NONE_YET  # as it is nearly always
        if not first or store is None or store.copy is None or not store.open:
            self._hear_output(ONLY, grad_output)
            self._hear_input(ONLY, grad_input)
        else:
            store.backward_ran = True
            store.heard += 1
            self._backward = store.backward_number()
            self._grads_out, self._grads_in = {0: store.copy(grad_output)}, {0: store.copy(grad_input)}

    def _hear_doubt(self, sentence: str) -> None:
        self._doubt = sentence
        if self._store is not None:
            self._store.is_remarkable = True

    def _forget_grads(self) -> None:
        for grads in (self._grads_in or {}, self._grads_out or {}):
            for number in list(grads):
                self._release(grads, number)

    def _take(self, grads: dict[int, Any] | None, numbers: Sequence[int], grad: Any) -> None:
        store = self._store
        if grads is None or store is None or not store.open:
            return
        store.backward_ran = True
        if (number := store.backward_number()) != self._backward and number != -1:
            if self._grads_in or self._grads_out:
                store.is_remarkable = True  # this one may bring fewer
                self._forget_grads()  # those of another backward
            self._backward = number
        first = numbers[0]
        if first in grads:
            self._release(grads, first)
        value = store.tensor(grad, self.site) if store.copy is None else store.copy(grad)
        for number in numbers:
            grads[number] = value

    def _release(self, grads: dict[int, Any], number: int) -> None:
        before = grads.pop(number, None)
        if self._store is not None and self._store.budget is not None:
            for cell in leaves(before, Cell):
                self._store.budget.release(cell)

    def _read(self, stored: Any, what: str) -> Any:
        if stored is MISSING:
            raise NotRecorded(f"{what} was not recorded at {self.site!r}.")
        return loaded(stored)

    def _gradients(self, template: Any, grads: dict[int, Any] | None) -> Any:
        if grads is None:
            raise NotRecorded(f"gradients were not recorded at {self.site!r}; pass grads=True.")
        return loaded(filled(template, grads))

    def __repr__(self) -> str:
        return f"<call of {self.site!r}, {self.order} in order of execution>"


class SiteRecord(Recorded):
    """What was recorded of one site; its own values are those of the last call."""

    op = ""
    """The operator's name, `aten.convolution`, where the site is one and no module."""
    type = ""
    """The name of the module's class; empty where it is not known."""
    # Defaults of the class, as those of Call: there is a site for every module.
    why: str | None = None
    _remark: str | None = None  # what looking may have changed
    _repeats = 0  # forwards that repeated an earlier call
    _param_grads: dict[str, Any] | None = None
    _no_param_grads: Unsupported | None = None  # what reading them raises, where there can't be any

    def __init__(self, name: str, aliases: tuple[str, ...], store: Store | None) -> None:
        self.name = name
        self.aliases = aliases
        self._outputs: list[tuple[int, Any]] = []
        self._store = store
        self._calls: list[Call] = []

    @property
    def calls(self) -> list[Call]:
        """Every call, in order.

        Where only outputs are kept, events leave (order, output) pairs, of which calls are made here:
        an event is much more frequent than a reading.
        """
        if self._outputs:
            pairs, self._outputs[:] = self._outputs[:], ()  # the same list: taps hold it
            for order, output in pairs:
                call = Call(self.name, order, self._store)
                call._output = output
                self._calls.append(call)
        return self._calls

    @property
    def _has_calls(self) -> bool:
        """Whether there is a call; it makes none of what events left."""
        return bool(self._outputs or self._calls)

    @property
    def _latest_output(self) -> Any:
        """The stored output of the last call, of which there is one."""
        return self._outputs[-1][1] if self._outputs else self._calls[-1]._output

    @property
    def output(self) -> Any:
        """The output of the last call."""
        return self._last().output

    @property
    def input(self) -> Any:
        """The positional arguments of the last call, a tuple."""
        return self._last().input

    @property
    def kwargs(self) -> Any:
        """The keyword arguments of the last call."""
        return self._last().kwargs

    @property
    def grad_output(self) -> Any:
        """The gradient of the last call's output, in the output's structure."""
        return self._last().grad_output

    @property
    def grad_input(self) -> Any:
        """The gradients of the last call's positional arguments, a tuple."""
        return self._last().grad_input

    @property
    def grad_kwargs(self) -> Any:
        """The gradients of the last call's keyword arguments."""
        return self._last().grad_kwargs

    @property
    def param_grads(self) -> dict[str, Any]:
        """The gradients of the module's own parameters, of the last backward, by parameter name."""
        if self._no_param_grads is not None:
            raise self._no_param_grads
        if self._param_grads is None:
            raise NotRecorded(f"gradients were not recorded at {self.name!r}; pass grads=True.")
        return {name: loaded(grad) for name, grad in self._param_grads.items()}

    def _take_param_grad(self, parameter: str, grad: Any) -> None:
        store = self._store
        if store is not None and store.open and self._param_grads is not None:
            store.backward_ran = True
            value = store.tensor(grad, self.name) if store.copy is None else store.copy(grad)
            if self._param_grads is NO_PARAMETERS_YET:
                self._param_grads = {}
            self._param_grads[parameter] = value

    def _last(self) -> Call:
        if not self.calls:
            raise NotRecorded(f"{self.name!r} never fired: {self.why or 'it was not called'}.")
        return self.calls[-1]

    def __repr__(self) -> str:
        return f"<{self.name!r}, {len(self.calls)} calls>"


def loaded(stored: Any) -> Any:
    """A stored value with its tensors, also those that were spilled to a file."""
    return map_leaves(_got, stored, (Cell, Kept))


def _got(stored: Cell | Kept) -> Any:
    return stored.get()
