"""Entry: the compiled call of a module, and what stands in for it while somebody wants that."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from hookline.backends.changing import changing
from hookline.backends.torch.compat import IN_PLACE, call_as_written, calls_the_model, compiler_behind
from hookline.backends.undoing import Undoing


def compiler_of(module: torch.nn.Module) -> str:
    """The backend of torch.compile by which a module is compiled, by name; that of its class if it has none."""
    backend = _backend(module)
    return str(getattr(backend, "compiler_name", None) or getattr(backend, "__name__", type(backend).__name__))


def has_pass_of_its_own(module: torch.nn.Module) -> bool:
    """Whether a module was compiled with options that put another pass in the place of `compat.inductor_pass`."""
    return "post_grad_custom_post_pass" in getattr(_backend(module), "config", ())


def _backend(module: torch.nn.Module) -> Any:
    stood_in_for = _compiled_calls.get(module)
    call = getattr(module, IN_PLACE) if stood_in_for is None else stood_in_for.compiled
    return compiler_behind(module, call)


class CompiledCall:
    """A module's compiled call, and what stands in for it: in any order, from any thread."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._name = IN_PLACE if getattr(module, IN_PLACE) is not None else "forward"
        self.compiled = getattr(module, self._name)
        self.contexts: list[Callable[[], Any]] = []
        self.as_written: list[object] = []

    def change(self, module: torch.nn.Module) -> None:
        """Puts in place what is wanted now: the compiled call itself if nothing is."""
        if not self.contexts and not self.as_written:
            object.__setattr__(module, self._name, self.compiled)
            _compiled_calls.pop(module, None)
            return
        run = self.compiled
        if self.as_written:
            run = call_as_written(module, self._name)
        for context in self.contexts:
            run = _within(context, run)
        object.__setattr__(module, self._name, run)


_compiled_calls: weakref.WeakKeyDictionary[torch.nn.Module, CompiledCall] = weakref.WeakKeyDictionary()


def _within(context: Callable[[], Any], run: Callable[..., Any]) -> Callable[..., Any]:
    @calls_the_model
    def call(*args: Any, **kwargs: Any) -> Any:
        with context():
            return run(*args, **kwargs)

    return call


def around_compiled(undoing: Undoing, module: torch.nn.Module, context: Callable[[], Any]) -> None:
    """Has calls of a compiled module run within `context()`."""
    _stand_in(undoing, module, "contexts", context)


def run_as_written(undoing: Undoing, module: torch.nn.Module) -> None:
    """Has a compiled module run its own code."""
    _stand_in(undoing, module, "as_written", object())


def _stand_in(undoing: Undoing, module: torch.nn.Module, kind: str, placement: Any) -> None:
    undoing.noted(_set_stand_in, weakref.ref(module), kind, placement, False)
    _set_stand_in(weakref.ref(module), kind, placement, True)


@changing
def _set_stand_in(held: weakref.ref[torch.nn.Module], kind: str, placement: Any, wanted: bool) -> None:
    if (module := held()) is None:
        return
    call = _compiled_calls.get(module)
    if call is None and wanted:
        call = _compiled_calls[module] = CompiledCall(module)
    if call is not None:
        others = [other for other in getattr(call, kind) if other != placement]
        setattr(call, kind, [*others, placement] if wanted else others)
        call.change(module)
