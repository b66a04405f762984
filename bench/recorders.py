"""Recorders: ways to keep the output of every leaf module, each over the whole cycle.

A recorder is called with a model of its own and an input; it attaches, runs, detaches and returns what
it has. Its `read` turns that into {name: [value of each call]} when the clock has stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

import hookline
from bench.models import is_leaf, leaves

Values = dict[str, list[Any]]
BLOCK = 1 << 22


def raw(model: nn.Module, x: torch.Tensor, keep: Callable[[Any], Any], *, containers: bool = False) -> Values:
    """Torch's own hooks; `keep` is what is done to each output."""
    held: Values = {}

    def after(name: str, module: Any, args: Any, output: Any) -> None:
        held.setdefault(name, []).append(keep(output))

    chosen = dict(model.named_modules()) if containers else leaves(model)
    with ExitStack() as handles:
        for name, module in chosen.items():
            handles.enter_context(module.register_forward_hook(partial(after, name)))
        model(x)
    return held


def reference(output: torch.Tensor) -> torch.Tensor:
    return output.detach()


def clone(output: Any) -> Any:
    return output.detach().clone() if isinstance(output, torch.Tensor) else output


def fastai(model: nn.Module, x: torch.Tensor) -> Values:
    """The real fastai, where it is installed."""
    from fastai.callback.hook import hook_outputs

    chosen = leaves(model)
    with hook_outputs(list(chosen.values())) as hooks:
        model(x)
    return {name: [hook.stored] for name, hook in zip(chosen, hooks, strict=True)}


class FastaiLike:
    """What fastai's Hook does on each call, written anew: detach what goes in and out, keep one result."""

    def __init__(self, module: nn.Module) -> None:
        self.kept: Any = None
        self.handle = module.register_forward_hook(self.after)

    def after(self, module: Any, args: Any, output: Any) -> None:
        _, self.kept = _detached(args), _detached(output)


def _detached(tree: Any) -> Any:
    if isinstance(tree, (tuple, list)):
        return type(tree)(_detached(part) for part in tree)
    return tree.detach() if isinstance(tree, torch.Tensor) else tree


def fastai_like(model: nn.Module, x: torch.Tensor) -> Values:
    hooks = {name: FastaiLike(module) for name, module in leaves(model).items()}
    try:
        model(x)
    finally:
        for hook in hooks.values():
            hook.handle.remove()
    return {name: [hook.kept] for name, hook in hooks.items()}


class Nnsight:
    """nnsight's tracer.cache(); wrapping the model is not timed, it is done once for a model."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.wrapped: Any = None

    def __call__(self, x: torch.Tensor) -> Any:
        wrapped = self.wrapped or self._wrap()
        with wrapped.trace(x) as tracer:
            cache = tracer.cache(modules=self.paths).save()  # nnsight runs this block itself
        return cache

    def _wrap(self) -> Any:
        from nnsight import NNsight

        self.wrapped = NNsight(self.model)
        self.paths = [f"model.{name}" for name in leaves(self.model)]
        return self.wrapped

    def read(self, cache: Any) -> Values:
        kept = {key.removeprefix("model."): cache[key].output for key in cache.keys()}  # noqa: SIM118
        return {name: value if isinstance(value, list) else [value] for name, value in kept.items()}


def captum(model: nn.Module, x: torch.Tensor, names: Iterable[str]) -> Values:
    """captum's LayerActivation; it raises a KeyError for a module that is not called, so `names` are told."""
    from captum.attr import LayerActivation

    chosen = {name: model.get_submodule(name) for name in names}
    kept = LayerActivation(model, list(chosen.values())).attribute(x)
    return {name: [value] for name, value in zip(chosen, kept, strict=True)}


def ours(model: nn.Module, x: torch.Tensor, where: Any = is_leaf) -> hookline.Recording:
    with hookline.record(model, where) as recording:
        model(x)
    return recording


def read_ours(recording: hookline.Recording) -> Values:
    return {name: [call.output for call in recording[name].calls] for name in recording.names}


@contextmanager
def empty_pool() -> Iterator[None]:
    """As in the first recording of a process: hookline has no memory yet that it could use again.

    Afterwards it has as much as before, which has been touched: the next case is not a first one.
    """
    from hookline.backends import _direct  # inner names: only this case is lost if they go
    from hookline.backends.torch.values import release_memory

    before, _ = _direct.held()
    release_memory()
    yield
    blocks = []
    while _direct.held()[0] < before:
        blocks.append(_direct.Memory(BLOCK))
        memoryview(blocks[-1])[:] = bytes(BLOCK)
