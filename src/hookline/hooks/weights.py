"""Weights: the open edits of each weight, and which numbers it has for them.

A weight is one memory for the whole process, and so is an edit of it. While several blocks are open, it has what
their edits make of its own numbers, in the order of entering, and blocks may be left in any order. Two threads or
tasks whose blocks know nothing of each other would silently compute with each other's numbers, so the second is
refused.

Every step may be cut short by an interrupt. A block notes what it touches before it does, and leaving goes by
these notes, so that it can be done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from hookline.alone import Alone
from hookline.backends.protocol import HeldWeight
from hookline.errors import InvalidArgument, Unsupported
from hookline.hooks.session import Session, opened

_stacks: list[Stack] = []


_alone = Alone()
"""No function of a user is called in there."""


class Layer(Protocol):
    """One edit of one weight."""

    site: str
    weight: HeldWeight

    def made(self, numbers: Any) -> Any:
        """What it makes of `numbers`; of the same object, the same as before."""

    def known(self, numbers: Any) -> tuple[Any] | None:
        """The same, in a tuple, if no function of a user has to be asked for it."""

    def ended(self, remark: str) -> None:
        """It is in force no longer; `remark` is what there is to say of that time."""


class Stack:
    """A weight and the edits of it that are open, each with its block, in the order of entering."""

    def __init__(self, weight: HeldWeight) -> None:
        self.weight = weight
        self.layers: tuple[tuple[Block, Layer], ...] = ()

    def make(self) -> tuple[Layer, Exception] | None:
        """Has computed what `settle` needs, by users' functions; the first that fails, and how."""
        numbers = self._own()
        for _, layer in self.layers:
            try:
                numbers = layer.made(numbers)
            except Exception as error:
                return layer, error
        return None

    @_alone
    def _own(self) -> Any:
        return self.weight.own()

    def planned(self) -> tuple[Any] | None:
        """What the weight is to hold, in a tuple; None where that has to be made first."""
        numbers = self.weight.own()
        for _, layer in self.layers:
            if (known := layer.known(numbers)) is None:
                return None
            (numbers,) = known
        return (numbers,)

    def settle(self, numbers: Any) -> None:
        """Has the weight hold these numbers; a stack without edits is forgotten, once its weight has its own."""
        if numbers is not self.weight.own():
            self.weight.put(numbers)
            return
        self.weight.restore()
        if not self.layers:
            self.weight.release()
            _stacks[:] = [stack for stack in _stacks if stack is not self]

    @_alone
    def without(self, unwanted: Block | Layer) -> None:
        """Takes the edits of a block off, or one edit; the weight is as it was until `settle`."""
        self.layers = tuple(pair for pair in self.layers if unwanted not in pair)


class Block:
    """The weight edits of one `with` block; `tensors` are all those that calls of its model compute with."""

    def __init__(self, backend: str, session: Session, layers: Sequence[Layer], tensors: Sequence[Any]) -> None:
        self._backend, self._session, self._layers = backend, session, layers
        self._tensors = {id(tensor): tensor for tensor in tensors}
        self._touched: list[tuple[Stack, Layer]] = []
        self._begun = False
        self._line = ""

    def begin(self) -> None:
        """From now on `leave` is to be called before it is entered again."""
        self._begun = True

    def refuse_twice(self) -> None:
        """InvalidArgument where it was entered and not left."""
        if self._begun:
            raise InvalidArgument(
                "this block of edits is open already, and leaving it once would end both. "
                "Make one for each `with`: hookline.edit(model, ...)."
            )

    def enter(self, line: str) -> None:
        """Has all its edits in force. Where it raises, `leave` is to be called."""
        self._line = line
        self._claim()
        for error in _settled(self._touched, failing_may_go=False):
            raise error

    def leave(self) -> None:
        """Has none of its edits in force; a second time does nothing, or what the first was kept from."""
        for stack, _ in self._touched:
            stack.without(self)
        errors = _settled(self._touched, failing_may_go=True)
        for stack, layer in self._touched:
            layer.ended(stack.weight.remark())
        self._touched = []
        self._begun = False
        for error in errors:
            raise error

    @_alone
    def _claim(self) -> None:
        """Puts its edits on top of those that are open."""
        for stack in [stack for stack in _stacks if not stack.layers]:
            stack.settle(stack.weight.own())  # of a block that is just being left
        self._refuse_strangers()
        found = {id(tensor): stack for stack in _stacks for tensor in stack.weight.objects()}
        for layer in self._layers:
            stack = found.setdefault(id(layer.weight.objects()[-1]), Stack(layer.weight))
            self._touched.append((stack, layer))
        for stack, layer in self._touched:
            if stack not in _stacks:
                _stacks.append(stack)
            stack.layers = (*stack.layers, (self, layer))

    def _refuse_strangers(self) -> None:
        """Raises where a block that this thread or task knows nothing of edits what this one computes with."""
        mine = {id(tensor) for layer in self._layers for tensor in layer.weight.objects()}
        for stack in _stacks:
            theirs = {id(tensor) for tensor in stack.weight.objects()}
            for block, layer in stack.layers:
                if block._session.number in opened():
                    continue
                if not theirs.isdisjoint(self._tensors) or not mine.isdisjoint(block._tensors):
                    raise Unsupported(
                        backend=self._backend,
                        feature=f"an edit of {self._layers[0].site!r} while a block of another thread or task "
                        f"({block._line}) edits {layer.site!r}",
                        why="a weight is one memory for all threads; each would compute with the other's numbers",
                        instead="take turns, by a lock, or give each thread a copy of the model",
                    )


def _settled(touched: list[tuple[Stack, Layer]], *, failing_may_go: bool) -> list[Exception]:
    """Has each weight hold what its open edits make of it, all at once; what was raised meanwhile.

    Leaving one block can have an edit of another made anew. One that fails then is in force no longer.
    """
    stacks = list({id(stack): stack for stack, _ in touched}.values())
    errors = []
    while True:
        for stack in stacks:
            while (failure := stack.make()) is not None:
                layer, error = failure
                errors.append(error)
                if not failing_may_go:
                    return errors
                layer.ended("made anew when a block before it was left, it raised, and is in force no longer")
                stack.without(layer)
        if _settle(stacks):
            return errors


@_alone
def _settle(stacks: list[Stack]) -> bool:
    """Settles all of them, if it is known for each what it is to hold."""
    plans = [stack.planned() for stack in stacks]
    if None in plans:
        return False
    for stack, plan in zip(stacks, plans, strict=True):
        if plan is not None:
            stack.settle(*plan)
    return True
