"""Hook and Hooks: fastai's hooks that store a result, on this engine.

Same names, arguments and results as fastai's. An operation in place behind the module neither raises
nor changes what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hookline.backends import resolve
from hookline.backends.nouns import Module, Tensor, Tree
from hookline.backends.undoing import Undoing
from hookline.hooks.placing import needs_callable
from hookline.hooks.register import register_backward_hook, register_forward_hook
from hookline.trees import leaves, map_leaves

HookFunction = Callable[[Any, Any, Any], Any]


class Hook(Undoing):
    """A hook on module `m` that keeps the last result of `hook_func(m, input, output)` in `stored`.

    With `is_forward=False` the function gets the gradients of input and output. They are detached,
    moved to the CPU and gathered from all processes before, as asked.

    >>> import torch
    >>> with Hook(torch.nn.ReLU(), lambda m, i, o: o.mean()) as hook:
    ...     _ = hook.module(torch.tensor([-1.0, 2.0]))
    >>> hook.stored
    tensor(1.)
    """

    def __init__(
        self,
        m: Any,
        hook_func: HookFunction,
        is_forward: bool = True,
        detach: bool = True,
        cpu: bool = False,
        gather: bool = False,
    ) -> None:
        super().__init__()
        needs_callable("Hook", "hook_func", hook_func, 3)
        self.module = m
        self.hook_func = hook_func
        self.is_forward, self.detach, self.cpu, self.gather = is_forward, detach, cpu, gather
        self.stored: Any = None
        self.removed = False
        self._backend = resolve(m)
        register = register_forward_hook if is_forward else register_backward_hook
        self.callback(setattr, self, "removed", True)
        self.hook = self.enter_context(register(m, self.hook_fn))

    def hook_fn(self, module: Module, input: Any, output: Tree) -> None:
        """Stores what `hook_func` makes of `module`, `input` and `output`."""
        if self.detach:
            tensor = self._backend.tensor
            live = [*leaves(input, tensor), *leaves(output, tensor)]
            input, output = self._detached(input), self._detached(output)
            result = self.hook_func(module, input, output)
            # What still looks at the module's own memory could be overwritten later.
            result = map_leaves(
                lambda leaf: self._backend.snapshot(leaf) if self._backend.shares_memory(leaf, live) else leaf,
                result,
                tensor,
            )
        else:
            result = self.hook_func(module, input, output)
        self.stored = result

    def _detached(self, tree: Tree) -> Any:
        def prepared(leaf: Tensor) -> Any:
            leaf = self._backend.detached(leaf)
            if self.gather:
                leaf = self._backend.gathered(leaf)
            return leaf.cpu() if self.cpu else leaf

        return map_leaves(prepared, tree, self._backend.tensor)

    remove = Undoing.close
    """Takes the hook off the module; a second time does nothing."""


class Hooks(Undoing):
    """A Hook on each module of `ms`; `stored` has the result of each, in order."""

    def __init__(
        self,
        ms: Iterable[Any],
        hook_func: HookFunction,
        is_forward: bool = True,
        detach: bool = True,
        cpu: bool = False,
    ) -> None:
        super().__init__()
        self.hooks: list[Hook] = []
        try:
            for m in ms:
                self.hooks.append(self.enter_context(Hook(m, hook_func, is_forward, detach, cpu)))
        except BaseException:
            self.remove()
            raise

    @property
    def stored(self) -> list[Any]:
        """What each hook stored last."""
        return [hook.stored for hook in self.hooks]

    remove = Undoing.close
    """Takes all hooks off."""

    def __getitem__(self, index: int) -> Hook:
        return self.hooks[index]

    def __len__(self) -> int:
        return len(self.hooks)

    def __iter__(self) -> Iterator[Hook]:
        return iter(self.hooks)


def hook_output(module: Module, detach: bool = True, cpu: bool = False, grad: bool = False) -> Hook:
    """A Hook that stores the output of `module`, or with `grad` the gradients of its outputs, a tuple."""
    return Hook(module, _output, is_forward=not grad, detach=detach, cpu=cpu)


def hook_outputs(modules: Iterable[Any], detach: bool = True, cpu: bool = False, grad: bool = False) -> Hooks:
    """Hooks that store the output of each module, or with `grad` the gradients of its outputs."""
    return Hooks(modules, _output, is_forward=not grad, detach=detach, cpu=cpu)


def _output(module: Module, input: Any, output: Tree) -> Any:
    return output
