"""Values: copies of tensors that nothing can change later, made cheaply.

What makes a copy dear is fresh memory, not the copying: a large tensor's first touch faults in every
page. Large CPU copies therefore go into memory that is used again as soon as nobody holds them (`_direct_pool.h`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from hookline.backends.nouns import Copying
from hookline.backends.torch.compat import (
    aside,
    graph_task,
    is_exporting,
    is_fake,
    is_seen,
    unfollowed,
    unwrapped,
    version,
    without_functional,
)
from hookline.backends.torch.unseen import unseen
from hookline.errors import Unsupported
from hookline.trees import leaves

try:
    from hookline.backends import _direct
except ImportError:  # there was no compiler when hookline was installed
    _direct = None  # type: ignore[assignment]

EXCHANGE = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
"""DLPack's table of C functions, in versions of torch that have one."""

LARGE = 64 * 1024
"""From so many bytes on a copy goes into memory of the pool (`_direct_pool.h`)."""

_inference_mode = torch.is_inference_mode_enabled
_STRIDED = torch.strided
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_unknown_versions = itertools.count(-1, -1)

_COPIES = _direct is not None and EXCHANGE is not None


def snapshot(tensor: torch.Tensor, device: Any = None, dtype: Any = None) -> torch.Tensor:
    """A copy of `tensor` that no later operation can change, without history.

    It is an ordinary tensor even when taken in inference mode, so that it can be used anywhere. Inside the
    transforms of torch.func it is what they compute with: under vmap all of the batch, in dims in front.
    """
    if type(tensor) is torch.Tensor:
        if _COPIES and device is dtype is None and not (tensor.is_neg() or _inference_mode()):
            copy: torch.Tensor | None = _direct.copy(EXCHANGE, tensor)
            if copy is not None:
                return copy
    elif is_exporting():
        raise not_exported("a recording")
    if is_seen(tensor):
        with laid_bare(tensor) as bare:
            _refuse_freed(bare)
            return _copy(bare, device, dtype)
    if tensor.requires_grad:
        tensor = tensor.detach()
    _refuse_freed(tensor)
    if device is dtype is None and tensor.layout is _STRIDED and tensor.nbytes < LARGE and not _inference_mode():
        return tensor.clone()
    return _copy(tensor, device, dtype)


unfollowed(snapshot)


