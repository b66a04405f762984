"""Operator look: each operator of one step, seen by a dispatch mode from the call of the model to the backward.

It looks for what shapes and flow alone show: two tensors that stretch each other, a softmax of a softmax, a graph
that was cut, dropout in eval mode. Nothing is kept but numbers and weak references; what runs is what runs
without it.

The mode is on while code runs that is not hookline's, and who else puts modes on and takes them off must not
notice: so it begins only where there is no other, and lies below all that come.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from types import FrameType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from hookline.backends.torch import compat
from hookline.backends.torch.activations_look import Activations
from hookline.backends.torch.compat import QuickDispatchMode, calls_the_model
from hookline.backends.torch.eager.attribution import current_line, is_own
from hookline.backends.torch.graph_look import leaves_below
from hookline.backends.torch.padding_look import Paddings
from hookline.backends.torch.shapes_look import Shapes
from hookline.backends.torch.softmax_look import Softmaxes
from hookline.backends.torch.unseen import is_unseen, unseen_threads
from hookline.backends.wired import Cut
from hookline.trees import leaves
from hookline.wiring import Place

MOST_OPERATORS = 100_000
"""After so many it ends by itself: nobody called backward."""
MOST_CUTS = 32
CUT_NODES = 5_000
"""So many detached tensors are noted, and so much of the graph of each is looked at."""
RISKY = frozenset(
    {
        *("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "div", "reciprocal", "exp", "expm1", "pow"),
        *("acos", "asin", "atanh", "acosh", "std", "special_xlogy", "xlogy"),
    }
)
"""Operators that are infinite somewhere, or whose slope is."""
DROPPING = ("native_dropout", "_fused_dropout", "bernoulli_", "bernoulli", "dropout", "feature_dropout")


class _Places:
    """Tells where an operator runs; apart from the look, which has it: no cycle keeps what was looked at."""

    def __init__(self, modules: dict[int, str]) -> None:
        self._modules = modules

    def __call__(self, op: str, what: str = "") -> Place:
        """Where this runs: the innermost module of the model, and the user's line."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            called = frame.f_locals["self"] if frame.f_code is compat.MODULE_CALL else None
            if called is not None and (name := self._modules.get(id(called))) is not None:
                return Place(op, name, current_line() or "", what)
            frame = frame.f_back
        return Place(op, "", current_line() or "", what)

    def outside(self, op: str) -> Place | None:
        """Where this runs, if no module of the model does."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code is compat.MODULE_CALL and id(frame.f_locals["self"]) in self._modules:
                return None
            frame = frame.f_back
        return Place(op, "", current_line() or "")


class OperatorLook(QuickDispatchMode):
    """Sees the operators of one thread between `start` and `stop`."""

    def __init__(self, modules: dict[int, str], parameters: set[int]) -> None:
        """`modules` are the names by the ids of modules, `parameters` ids."""
        super().__init__()
        self._parameters = parameters
        self._place = _Places(modules)
        self.failed: Exception | None = None
        self.dropped: list[Place] = []
        self.risky: list[Place] = []
        self._shapes, self._softmaxes = Shapes(self._place), Softmaxes(self._place)
        self._activations, self._paddings = Activations(self._place), Paddings(self._place)
        self.broadcast, self.double_softmax = self._shapes.found, self._softmaxes.found
        self.activations, self.padding = self._activations.found, self._paddings.found
        self._open = False
        self._thread = 0
        self._count = 0
        self._used: set[int] = set()
        self._without_graph: dict[int, Cut] = {}
        self._detached: list[tuple[set[int], Cut]] = []
        self._from_input: dict[int, StorageWeakRef] = {}
        self._evaluating = False
        self._instruction = (0, 0)  # the frame, and where in it, that ran the last operator

    # On and off

    def start(self, inputs: Any = None, *, evaluating: bool = False) -> None:
        """Operators are seen from now on; in eval mode (`evaluating`) only those that drop values matter."""
        self._evaluating = evaluating
        if not evaluating and not torch.is_grad_enabled():
            return  # no backward follows
        if compat.is_transforming():
            return  # its tensors have no memory of their own
        if not self._open and not compat.dispatch_modes() and compat.tracer() is None and self.failed is None:
            self._thread, self._open = threading.get_ident(), True
            compat.push_mode(self)
        if self._open and not evaluating:
            for tensor in leaves(inputs, torch.Tensor):
                self._note_input(tensor)

    def is_elsewhere(self) -> bool:
        """Whether it was begun in another thread, which alone can take it off."""
        return self._thread not in (0, threading.get_ident())

    def stop(self) -> None:
        """Takes the mode off, from below whatever modes there are now; another thread's does nothing any more."""
        self._open = False
        if self._thread == threading.get_ident() and any(mode is self for mode in compat.dispatch_modes()):
            compat.take_mode_out(self)

    @calls_the_model
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if self._open and not is_own(sys._getframe(1).f_code) and not (unseen_threads and is_unseen()):
            try:
                self._count += 1
                if self._count > MOST_OPERATORS:
                    self._open = False
                elif self._evaluating:
                    self._see_dropout(func, args)
                else:
                    self._see(func, args, kwargs, out, sys._getframe(1))
            except Exception as error:  # the look ends, and nothing else does
                self._open, self.failed = False, error
        return out

    # What is seen

    def _see(self, func: Any, args: Any, kwargs: Any, out: Any, caller: FrameType) -> None:
        name = func.overloadpacket.__name__ if hasattr(func, "overloadpacket") else str(func)
        taken, made = list(leaves((args, kwargs), torch.Tensor)), list(leaves(out, torch.Tensor))
        self._note_flow(taken, made)
        for tensor in taken:
            if id(tensor) in self._parameters:
                self._note_use(tensor)
        before, self._instruction = self._instruction, (id(caller), caller.f_lasti)
        # Autograd itself detaches results that it keeps, within the instruction that made them.
        if name in ("detach", "detach_") and taken and taken[0].requires_grad and before != self._instruction:
            self._note_detached(taken[0])
        if name in RISKY and len(self.risky) < MOST_CUTS and not _is_harmless(name, args):
            place = self._place.outside(name)
            if place is not None and place not in self.risky:
                self.risky.append(place)
        self._shapes.see(name, taken, made)
        self._softmaxes.see(name, args, taken, made)
        self._activations.see(name, taken, made)
        self._paddings.see(name, args)

    def module_ended(self, name: str, output: Any) -> None:
        """The module of that name has put out these tensors."""
        if self._open and not self._evaluating:
            for tensor in leaves(output, torch.Tensor):
                if _memory(tensor) is not None:
                    self._activations.ended(name, tensor)

    def _note_input(self, tensor: torch.Tensor) -> None:
        if _memory(tensor) is None:
            return
        key = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
        self._from_input[key.cdata] = key

    def _note_flow(self, taken: list[torch.Tensor], made: list[torch.Tensor]) -> None:
        flow = self._from_input
        if any(_memory(one) in flow for one in taken):
            for one in made:
                self._note_input(one)

    def on_input(self, losses: Iterable[torch.Tensor]) -> bool | None:
        """Whether a loss was computed from what came into the model; None where nothing was seen of that."""
        if not self._from_input or not self._open:
            return None
        return any(_memory(loss) in self._from_input for loss in losses)

    def _note_use(self, parameter: torch.Tensor) -> None:
        self._used.add(id(parameter))
        if not torch.is_grad_enabled() and parameter.requires_grad and id(parameter) not in self._without_graph:
            words = "it is used under no_grad"
            if _is_checkpointed():
                words = "it is used in a reentrant checkpoint, whose inputs need no gradient"
            self._without_graph[id(parameter)] = Cut(words, current_line() or "")

    def _note_detached(self, tensor: torch.Tensor) -> None:
        if len(self._detached) < MOST_CUTS:
            below = leaves_below(tensor, CUT_NODES)
            self._detached.append((below, Cut("what is computed from it is detached", current_line() or "")))

    def cut_of(self, parameter: torch.Tensor) -> Cut | None:
        """What cut the graph behind a parameter, the last that did; None where no operator shows it."""
        if (without := self._without_graph.get(id(parameter))) is not None:
            return without
        detached = [cut for below, cut in self._detached if id(parameter) in below]
        if detached:
            return detached[-1]
        seen_all = self.failed is None and 0 < self._count <= MOST_OPERATORS
        return Cut("no operator of the step uses it") if seen_all and id(parameter) not in self._used else None

    def _see_dropout(self, func: Any, args: Any) -> None:
        name = func.overloadpacket.__name__ if hasattr(func, "overloadpacket") else str(func)
        if name in DROPPING and len(self.dropped) < MOST_CUTS and _drops(name, args):
            self.dropped.append(self._place("dropout"))


