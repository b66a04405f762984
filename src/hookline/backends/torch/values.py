"""Values: copies of tensors that nothing can change later, made cheaply.

What makes a copy dear is fresh memory, not the copying: a large tensor's first touch faults in every
page. Large CPU copies therefore go into buffers that are used again as soon as nobody holds them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

import torch

from hookline.backends.torch.compat import unfollowed, unshared, version
from hookline.errors import Unsupported

LARGE = 64 * 1024
"""Below this many bytes the allocator hands out memory that is warm already."""

_inference_mode = torch.is_inference_mode_enabled
_STRIDED = torch.strided

Key = tuple[torch.Size, tuple[int, ...], torch.dtype]


class Pool:
    """Buffers for large copies; one is free when only the pool holds its memory.

    It keeps at most `limit` bytes alive; copies beyond that get memory of their own.
    """

    def __init__(self, limit: int = 512 * 1024**2) -> None:
        self.limit = limit
        self.held = 0
        self._buffers: dict[Key, deque[torch.Tensor]] = defaultdict(deque)

    def take(self, shape: torch.Size, stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised CPU tensor of this shape that nobody else uses."""
        buffers = self._buffers[shape, stride, dtype]
        for _ in range(len(buffers)):
            try:
                buffer = buffers.popleft()  # while it is out of the queue, no other thread sees it
            except IndexError:
                break
            # The pool keeps `buffer` and hands out an alias, so whatever a user does to the alias
            # (requires_grad_, attributes) is gone with it.
            alias = buffer.detach() if unshared(buffer) else None
            buffers.append(buffer)
            if alias is not None:
                return alias
        fresh = torch.empty_strided(shape, stride, dtype=dtype)
        size = fresh.numel() * fresh.element_size()
        if self.held + size > self.limit:
            return fresh
        self.held += size
        alias = fresh.detach()
        buffers.append(fresh)
        return alias

    def clear(self) -> None:
        """Gives all memory back that no recording holds."""
        self._buffers.clear()
        self.held = 0


POOL = Pool()


def snapshot(tensor: torch.Tensor, device: Any = None, dtype: Any = None) -> torch.Tensor:
    """A copy of `tensor` that no later operation can change, without history.

    It is an ordinary tensor even when taken in inference mode, so that it can be used anywhere.
    """
    if type(tensor) is not torch.Tensor and torch.compiler.is_exporting():
        raise not_exported("a recording")
    if tensor.requires_grad:
        tensor = tensor.detach()
    if device is dtype is None and tensor.layout is _STRIDED and tensor.nbytes < LARGE and not _inference_mode():
        return tensor.clone()
    if dtype is not None and not tensor.is_floating_point():
        dtype = None  # token ids and masks stay what they are
    if _inference_mode():
        with torch.inference_mode(False):
            return _copy(tensor, device, dtype)
    return _copy(tensor, device, dtype)


unfollowed(snapshot)


def not_exported(feature: str) -> Unsupported:
    """The error for what belongs to this process, where a program is made for others."""
    return Unsupported(
        backend="torch",
        feature=f"{feature} while torch.export makes a program",
        why="what it calls is in this process, and the program runs in others",
        instead="use hookline.mark for values; edits and hooks that replace stay in a program with strict=False",
    )


def _copy(tensor: torch.Tensor, device: Any, dtype: Any) -> torch.Tensor:
    if device is not None or tensor.layout is not torch.strided or type(tensor) is not torch.Tensor:
        return tensor.to(device=device, dtype=dtype, copy=True)
    if tensor.numel() * tensor.element_size() < LARGE or not tensor.is_cpu:
        return tensor.clone() if dtype is None else tensor.to(dtype, copy=True)
    stride = tensor.stride()
    if not (tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.channels_last)):
        stride = torch.empty(tensor.shape, device="meta").stride()
    return POOL.take(tensor.shape, stride, dtype or tensor.dtype).copy_(tensor)


def unlike(new: torch.Tensor, old: torch.Tensor) -> str:
    """Why `new` can't stand in for `old`; empty if it can."""
    if new.shape != old.shape:
        return f"shape {tuple(old.shape)} is wanted, {tuple(new.shape)} came"
    if new.dtype != old.dtype:
        return f"{old.dtype} is wanted, {new.dtype} came"
    if new.device != old.device:
        return f"a tensor on {old.device} is wanted, one on {new.device} came"
    return ""


def owned(value: torch.Tensor, source: torch.Tensor, device: Any = None, dtype: Any = None) -> torch.Tensor:
    """`value`, made from `source` by a user's function, as a tensor that holds just its own memory.

    A slice is copied: as a view it would keep all of `source` alive, and change with it.
    """
    storage = value.untyped_storage() if value.layout is torch.strided else None
    moved = device is not None or (dtype is not None and value.dtype != dtype)
    if (
        storage is None
        or moved
        or value.requires_grad
        or value.is_inference()
        or storage.nbytes() > value.numel() * value.element_size()
        or storage.data_ptr() == source.untyped_storage().data_ptr()
    ):
        return snapshot(value, device, dtype)
    return value


def fitted(value: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """`value` on the device and in the dtype of `old`: a recorded value that is put back."""
    return value.to(device=old.device, dtype=old.dtype)


def written_since(views: list[tuple[torch.Tensor, int]]) -> bool:
    """Whether one of these (tensor, version) pairs was written to in place since."""
    return any(version(tensor) != before for tensor, before in views)


def shares_memory(tensor: torch.Tensor, others: list[torch.Tensor]) -> bool:
    """Whether `tensor` looks at the memory of one of the others."""
    if tensor.layout is not torch.strided:
        return any(tensor is other for other in others)
    pointer = tensor.untyped_storage().data_ptr()
    return any(other.layout is torch.strided and other.untyped_storage().data_ptr() == pointer for other in others)


def gathered(tensor: torch.Tensor) -> torch.Tensor:
    """The tensors of all processes behind each other, the mean of scalars; `tensor` where it is alone."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return tensor
    parts = [torch.empty_like(tensor) for _ in range(distributed.get_world_size())]
    distributed.all_gather(parts, tensor.contiguous())
    return torch.stack(parts).float().mean() if tensor.ndim == 0 else torch.cat(parts)
