"""Simple: calls whose gradients hooks on nodes tell: one made the only output, one feeds the inputs.

Most calls of most models are such, and one tensor enters them and one leaves. These are plain: no port is made
for them, nothing is walked but the few nodes of the call, and the passage itself is the hook. `_simple.c` does all
that is done for a plain call, and finds out whether a call is simple; here is what few of them need. Without it no
call is simple, and a backward looks all of them up.

Plain is a call that a tensor entered and left which is no view, which nobody else has when it leaves, in which no
other call has to be looked up, which nobody else has hooked, and which no mode looks at.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from hookline.backends.torch import compat
from hookline.backends.torch.grads.leaves import kept
from hookline.backends.torch.grads.marks import VIEW, every_passage, replacing
from hookline.backends.torch.grads.ports import FOREVER, ONLY, Port, is_looked_up
from hookline.backends.torch.grads.threads import here, threads

if TYPE_CHECKING or find_spec("hookline.backends.torch.grads._simple") is not None:
    from hookline.backends.torch.grads import _simple

    Heard = _simple.Simple
    _simple.bind(
        here=here,
        threads=threads,
        kept=kept,
        tensor=torch.Tensor,
        every_passage=every_passage,
        replacing=replacing,
        only=ONLY,
        sequence_number=compat.sequence_number,
        graph_task=compat.graph_task,
        is_view=compat.is_view,
        grad_enabled=torch.is_grad_enabled,
        tracer=compat.tracer,
        function_depth=compat.function_depth,
        dispatch_depth=compat.dispatch_depth,
        number_name=compat.NUMBER,
    )
else:  # there was no compiler when hookline was installed
    from hookline.backends.torch.grads.unheard import Unheard as Heard

Sent = tuple[tuple[int, tuple[int, ...]], ...]
"""Which of the gradients that a node sends go to which port: its index, and the port's numbers."""


class Simple(Heard):
    """One call, as long as it is simple: who is told what comes by; `Passage` is the whole of it.

    `Simple(sink)` tells each gradient to a `passing.Told`; with `joint` the sink is a `passing.Asked`. Where only
    outputs are of interest there is no sink: `on_output` is told each gradient, or `joint_out` gets all at once
    and may replace them.

    `entered` is the edge of the only tensor that entered, if it did so plainly: then there is no port for it yet.
    `of_leaf`: that tensor is a view which stands for a leaf. `live` inputs need a gradient. `remark` says what
    looking may have changed. `by_ledger`: the backward under way looks a simple passage up all the same. `told_in`
    is the last backward in which an output had a gradient. `span` is one for all passages of a call, which may
    have made views in between. `mixed`: views came in, or copies had to be made, so it is not plain. `before` is
    how many passages of this thread had to be looked up when it was entered. `marks`: see `marks.Kind`.
    """

    # In the forward

    def enter_anyhow(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """What `enter` does of a call that is not plain."""
        raise NotImplementedError

    def leave_anyhow(self, output: Any, call: int, references: int) -> Any:
        """What `leave` does of a call that is not plain; it may be simple all the same."""
        raise NotImplementedError

    def is_claimed(self, node: Any) -> bool:
        """Whether somebody else's port at this node is to be settled before or after: it is looked up, or it
        replaces what comes to the output of another call."""
        if is_looked_up(node, self):
            return True
        return replacing.alive() is not None and any(other.group != self.group for other in replacing_at(node))

    def keep_view(self) -> None:
        """Notes that a backward need not look after the view of a leaf for this call.

        What comes to it is one gradient, and it is sent on before anything else may add to that of the leaf.
        """
        assert self.entered is not None
        self.entered[0].metadata[VIEW] = self.marks

    def lay_out(self) -> None:
        """Makes the ports of a plain call: it has to be looked up."""
        self.lay_out_input()
        if not self.outputs:
            port = Port(ONLY, outward=True)
            port.low, port.high = self.span[1], FOREVER
            self.outputs = (port,)

    def lay_out_input(self) -> None:
        if self.entered is not None:
            port = Port(ONLY, outward=False)
            port.edge, port.low, port.high = self.entered, self.start, self.span[1]
            self.inputs, self.entered = (port,), None

    # In a backward

    def told_several(self, grads: Any) -> None:
        """Tells the gradients of several inputs, or of one that came by several edges."""
        for numbers, grad in _totals(self.sent or (), grads).items():
            if grad is not None:
                self.sink._hear_input(numbers, grad)

    def asked_inputs(self, grads: Any) -> Any:
        """What to go on with where a hook may replace the gradient of an input that came by several edges, or
        stands among others."""
        assert self.joint and self.sent
        ((numbers, grad),) = _totals(self.sent, grads).items()  # see `hear`
        if self.of_leaf and grad is not None:
            grad = grad.clone()  # as `Backward._shown`
        shown: list[Any] = [None] * self.places_in
        for number in numbers:
            shown[number] = grad
        new = self.sink._ask(shown)
        if new is None or new[numbers[0]] is grad:
            return None
        result = list(grads)
        for index, _ in self.sent:
            result[index] = None
        result[self.sent[0][0]] = new[numbers[0]]
        return tuple(result)


def _totals(sent: Sent, grads: Any) -> dict[tuple[int, ...], Any]:
    """The gradient of each port: x * x sends two to one input."""
    totals: dict[tuple[int, ...], Any] = {}
    for index, numbers in sent:
        before, grad = totals.get(numbers), grads[index]
        totals[numbers] = grad if before is None else before if grad is None else before + grad
    return totals


def simple_at(node: Any) -> list[Any]:
    """The simple passages that are told what comes to an output of this node: their hooks are on it.

    What a handle refers to are all hooks of a node. It costs less to ask for them where one has to know, in a
    second derivative, than to note each passage: 1.7 us for each call.
    """
    return _passages_of(node.register_hook, "__call__", "tell_output")


def replacing_at(node: Any) -> list[Any]:
    """The simple passages that replace what comes to an output of this node."""
    return _passages_of(node.register_prehook, "ask_output")


def _passages_of(register: Callable[[Any], Any], *methods: str) -> list[Any]:
    """The passages of which one of these methods is a hook; the passage itself is its `__call__`."""
    handle = register(_nothing)
    hooks = list((handle.hooks_dict_ref() or {}).values())
    handle.remove()
    found = [(hook, "__call__") if isinstance(hook, Simple) else _method(hook) for hook in hooks]
    return [owner for owner, method in found if isinstance(owner, Simple) and method in methods]


def _method(hook: Any) -> tuple[Any, str]:
    return getattr(hook, "__self__", None), getattr(hook, "__name__", "")


def _nothing(*grads: Any) -> None:
    """A hook that is taken off at once."""
