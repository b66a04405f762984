"""Every private name of torch that hookline uses, and what would replace it.

Checked on torch 2.13. Each entry has a test in tests/test_torch_private.py which fails with a clear
message when a release changes the name or what it does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from operator import attrgetter, methodcaller
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

Hooks = tuple["OrderedDict[int, Any]", "OrderedDict[int, bool]"]


def hook_dicts(module: torch.nn.Module, *, after: bool) -> Hooks:
    """The hooks of a module before or after its forward, and which of them take keyword arguments.

    `register_forward_hook` writes the same entries, and makes a handle with two weak references for
    each: 1.4 us more to attach and as much to remove, on every module. A public way to register one
    hook on many modules would replace this. Read as attributes, never by `vars(module)`: that makes
    Python 3.11 build a real __dict__, which slows every later call of the module.
    """
    if after:
        return module._forward_hooks, module._forward_hooks_with_kwargs  # type: ignore[return-value]
    return module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs  # type: ignore[return-value]


# Tell in which backward, and in which of its nodes, this code runs; -1 and None outside of one.
# A public form of `torch.autograd.graph` would replace them.
graph_task: Callable[[], int] = torch._C._current_graph_task_id
current_node: Callable[[], Any] = torch._C._current_autograd_node

# The number that the next autograd node will get; numbers grow with time. No public form exists.
sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr

# The innermost pair of `saved_tensors_hooks`: how a recompute of torch.utils.checkpoint is known.
_saved_hooks: Callable[[bool], Any] = torch._C._autograd._top_saved_tensors_default_hooks


def fresh_hook_id() -> int:
    """A number that no other hook has; one serves for all modules of one attachment."""
    return int(RemovableHandle(OrderedDict()).id)


def listen(tensor: torch.Tensor, fn: Callable[[torch.Tensor], Any]) -> None:
    """Calls `fn(grad)` whenever the gradient of `tensor` is known; a result replaces it.

    As `tensor.register_hook(fn)`, without the handle that nobody here removes: 2.5 us instead of 7.
    """
    node = tensor.grad_fn
    if node is None or tensor._backward_hooks is not None or type(tensor) is not torch.Tensor:
        tensor.register_hook(fn)  # type: ignore[no-untyped-call]
        return
    tensor._backward_hooks = OrderedDict(((fresh_hook_id(), fn),))
    node._register_hook_dict(tensor)


def tensor_hooks(tensor: torch.Tensor) -> list[Any]:
    """The hooks that were registered on `tensor`."""
    return list((tensor._backward_hooks or {}).values())


# These run several times on every call of a module: made in C, they cost no Python frame.
version: Callable[[torch.Tensor], int] = attrgetter("_version")
"""How often the memory of a tensor was written to by in-place operations."""

is_view: Callable[[torch.Tensor], bool] = methodcaller("_is_view")
"""Whether autograd tracks a tensor as a view of another one."""

node_number: Callable[[Any], int] = methodcaller("_sequence_nr")
"""The sequence number that an autograd node got; see `sequence_number`."""


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor of which autograd tracks `tensor` as a view; None where it is no view."""
    return tensor._base if is_view(tensor) else None


def in_recompute() -> bool:
    """Whether this forward is a recomputation by torch.utils.checkpoint, in either mode."""
    if graph_task() == -1:
        return False
    node = current_node()
    if node is not None and node.name().startswith("CheckpointFunction"):
        return True
    hooks = _saved_hooks(True)
    return bool(hooks) and "_recomputation_hook" in getattr(hooks[0], "__qualname__", "")


def unshared(tensor: torch.Tensor) -> bool:
    """Whether the memory of `tensor` is held by nothing but `tensor` itself (views, numpy, graphs)."""
    storage = tensor.untyped_storage()
    # 2: the tensor's own reference and the one that `storage` makes here.
    return bool(torch._C._storage_Use_Count(storage._cdata) == 2)


def compiled(module: torch.nn.Module) -> bool:
    """Whether `module` runs compiled: wrapped by torch.compile, or after module.compile()."""
    return module._compiled_call_impl is not None or type(module).__name__ == "OptimizedModule"


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that the transforms of torch.func wrapped; `tensor` itself outside of them."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor
