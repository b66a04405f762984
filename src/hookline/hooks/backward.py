"""HookBackward: a hook on the gradient at one point of a forward's code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hookline.backends import enter_loaded, of_tensor
from hookline.backends.capabilities import capabilities
from hookline.backends.hook_point import Point
from hookline.backends.protocol import Backend, JointSink, Label
from hookline.errors import InvalidArgument
from hookline.hooks.placing import needs_callable
from hookline.hooks.replacing import GradientStructure, call_hook

_LABEL = Label("HookBackward", "gradient hook", "HookBackward")


class HookBackward(Point):
    """Identity in the forward; in the backward, `fn((grad,))` sees the gradient at this point.

    What `fn` returns, a tensor or a tuple, goes on in place of it. With several tensors, `fn` gets
    the gradients of all of them.

    >>> import torch
    >>> x = torch.tensor(1.0, requires_grad=True)
    >>> hook = HookBackward(lambda grads: print(grads))
    >>> (hook(x * 2) * 3).backward()
    (tensor(3.),)
    >>> x.grad
    tensor(6.)
    """

    def __init__(self, fn: Callable[[tuple[Any, ...]], Any]) -> None:
        needs_callable("HookBackward", "fn", fn, 1)
        self._fn = fn
        enter_loaded()  # it may be called for the first time by code that is being compiled

    @property
    def __parse_method__(self) -> Any:
        """What MindSpore's compiler asks for, and nobody else: a user's function has no compiled form there."""
        raise capabilities()["mindspore"].unsupported("compiled", "HookBackward in compiled code")

    def listening(self, tensors: tuple[Any, ...]) -> tuple[Backend, JointSink]:
        if not tensors:
            raise InvalidArgument("HookBackward needs a tensor: z = hook(z), or a, b = hook(a, b).")
        backend = of_tensor(tensors[0])
        backend.framework.need("hook_backward")
        if wrong := [type(t).__name__ for t in tensors if not isinstance(t, backend.tensor)]:
            raise InvalidArgument(f"HookBackward: expected tensors of one framework, got a {wrong[0]}.")
        gradients = GradientStructure(backend, tensors, "HookBackward", "gradient hook", wrap=False)
        fn = backend.hooked(self._fn, _LABEL)

        def sink(grads: list[Any]) -> list[Any] | None:
            new = call_hook("HookBackward", "gradient hook", fn, gradients.shown(grads))
            return gradients.taken(new, grads)

        return backend, sink
