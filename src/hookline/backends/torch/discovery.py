"""Discovery: which models of a process train, found without anybody's telling.

Three signs, the surest first: an optimizer of torch's is made for parameters; a backward reaches parameters, and
no optimizer was made (it is somebody's own); a module is called, and neither has been seen. Whoever listens says
when the weaker signs are no longer wanted, and torch is then as it was at these places.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any, Protocol

import torch
import torch.autograd
from torch import nn
from torch.optim.optimizer import Optimizer

from hookline.backends.patching import Patch
from hookline.backends.torch.compat import is_traced, uncompiled
from hookline.backends.torch.traceback import plain_entries as plain_entries
from hookline.backends.undoing import Undoing

WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)
MOST_LOOKS = 5
"""So many backwards that lead to no module are followed; what is trained then is in none."""


class Listener(Protocol):
    """Who is told. A module that is told of is the top of its tree, without what wraps it."""

    def optimized(self, models: list[nn.Module], optimizer: Any) -> None:
        """An optimizer was made for parameters of these; none, where it holds tensors of no module."""

    def is_known(self, parameters: list[Any]) -> bool:
        """Whether all of these belong to models that were told of."""

    def trained(self, models: list[nn.Module]) -> None:
        """A backward is about to reach parameters of these."""

    def backward_ended(self) -> None:
        """A backward is over."""

    def called(self, module: nn.Module, top: Callable[[], nn.Module]) -> None:
        """A module is about to be called; `top` finds the top of its tree."""


class Discovery:
    """Tells a listener, until what is noted in `undoing` is undone; in this process only, not in forked ones."""

    def __init__(self, undoing: Undoing, listener: Listener) -> None:
        self._listener, self._process = listener, os.getpid()
        self._making: list[Any] = []
        self._looks = 0
        made = [(Optimizer, "__init__"), (Optimizer, "add_param_group")]
        Patch[Discovery](made, self._told_of_optimizers).use(undoing, self)
        self._backwards = Patch[Discovery]([(torch.autograd, "backward")], self._told_of_backwards)
        self._calls = Patch[Discovery]([(nn.Module, "__call__")], self._told_of_calls)
        self._backwards.use(undoing, self)
        self._calls.use(undoing, self)

    def hear(self, *, backwards: bool, calls: bool) -> None:
        """Which of the weaker signs are wanted from now on."""
        for patch, wanted in ((self._backwards, backwards), (self._calls, calls)):
            if wanted and not patch.users:
                patch.add(self)
            elif not wanted and patch.users:
                patch.drop(self)

    def look_around(self) -> None:
        """Tells of the optimizers that there are."""
        for one in gc.get_objects():
            if issubclass(type(one), Optimizer) and "param_groups" in vars(one):
                self._look_at(one)

    @property
    def _is_here(self) -> bool:
        return os.getpid() == self._process

    def _told_of_optimizers(self, make: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(make)
        def making(optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
            if not self._is_here or any(one is optimizer for one in self._making):
                return make(optimizer, *args, **kwargs)  # groups that are added while it is being made
            self._making.append(optimizer)
            try:
                result = make(optimizer, *args, **kwargs)
            finally:
                self._making = [one for one in self._making if one is not optimizer]
            self._look_at(optimizer)
            return result

        return making

    def _look_at(self, optimizer: Optimizer) -> None:
        held = [one for group in optimizer.param_groups for one in group["params"]]
        models = [] if self._listener.is_known(held) else tops_of(held)
        self._listener.optimized(models, optimizer)

    def _told_of_backwards(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(backward)
        def running(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if not (self._backwards.users and self._is_here) or torch.compiler.is_compiling():
                return backward(tensors, *args, **kwargs)
            self._look_below(tensors)
            result = backward(tensors, *args, **kwargs)
            self._listener.backward_ended()
            return result

        return running

    def _look_below(self, tensors: Any) -> None:
        if self._looks >= MOST_LOOKS:
            return
        self._looks += 1
        leaves = list(leaves_of([tensors] if isinstance(tensors, torch.Tensor) else list(tensors)))
        if not self._listener.is_known(leaves):
            self._listener.trained(tops_of(leaves))

    def _told_of_calls(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def calling(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._calls.users and self._is_here and not is_traced():
                self._listener.called(module, lambda: top_of(module))
            return call(module, *args, **kwargs)

        return calling


def tops_of(parameters: Iterable[Any]) -> list[nn.Module]:
    """The models that own these parameters, each the top of its tree, in the order in which they were made.

    All modules that are alive are looked through, as the collector lists them.
    """
    wanted = {id(one) for one in parameters}
    alive = _modules_alive()
    owners = [one for one in alive if any(id(own) in wanted for own in _own(one, "_parameters"))]
    return _tops(alive, owners)


def top_of(module: nn.Module) -> nn.Module:
    """The model that a module is a part of; where there are several, the one that was made first."""
    return _tops(_modules_alive(), [module])[0]


def leaves_of(tensors: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The leaves that a backward from these tensors reaches."""
    stack = [one.grad_fn for one in tensors if isinstance(one, torch.Tensor) and one.grad_fn is not None]
    seen = set(stack)
    while stack:
        node = stack.pop()
        if (leaf := getattr(node, "variable", None)) is not None:
            yield leaf
        for below, _ in node.next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                stack.append(below)


def _modules_alive() -> list[nn.Module]:
    # By type: isinstance asks an object for its class, and some have code that answers.
    return [one for one in gc.get_objects() if issubclass(type(one), nn.Module)]


def _own(module: nn.Module, what: str) -> list[Any]:
    """Own parts or parameters of a module, none where it is still being made."""
    held = vars(module).get(what)
    return [] if held is None else [one for _, one in held.items() if one is not None]


def _tops(alive: list[nn.Module], modules: Iterable[nn.Module]) -> list[nn.Module]:
    above: dict[int, list[nn.Module]] = {}
    for one in alive:
        for part in _own(one, "_modules"):
            above.setdefault(id(part), []).append(one)
    found: dict[int, nn.Module] = {}
    seen: set[int] = set()
    stack = list(modules)[::-1]
    while stack:
        one = stack.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        parents = above.get(id(one), [])
        if parents:
            stack += parents[::-1]
        else:
            inner = unwrapped(one)
            found.setdefault(id(inner), inner)
    return list(found.values()) or [unwrapped(one) for one in modules][:1]  # modules that hold each other


def unwrapped(model: nn.Module) -> nn.Module:
    """The model itself, without what torch.compile, DataParallel or DDP put around it."""
    while True:
        inner = uncompiled(model)
        if isinstance(inner, WRAPPERS):
            inner = inner.module
        if inner is model:
            return model
        model = inner


def is_around(value: Any, model: nn.Module) -> bool:
    """Whether a value is the model, or what wraps it."""
    return issubclass(type(value), nn.Module) and unwrapped(value) is model


def has_parameters(module: nn.Module) -> bool:
    """Whether there is anything to train in it."""
    return next(module.parameters(), None) is not None