def _memory(tensor: torch.Tensor) -> int | None:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError, AttributeError):  # sparse, or a subclass without memory of its own
        return None


def _is_harmless(name: str, args: Any) -> bool:
    """A division by a plain number, or a power of one that is no root."""
    other = args[1] if len(args) > 1 else None
    if name == "div":
        return not isinstance(other, torch.Tensor)
    return name == "pow" and isinstance(other, (int, float)) and other >= 1


def _drops(name: str, args: Any) -> bool:
    """Whether an operator is dropout that drops: by its arguments, or by the function that called it."""
    if name in ("dropout", "feature_dropout", "native_dropout"):
        return bool(args[2] if len(args) > 2 else True) and args[1] > 0
    given = len(args) > 1 and isinstance(args[1], (int, float))
    probability = args[1] if given else 0.5
    # Attention drops in C, where no function tells: there it draws with one probability for all.
    is_attention = name == "bernoulli_" and given and args[0].ndim == 4 and args[0].shape[0] > 0
    return name == "_fused_dropout" or (0 < probability < 1 and (is_attention or _is_in_function("drop")))


def _is_in_function(word: str) -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if word in frame.f_code.co_name.lower() and "hookline" not in frame.f_code.co_filename:
            return True
        if frame.f_code is compat.MODULE_CALL:
            return "drop" in type(frame.f_locals["self"]).__name__.lower()
        frame = frame.f_back
    return False


def _is_checkpointed() -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            return True
        frame = frame.f_back
    return False
