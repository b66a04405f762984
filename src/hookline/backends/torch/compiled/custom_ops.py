"""Custom ops: the operators of our own that stand in a graph where a tap looks in.

All but `copied` have an effect, in torch's sense: they are neither dropped nor merged, and run in the order of the
program. Defined by `torch.library.Library`, not `custom_op`, which costs four times as much for each call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from hookline.backends.torch import compat
from hookline.backends.torch.compiled import doors
from hookline.backends.torch.compiled.tickets import Ticket, looking, ticket_of
from hookline.errors import Unsupported
from hookline.trees import leaves, mismatch

Tensor = torch.Tensor


@cache
def define() -> torch.library.Library:
    """Makes the operators known to torch; called when a tap is traced for the first time."""
    library = torch.library.Library("hookline", "DEF")  # type: ignore[no-untyped-call]

    def operator_without_effect(schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> Any:
        name = schema.partition("(")[0]
        library.define(schema)  # type: ignore[no-untyped-call]
        library.impl(name, run, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"hookline::{name}", fake, lib=library)
        return getattr(torch.ops.hookline, name).default

    def operator(schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> None:
        compat.effectful(operator_without_effect(schema, run, fake))

    operator("seen(Tensor[] values, SymInt[] numbers, int door, Tensor? last=None) -> Tensor", _seen, _ticket)
    operator(
        "passed(Tensor[] values, SymInt[] numbers, int count, int door) -> (Tensor[], Tensor)",
        _passed,
        lambda values, numbers, count, door: (_like(values[len(values) - count :]), _ticket()),
    )
    operator(
        "passed_backward(Tensor[] values, Tensor[] grads, Tensor ticket) -> Tensor[]",
        _passed_backward,
        lambda values, grads, ticket: _like(values),
    )
    operator_without_effect(
        "copied(Tensor value, int number) -> Tensor", _copy_of, lambda value, number: torch.empty_like(value)
    )
    operator(
        "heard(Tensor grad, Tensor? ticket, int place, int door) -> ()",
        _heard,
        lambda grad, ticket, place, door: None,
    )
    operator(
        "gated(Tensor[] grads, Tensor? ticket, int[] places, int door) -> Tensor[]",
        _gated,
        lambda grads, ticket, places, door: _like(grads),
    )
    torch.library.register_autograd("hookline::copied", lambda ctx, grad: (grad, None), lib=library)
    torch.library.register_autograd(
        "hookline::passed", _back_through_passed, setup_context=_keep_for_passed, lib=library
    )
    torch.library.register_vmap("hookline::gated", _gated_batch, lib=library)
    return library


def _gated_batch(info: Any, dims: Any, grads: list[Tensor], *rest: Any) -> Any:
    """Of a batch that torch.func.vmap made: the gradients of all of it at once."""
    return torch.ops.hookline.gated(grads, *rest), dims[0]


def _ticket(*_: Any) -> Tensor:
    return torch.empty((), dtype=torch.int64)


def _like(tensors: Any) -> list[Tensor]:
    return [torch.empty_like(tensor) for tensor in tensors]


def _copied(tensors: Any, like: Any) -> list[Tensor]:
    """Copies laid out as torch was told that they would be."""
    return [torch.empty_like(old).copy_(new) for new, old in zip(tensors, like, strict=True)]


# Values


def _seen(values: list[Tensor], numbers: list[int], door: int, last: Tensor | None = None) -> Tensor:
    """A ticket; the tap is called. `last` is the ticket of the look before, which keeps looks in order."""
    found = doors.door(door)
    own = Ticket(found.live)
    if compat.in_recompute():  # by the backend "eager", which runs checkpoints as they are: the first call counts
        return own.tensor()
    if found.remembers:
        found.latest = own
    if (at := found.open()) is not None:
        module, tap = at
        if tap.needs.grads and not tap.needs.joint and compat.compiled_autograd():
            raise _unheard(tap)
        # Other objects each time: a graph writes new values into a tensor of its own, and no version tells.
        args, kwargs, output = found.built([value.detach() for value in values], numbers)
        with looking(own):
            _called(tap, module, args, kwargs, output)
    return own.tensor()


def _unheard(tap: Any) -> Unsupported:
    return Unsupported(
        backend="torch",
        feature=f"gradients of {tap.label.site!r} in compiled code under compiled autograd",
        why="compiled autograd drops what only looks at a gradient from the graphs that it takes in",
        instead="switch compiled autograd off, or use register_backward_hook",
    )


def _passed(values: list[Tensor], numbers: list[int], count: int, door: int) -> tuple[list[Tensor], Tensor]:
    """The values that the tap returns, or copies of those that were there: a graph forbids to hand on its own.

    The tap's own computation is recorded by autograd, for the backward of this operator.
    """
    found = doors.door(door)
    own = Ticket(found.live)
    first = len(values) - count
    at = found.open()
    if at is None:
        return [value.clone() for value in values[first:]], own.tensor()
    module, tap = at
    with compat.autograd_as_outside(record=any(found.live)):
        inputs = [value.detach().requires_grad_(live) for value, live in zip(values, found.live, strict=True)]
        shown = [value.clone() for value in inputs]  # not leaves: a hook may write into what it gets
        args, kwargs, output = found.built(shown, numbers)
        with looking(own):
            new = _called(tap, module, args, kwargs, output)
        old = output if found.after else (args, kwargs)
        new = old if new is None else new if found.after or tap.kwargs else (new, kwargs)
        _same_structure(tap, new, old)
        outputs = list(leaves(new, Tensor))
        own.graph = inputs, outputs
    return _copied([output.detach() for output in outputs], values[first:]), own.tensor()


def _called(tap: Any, module: Any, args: Any, kwargs: Any, output: Any) -> Any:
    before = (module, args, kwargs) if tap.kwargs else (module, args)
    return tap(*before, output) if tap.after else tap(*before)


def _same_structure(tap: Any, new: Any, old: Any) -> None:
    """Unsupported where something else than a tensor was replaced: that is a constant of the graph."""
    changed = mismatch(new, old, Tensor, lambda new, old: "") or _other_values(new, old)
    if changed:
        raise Unsupported(
            backend="torch",
            feature=f"a {tap.label.kind} at {tap.label.site!r} that changes more than tensors",
            why=f"the model is compiled, and what is no tensor is fixed in its graph: {changed}",
            instead="run the model eagerly, or change tensors only",
        )


def _other_values(new: Any, old: Any) -> str:
    plain = (int, float, str)
    for one, other in zip(leaves(new, plain), leaves(old, plain), strict=True):
        if one != other:
            return f"{other!r} became {one!r}"
    return ""


def _keep_for_passed(ctx: Any, inputs: Any, output: Any) -> None:
    values, numbers, count, _ = inputs
    ctx.numbers = len(numbers)
    ctx.floats = [value.is_floating_point() or value.is_complex() for value in values]
    # What the gradients are to look like; where all values were handed on, as the incoming ones.
    kept = [] if len(values) == count else values
    ctx.save_for_backward(output[1], *kept)


def _back_through_passed(ctx: Any, grads: list[Tensor], _: Any) -> Any:
    ticket, *values = ctx.saved_tensors
    back = torch.ops.hookline.passed_backward(values or grads, grads, ticket)
    return (
        [grad if float else None for grad, float in zip(back, ctx.floats, strict=True)],
        [None] * ctx.numbers,
        None,
        None,
    )


def _passed_backward(values: list[Tensor], grads: list[Tensor], ticket: Tensor) -> list[Tensor]:
    own = ticket_of(ticket)
    if own is None or own.graph is None:  # nobody was there in the forward
        return [grad.clone() for grad in grads]
    inputs, outputs = own.graph
    pairs = [(output, grad) for output, grad in zip(outputs, grads, strict=True) if output.requires_grad]
    for one in inputs:
        one.grad = None
    if pairs:
        with compat.autograd_as_outside(record=False):
            # Not autograd.grad: parameters that only the hook uses get their gradients too.
            torch.autograd.backward(
                [output for output, _ in pairs], [grad for _, grad in pairs], retain_graph=True
            )
    return [
        torch.zeros_like(value) if one.grad is None else torch.empty_like(value).copy_(one.grad)
        for one, value in zip(inputs, values, strict=True)
    ]


# Gradients


def _copy_of(value: Tensor, number: int) -> Tensor:
    """A copy that inductor neither leaves out nor shares with another of the same value: they have other numbers.

    An output that a graph gives twice gets the gradient of both at one of its places.
    """
    return torch.empty_like(value).copy_(value)


def _ticket_at(door: int, ticket: Tensor | None) -> Ticket | None:
    """The ticket of the call that a gradient belongs to; where none came, of the latest call at this door."""
    return doors.door(door).latest if ticket is None else ticket_of(ticket)


def _heard(grad: Tensor, ticket: Tensor | None, place: int, door: int) -> None:
    own = _ticket_at(door, ticket)
    if own is not None and own.sink is not None:
        own.sink([place], grad.detach())


def _gated(grads: list[Tensor], ticket: Tensor | None, places: list[int], door: int) -> list[Tensor]:
    """The gradients of these places, as the tap wants them."""
    own = _ticket_at(door, ticket)
    # Copies: a graph uses its memory again, and a hook may keep what it was shown.
    by_place = {place: grad.clone() for place, grad in zip(places, grads, strict=True)}
    new = by_place if own is None else own.jointly(by_place)
    return _copied([new[place] for place in places], grads)