def _ordinarily(make: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The tensor that `make` makes, an ordinary one wherever it is asked for."""
    return torch.inference_mode(False)(make)() if _inference_mode() else make()


COPYING: Copying | None = None
"""How C does what `keep` does, and what it has to ask first; see `Backend.copying`."""
_keep_by_c: Callable[[torch.Tensor], Any] = snapshot
if _COPIES:
    COPYING = _direct.keeps, EXCHANGE, _ordinarily, torch.Tensor, torch.Tensor.is_neg, _inference_mode
    _keep_by_c = _direct.keeper(*COPYING[1:], snapshot)


def keep(tensor: torch.Tensor) -> Any:
    """What `snapshot` gives, or a Kept that gives it."""
    # A frame of Python, which can be marked: compiled autograd follows hooks, and can not trace a function of C.
    return _keep_by_c(tensor)


unfollowed(keep)


def release_memory() -> None:
    """Gives the memory back to the system that hookline has for copies, as far as no recording holds it."""
    if _direct is not None:
        _direct.bound(_direct.bound(0))


def _refuse_freed(tensor: torch.Tensor) -> None:
    """Unsupported where there are numbers and no memory for them: to copy that would end the process.

    Of tensors that have their values in memory of their own: other classes and layouts have them elsewhere.
    """
    if type(tensor) not in _PLAIN or not tensor.is_cpu or tensor.layout is not _STRIDED:
        return
    if tensor.is_nested or tensor._is_zerotensor():
        return
    if tensor.numel() > 0 and tensor.data_ptr() == 0:
        raise Unsupported(
            backend="torch",
            feature="a copy of a tensor whose memory was freed",
            why="its storage was resized to nothing",
            instead="look at it before that, or leave this module out of `where`",
        )


@contextmanager
def laid_bare(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensor behind `tensor`, without history, in a block whose operations nobody sees.

    No transform wraps them, no tracer notes them. The dims that vmap hides are in front, those of outer ones
    first; a value that is the same for all of a batch has no such dim.
    """
    inner, batches = unwrapped(tensor)
    with aside(type(inner)):
        inner = inner.detach()
        yield inner.movedim(batches, list(range(len(batches)))) if batches else inner


def not_exported(feature: str) -> Unsupported:
    """The error for what belongs to this process, where a program is made for others."""
    return Unsupported(
        backend="torch",
        feature=f"{feature} while torch.export makes a program",
        why="what it calls is in this process, and the program runs in others",
        instead="use hookline.exported.mark for values; edits and hooks that replace stay in a program "
        "with strict=False",
    )


def _copy(tensor: torch.Tensor, device: Any, dtype: Any) -> torch.Tensor:
    if _inference_mode():
        # A decorator: an interrupt at the end of a `with` would leave the mode off.
        return torch.inference_mode(False)(_copy)(tensor, device, dtype)
    if dtype is not None and not tensor.is_floating_point():
        dtype = None  # token ids and masks stay what they are
    if tensor.is_meta:
        device = None  # there is nothing to move
    if tensor.is_mkldnn and (device is not None or dtype is not None):
        tensor = tensor.to_dense()  # this layout is the CPU's own, and float32's
    if device is None and _is_pooled(tensor):
        if _COPIES and dtype is None and not tensor.is_neg():
            copy: torch.Tensor | None = _direct.copy(EXCHANGE, tensor)
            if copy is not None:
                return copy
        return _room(tensor, dtype or tensor.dtype).copy_(tensor)
    return tensor.clone() if device is dtype is None else tensor.to(device=device, dtype=dtype, copy=True)


def _room(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """An uninitialised tensor of that shape, in memory that is used again when nobody has it any more."""
    room = torch.empty(0, dtype=dtype)
    stride = torch.empty_like(tensor, device="meta").stride()
    try:
        memory = torch.frombuffer(_direct.Memory(tensor.numel() * room.element_size()), dtype=torch.uint8)
    except (MemoryError, AttributeError):  # the pool has no more, or there is none
        return torch.empty_strided(tensor.shape, stride, dtype=dtype)
    return room.set_(memory.untyped_storage(), 0, tensor.shape, stride)


def room_like(tensor: torch.Tensor) -> torch.Tensor | None:
    """Memory for a snapshot of a tensor that lies without gaps on the CPU; None for any other."""
    if type(tensor) not in _PLAIN or not _COPIES or is_seen(tensor) or _inference_mode():
        return None
    room: torch.Tensor | None = _direct.room(EXCHANGE, tensor)
    return room


def _is_pooled(tensor: torch.Tensor) -> bool:
    """Whether a copy goes into a buffer of the pool: large, and in plain memory of the CPU."""
    if type(tensor) not in _PLAIN or not tensor.is_cpu or tensor.layout is not _STRIDED:
        return False
    if tensor.is_nested or tensor.is_quantized:  # they have more than memory and strides
        return False
    return tensor.numel() * tensor.element_size() >= LARGE


def unlike(new: torch.Tensor, old: torch.Tensor) -> str:
    """Why `new` can't stand in for `old`; empty if it can."""
    if new.shape != old.shape:
        return f"expected shape {tuple(old.shape)}, got {tuple(new.shape)}"
    if new.dtype != old.dtype:
        return f"expected {old.dtype}, got {new.dtype}"
    if new.device != old.device:
        return f"expected a tensor on {old.device}, got one on {new.device}"
    return ""


def owned(value: torch.Tensor, source: torch.Tensor, device: Any = None, dtype: Any = None) -> torch.Tensor:
    """`value`, made from `source` by a user's function, as a tensor that holds just its own memory.

    A slice is copied: as a view it would keep all of `source` alive, and change with it.
    """
    moved = device is not None or (dtype is not None and value.dtype != dtype)
    if moved or is_seen(value) or value.requires_grad or value.is_inference() or not _has_its_own(value, source):
        return snapshot(value, device, dtype)
    return value


def _has_its_own(value: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether the memory of `value` is no more than it needs, and none of `source`'s."""
    try:
        storage, other = value.untyped_storage(), source.untyped_storage()
        return storage.nbytes() <= value.numel() * value.element_size() and storage.data_ptr() != other.data_ptr()
    except (NotImplementedError, RuntimeError):  # a layout or a subclass that keeps its values elsewhere
        return False


def fitted(value: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """`value` on the device and in the dtype of `old`: a recorded value that is put back."""
    return value.to(device=old.device, dtype=old.dtype)


def writes(tensor: torch.Tensor) -> int:
    """How often the memory of `tensor` was written to; of inference tensors, which don't count, never the same."""
    try:
        return version(tensor)
    except RuntimeError:
        return next(_unknown_versions)


def detached(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory without history."""
    if graph_task() != -1 and not tensor.requires_grad:
        return tensor  # the batches of `is_grads_batched` have none, and can't be detached
    if is_seen(tensor):
        tensor = without_functional(tensor)
        with aside(type(tensor), transforms=False):
            return tensor.detach()
    return tensor.detach()


@contextmanager
def beside_the_model() -> Iterator[None]:
    """A block for a user's function that works on recorded values: no operator of it is the model's."""
    # Of no certain type: a function may meet tensors of any.
    with unseen(), aside(object, transforms=False):
        yield


def why_no_numbers(value: Any) -> str | None:
    """Why a recorded structure stands for values and has none; None where it has numbers."""
    if type(value) is torch.Tensor:
        return None
    for leaf in leaves(value, (torch.Tensor, torch.fx.Proxy)):
        if isinstance(leaf, torch.fx.Proxy):
            return "torch.fx was tracing: what passed was a symbol, not a value"
        if is_fake(leaf):
            return "the model ran on fake tensors, as tracers and compilers do: they have shapes and no numbers"
    return None


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
