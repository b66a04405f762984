"""Tracing: one run of a model, watched call by call and operation by operation.

Taps on every module tell which call is under way; a dispatch mode sees each operation and counts it
for that call; hooks on saved tensors tell what a backward would need.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from hookline.backends.facts import CallFact, RunFacts
from hookline.backends.protocol import FunctionTap, Label, Placement
from hookline.backends.torch import describe
from hookline.backends.torch.compat import DispatchMode, base_of, in_parts, is_fakes_fault, quiet_fakes, uncompiled
from hookline.backends.torch.describe import facts_of, nbytes, storage_of
from hookline.backends.torch.fakes import costs
from hookline.backends.torch.fakes.flow import Flow
from hookline.backends.torch.fakes.standins import (
    FakeTensors,
    RealTensors,
    borrow,
    has_lazy,
    home_of,
    is_on_meta,
    mapped,
    why_not_fake,
)
from hookline.backends.torch.taps import attach
from hookline.backends.undoing import Undoing, tidied
from hookline.errors import InvalidArgument
from hookline.trees import leaves

BIG = 2 * 1024**3
"""Bytes of parameters from which a model runs for real only where fake tensors are surely at fault."""


def traced_run(model: nn.Module, args: Any, kwargs: Any, *, real: bool = False, flow: bool = False) -> RunFacts:
    """What happened in `model(*args, **kwargs)`, run on fake tensors; on real ones if asked or needed.

    Tensors on the meta device among the arguments are descriptions of inputs. `flow` also finds out
    which calls feed which. An error of the model is in the result, not raised.
    """
    model = uncompiled(model)
    notes: list[str] = []
    if has_lazy(model):
        notes.append("parameters of lazy modules are those that this input gives them")
    on_meta = is_on_meta(model)
    if not real and not on_meta and (why := why_not_fake(model, (args, kwargs))) is not None:
        real = True
        notes.append(f"ran with real tensors: {why}")
    if not real:
        facts = _one_run(model, args, kwargs, real=False, flow=flow)
        error = facts.error
        small = sum(p.nbytes for module in facts.modules for p in module.parameters) < BIG
        if error is None or on_meta or not (small or is_fakes_fault(error)):
            facts.notes += notes
            return facts
        why = str(error).strip().partition("\n")[0][:160]
        facts = _one_run(model, args, kwargs, real=True, flow=flow)
        if facts.error is None:
            notes.append(f"ran with real tensors, because fake ones failed ({type(error).__name__}: {why})")
    elif on_meta:
        raise InvalidArgument("real=True needs a model with memory; this one has tensors on the meta device.")
    else:
        facts = _one_run(model, args, kwargs, real=True, flow=flow)
    facts.notes += notes
    return facts


def _one_run(model: nn.Module, args: Any, kwargs: Any, *, real: bool, flow: bool) -> RunFacts:
    facts = _watched_run(model, args, kwargs, real=real, flow=flow, saved=True)
    if facts.error is not None and "saved tensor hooks" in str(facts.error):
        facts = _watched_run(model, args, kwargs, real=real, flow=flow, saved=False)
        facts.notes.append("what a backward keeps is not counted: torch.func allows no hooks on saved tensors")
    return facts


@tidied
def _watched_run(
    undoing: Undoing, model: nn.Module, args: Any, kwargs: Any, *, real: bool, flow: bool, saved: bool
) -> RunFacts:
    home = home_of(model)
    lazy = has_lazy(model)
    if lazy:  # a first call initialises lazy modules for good; let it be a copy's first call
        model = copy.deepcopy(model)
    names = describe.names_of(model)
    modules = describe.modules_of(model, names)
    if real:
        numbers: RealTensors | FakeTensors = RealTensors(home)
        mode: AbstractContextManager[Any] = nullcontext()
        borrow(undoing, model, None, torch.clone)
    else:
        numbers = fakes = FakeTensors(home)
        mode = fakes.mode
        undoing.enter_context(quiet_fakes())
        borrow(undoing, model, fakes.of, fakes.of)
    args, kwargs = mapped(numbers.of, args), mapped(numbers.of, kwargs)
    watch = _Watch(model, names, flow=flow)
    watch.own(args, kwargs)
    undoing.noted(watch.forget_saved)
    attach(undoing, list(watch.placements()))
    training = model.training
    counted = torch.autograd.graph.saved_tensors_hooks(watch.saved, _unpacked) if saved else nullcontext()
    error = _error_of(model, args, kwargs, [mode, torch.enable_grad(), counted, watch])
    if lazy:
        modules = describe.modules_of(model, names)
    failed = watch.open[-1] if error is not None and watch.open else None
    return RunFacts(modules, watch.calls, real, training, error, failed)


@tidied
def _error_of(
    undoing: Undoing, model: nn.Module, args: Any, kwargs: Any, contexts: list[AbstractContextManager[Any]]
) -> Exception | None:
    """What the model raises when it runs within these contexts."""
    for context in contexts:
        undoing.enter_context(context)
    try:
        model(*args, **kwargs)
    except Exception as raised:
        return raised
    return None


def _unpacked(packed: list[torch.Tensor]) -> torch.Tensor:
    return packed[0]


class _Watch(DispatchMode):  # type: ignore[misc]
    """Keeps the stack of calls under way and books every operation on the innermost."""

    supports_higher_order_operators = True  # flex_attention and the like arrive whole

    def __init__(self, model: nn.Module, names: dict[int, list[str]], *, flow: bool) -> None:
        super().__init__()
        self.calls: list[CallFact] = []
        self.open: list[int] = []
        self._names = names
        self._modules = {id(module): module for module in model.modules()}
        self._finished = 0
        # Memory that is not an activation, or was counted already. The storages are kept, not just
        # their ids: an id may come again.
        self._seen: dict[int, Any] = {}
        self._kept: dict[int, Any] = {}
        self._packed: list[list[torch.Tensor]] = []
        self._flow = Flow() if flow else None
        for tensor in (*model.parameters(), *model.buffers()):
            if not nn.parameter.is_lazy(tensor):
                self._is_new(tensor, self._seen)
                self._is_new(tensor, self._kept)

    def own(self, args: Any, kwargs: Any) -> None:
        """Inputs are nobody's output; a backward may well need to keep them."""
        for tensor in leaves((args, kwargs), torch.Tensor):
            self._is_new(tensor, self._seen)

    # Calls

    def placements(self) -> Iterator[Placement]:
        for key, module in self._modules.items():
            label = Label("summary", "summary", self._names[key][0])
            yield Placement(module, FunctionTap(self._before, label, after=False))
            yield Placement(module, FunctionTap(self._after, label))

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        names = self._names[id(module)]
        parent = self.open[-1] if self.open else None
        name = names[0] if parent is None else _as_called(names, self.calls[parent].name)
        call = CallFact(name, names[0], parent, facts_of(args), facts_of(kwargs))
        if self._flow is not None:
            call.fed_by = self._flow.into((args, kwargs))
        self.open.append(len(self.calls))
        self.calls.append(call)

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        name = self._names[id(module)][0]
        # A model may catch the error of a part and go on: that part's call never returns.
        while self.calls[self.open[-1]].module != name:
            self.open.pop()
        number = self.open.pop()
        call = self.calls[number]
        call.finished, self._finished = self._finished, self._finished + 1
        call.output = facts_of(output)
        for tensor in leaves(output, torch.Tensor):
            if self._is_new(tensor, self._seen):
                call.activation_bytes += nbytes(tensor)
        if self._flow is not None and len(self.calls) == number + 1:  # a leaf: it called nothing
            self._flow.comes_from(number, output)

    # Operations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not costs.is_known(func) and (parts := in_parts(self, func, args, kwargs)) is not NotImplemented:
            return parts
        out = func(*args, **kwargs)
        if self.open:
            call = self.calls[self.open[-1]]
            count = costs.macs(func, args, kwargs, out)
            if count is None:
                call.unknown_ops[str(func)] = call.unknown_ops.get(str(func), 0) + 1
            else:
                call.macs += count
        if self._flow is not None:
            self._flow.passes((args, kwargs), out)
        return out

    # Memory

    def saved(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Counts what autograd saves, but for weights.

        A node that saves its own output would hold it and be held by it, for ever, with this hook and the model
        that it knows. So autograd gets a list, which `forget_saved` empties; a view would take longer to make.
        """
        base = base_of(tensor)
        # Weights that are brought in for a call, and not known from the start, are known by their type.
        is_weight = isinstance(tensor if base is None else base, nn.Parameter)
        if self.open and self._is_new(tensor, self._kept) and not is_weight:
            self.calls[self.open[-1]].saved_bytes += nbytes(tensor)
        packed = [tensor]
        self._packed.append(packed)
        return packed

    def forget_saved(self) -> None:
        """The run is over, and nobody will ask for what a backward would have needed."""
        for packed in self._packed:
            packed.clear()
        self._packed.clear()

    @staticmethod
    def _is_new(tensor: torch.Tensor, seen: dict[int, Any]) -> bool:
        memory = storage_of(tensor)
        if memory is None and (tensor.layout is not torch.strided or tensor.is_nested):
            memory = tensor  # it keeps its values in tensors of its own
        if memory is None or id(memory) in seen:
            return False
        seen[id(memory)] = memory
        return True


def _as_called(names: list[str], caller: str) -> str:
    """Of a module's names, the one under its caller's; the first where none is."""
    if len(names) == 1 or not caller:
        return names[0]
    return next((name for name in names if name.startswith(f"{caller}.")), names[0])
