"""Gradients: an identity whose backward is ours, for one array or for several at once.

The outputs look at the memory of the inputs: nothing is copied in the forward. `autograd.Function` would do
the same, but in MXNet 1.9.1 it loses the gradient of an array with grad_req "add", and those of all inputs
behind one that needs none; see test_mxnet_canaries.py.

MXNet runs a backward in threads of its own and reuses the memory of gradients as soon as this code returns:
whoever keeps a gradient must copy it at once, and the copy must be done by then. (`autograd.Function` does not
wait, and in nets with convolutions hands on gradients that are not written yet, now and then.)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

from mxnet import autograd

from hookline.backends.mxnet import compat
from hookline.backends.mxnet.backward import expect_one_less, expect_one_more, keeping_failures
from hookline.backends.mxnet.values import snapshot
from hookline.backends.nouns import Tensor

Backward = Callable[[list[Any]], "list[Any] | None"]
"""Takes the gradients of all outputs, zeros where there is none; may return others."""

WRITE, WRITE_IN_PLACE, ADD = 1, 2, 3

_numbers = itertools.count(1)
_recorded: dict[int, tuple[Backward, list[type], Any]] = {}


def identities(arrays: list[Any], backward: Backward) -> list[Any]:
    """Arrays of the same values, in the graph behind `arrays`; `backward` runs where their gradients pass."""
    outputs = [array.detach() for array in arrays]
    key = next(_numbers)
    callbacks = compat.callback_list(_BACKWARD, _DELETE, key)
    expect_one_more()
    # C++ keeps the address of `callbacks`, so it must live as long as the graph does.
    _recorded[key] = backward, [type(array) for array in arrays], callbacks
    try:
        compat.record_operation(arrays, outputs, callbacks)
    except BaseException:
        _forget(key)
        raise
    return outputs


def joined(arrays: list[Any], fn: Backward) -> list[Any]:
    """As `identities`, with None in place of each gradient that does not come, and copies of the others.

    C++ gives zeros for an output that nobody used. So every output gets an identity of its own behind the joint
    one, whose backward runs only if there is a gradient, and before the joint one's.
    """
    came: set[int] = set()

    def deliver(grads: list[Any]) -> list[Any] | None:
        shown = [snapshot(grad) if number in came else None for number, grad in enumerate(grads)]
        came.clear()
        new = fn(shown)
        if new is None:
            return None
        return [grad if other is None else other for other, grad in zip(new, grads, strict=True)]

    def noted(number: int, grads: list[Any]) -> None:
        came.add(number)

    together = identities(arrays, deliver)
    return [identities([array], partial(noted, number))[0] for number, array in enumerate(together)]


def is_live(tensor: Tensor) -> bool:
    """Whether a gradient may come to this tensor from what is done with it now."""
    return bool(autograd.is_recording()) and tensor.stype == "default" and compat.is_in_graph(tensor)


def _run(outputs: int, inputs: int, handles: Any, requests: Any, training: int, key: int) -> int:
    backward, kinds, _ = _recorded[key]
    grads = [compat.owning(handles[n], kinds[n]) for n in range(outputs)]
    targets = [compat.owning(handles[outputs + n], kinds[n], writable=True) for n in range(inputs)]
    new: list[Any] | None = None
    with keeping_failures():
        new = backward(grads)
    with keeping_failures():
        for target, grad, request in zip(targets, new or grads, requests[:inputs], strict=True):
            if request in (WRITE, WRITE_IN_PLACE):
                target[:] = grad
            elif request == ADD:
                target += grad
    # C++ takes the memory back when this returns, whether what was asked of it is done or not.
    for array in (*grads, *targets):
        compat.wait_until_unused(array)
    return True


def _forget(key: int) -> int:
    if _recorded.pop(key, None) is not None:
        expect_one_less()
    return True


_BACKWARD = compat.BackwardEntry(_run)
_DELETE = compat.DeleteEntry(_forget)
