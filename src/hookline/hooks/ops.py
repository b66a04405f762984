"""operators: a callback for every operator that a model runs, forward and backward.

Upstream: select (where), a backend that names the operators. As MXNet's `register_op_hook` on any framework.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from hookline.backends import resolve
from hookline.backends.nouns import Model, Tensor
from hookline.backends.operators import Operator, OpSite
from hookline.backends.protocol import Backend, Label
from hookline.errors import HooklineError, InvalidArgument
from hookline.globs import matcher
from hookline.hooks.handles import Handle, attached
from hookline.hooks.placing import callers_line, needs_callable
from hookline.hooks.replacing import hook_error
from hookline.hooks.select import ModuleTree, select

Ops = bool | str | Sequence[str] | None
"""Which operators: all (True, None), or those that a glob or one of several means."""


@dataclass(frozen=True, slots=True)
class OpEvent:
    """A tensor that goes into an operator or comes out of it.

    `name` is the tensor's, `fc#1/addmm.output`; `site` that of the operator, `fc/addmm`, whichever call of
    `module` it is; calls are counted from 0 within a forward of the model. `op` is the operator as the
    framework names it, `aten.addmm`, with its `overload`. `phase` is "forward" or "backward", `role`
    "input" or "output", `index` the place among several (-1: the only output). `source` is the line of the
    model's code, `model.py:12`, also in a backward; None where it can't be told.
    """

    name: str
    op: str
    array: Any
    site: str
    module: str
    call: int
    phase: str
    role: str
    index: int
    overload: str
    source: str | None


def register_op_hook(
    model: Model,
    callback: Callable[..., Any],
    where: Any = None,
    *,
    monitor_all: bool = False,
    ops: Ops = None,
    events: bool = False,
) -> Handle:
    """A Handle; `callback(node_name, op_name, array)` is called for each output of every operator that runs.

    With `monitor_all` also for each input, before the operator runs. `where` chooses modules, parts
    included; `ops` operators, by a glob ("aten.*norm*") or a list of them. Forward and backward are told,
    an operator of a backward with the module whose forward it belongs to. With `events` the callback gets
    one OpEvent instead, which also has the module, phase, call and line of code. The array is a copy.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    >>> show = lambda name, op, array: print(name, op, tuple(array.shape))
    >>> with register_op_hook(model, show, ops=["addmm", "relu"]):
    ...     _ = model(torch.ones(4, 3))
    0/addmm.output aten.addmm (4, 2)
    1/relu.output aten.relu (4, 2)
    """
    needs_callable("register_op_hook", "callback", callback, 1 if events else 3)
    backend = resolve(model)
    targets = select(ModuleTree(backend.named_modules(model)), where)
    label = Label("register_op_hook", "op hook", "", callers_line())
    kind = EventCaller if events else Caller
    listener = kind(backend, callback, Chosen(backend, ops), inputs=monitor_all)
    modules = {target.name: target.module for target in targets}
    return attached(backend.hook_operators, model, modules, listener, label)


class Chosen:
    """The operators that `ops` means; a pattern that can mean none is an InvalidArgument.

    A pattern stands for the name, with or without its namespace and overload: "aten.add", "add",
    "aten.add.Tensor".
    """

    def __init__(self, backend: Backend, ops: Ops) -> None:
        backend.framework.need("ops")
        patterns: Any = [] if ops is None or ops is True else [ops] if isinstance(ops, str) else ops
        if not isinstance(patterns, (list, tuple, set, frozenset)) or not all(
            isinstance(pattern, str) and pattern for pattern in patterns
        ):
            raise InvalidArgument(
                f"ops={ops!r} can't choose operators; give a glob such as 'aten.*norm*', or a list of them."
            )
        self.patterns = tuple(patterns)
        known = backend.operator_names() if self.patterns else ()
        for pattern in self.patterns:
            if known and not any(means(pattern, operator) for operator in known):
                raise InvalidArgument(_no_operator(pattern, known))

    def __contains__(self, operator: Operator) -> bool:
        return not self.patterns or any(means(pattern, operator) for pattern in self.patterns)


def means(pattern: str, operator: Operator) -> bool:
    """Whether a pattern stands for this operator.

    >>> [means(pattern, Operator("aten.add", "Tensor")) for pattern in ("aten.a*", "add", "aten.*.Tensor", "mul")]
    [True, True, True, False]
    """
    matches = matcher(pattern)
    return any(matches(name) for name in (operator.name, operator.bare, f"{operator.name}.{operator.overload}"))


def _no_operator(pattern: str, known: Sequence[Operator]) -> str:
    names = sorted({operator.name for operator in known})
    near = difflib.get_close_matches(pattern, [*names, *(name.rpartition(".")[2] for name in names)], n=3)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return (
        f"ops={pattern!r} means none of the {len(names)} operators there are.{hint} "
        "Names are as the framework has them, such as 'aten.convolution'; * stands for anything but a dot."
    )


class Caller:
    """Calls a user's function for each tensor; its errors carry the tensor's name."""

    sources = False

    def __init__(self, backend: Backend, callback: Callable[..., Any], chosen: Chosen, *, inputs: bool) -> None:
        self.callback, self.inputs = callback, inputs
        self._wanted = chosen
        self._tensor, self._copy = backend.tensor, backend.snapshot

    @property
    def key(self) -> Hashable:
        return self._wanted.patterns, self.inputs, True

    def wants(self, operator: Operator, phase: str) -> bool:
        return operator in self._wanted

    def is_mine(self) -> bool:
        return True

    def before(self, step: OpSite, call: int, tensors: Sequence[Any], source: str | None) -> None:
        for index, tensor in enumerate(tensors):
            self._tell(step, call, "input", index, tensor, source)

    def after(self, step: OpSite, call: int, output: Any, source: str | None) -> None:
        if isinstance(output, self._tensor):  # most operators
            self._tell(step, call, "output", -1, output, source)
        elif isinstance(output, (tuple, list)):
            for index, tensor in enumerate(output):
                if isinstance(tensor, self._tensor):
                    self._tell(step, call, "output", index, tensor, source)

    def _tell(self, step: OpSite, call: int, role: str, index: int, tensor: Tensor, source: str | None) -> None:
        name = step.node(call, role, index)
        try:
            self.callback(name, step.operator.name, self._copy(tensor))
        except HooklineError:
            raise
        except Exception as error:
            raise hook_error(name, "op hook", self.callback, error) from error


class EventCaller(Caller):
    """Calls a user's function with an OpEvent for each tensor."""

    sources = True

    def _tell(self, step: OpSite, call: int, role: str, index: int, tensor: Tensor, source: str | None) -> None:
        name, operator = step.node(call, role, index), step.operator
        event = OpEvent(
            name=name,
            op=operator.name,
            array=self._copy(tensor),
            site=step.site,
            module=step.module,
            call=call,
            phase=step.phase,
            role=role,
            index=index,
            overload=operator.overload,
            source=source,
        )
        try:
            self.callback(event)
        except HooklineError:
            raise
        except Exception as error:
            raise hook_error(name, "op hook", self.callback, error) from error
