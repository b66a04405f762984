"""Weights: a torch parameter or buffer that looks at other memory for a while.

Not one element is written: the tensor gets other memory by `.data`, and its own back at the end, so that it stays
the same object for optimizers, hooks and other names. Four things need care:

- Autograd saves a weight by reference. A backward over a graph that was made with other numbers would compute
  wrong gradients without a word. So the weight's version is another one for that time, and torch raises, as it
  does after an operation in place.
- Autocast keeps casts, and `parametrize.cached()` what it computed: both are forgotten.
- `.to`, `.double`, `.half` convert the numbers of the moment, of buffers into new tensors: its own go along.
- An operation under way in another thread may still read from memory that was left: it is kept for a while.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils.weak import WeakIdKeyDictionary

from hookline.backends.torch.compat import (
    conversion_makes_new_parameters,
    forget_parametrized,
    set_version,
    version,
    weights_are_frozen,
)
from hookline.errors import InvalidArgument, Unsupported

Slot = tuple[nn.Module, str]

FIRST = 2**31
"""From here on up to 2**32, versions are those of memory that was put into a weight for a while."""

WRITES = 4096
"""So many writes in place tell one piece of memory's versions from the next one's."""

KEPT = 256 * 1024**2
"""So many bytes of memory that was left are kept while other threads run, and the last weight's in any case."""

_numbers = itertools.count()
_version_of: Any = WeakIdKeyDictionary()  # of memory that was put into a weight, by its tensor


def held_weights(model: nn.Module, tensors: dict[str, torch.Tensor]) -> list[HeldWeight]:
    """For each of these tensors of a model, by name, how it holds other numbers; once for a tied one."""
    slots: dict[int, list[Slot]] = {}
    starts: dict[int, set[int]] = {}
    for module in model.modules():
        for own, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            slots.setdefault(id(tensor), []).append((module, own))
            if (start := _start(tensor)) is not None:
                starts.setdefault(start, set()).add(id(tensor))
    found: dict[int, HeldWeight] = {}
    for name, tensor in tensors.items():
        if id(tensor) not in found:
            _check(model, name, tensor)
            start = _start(tensor)
            beside = start is not None and len(starts.get(start, ())) > 1
            found[id(tensor)] = HeldWeight(tensor, slots.get(id(tensor), []), shares=beside)
    return list(found.values())


class HeldWeight:
    """See `hookline.backends.weights.HeldWeight`."""

    def __init__(self, tensor: torch.Tensor, slots: list[Slot], *, shares: bool) -> None:
        self._held = [Held(tensor)]
        self._slots = slots
        self._shares = shares
        self._written = self._replaced = False

    def objects(self) -> list[torch.Tensor]:
        self._follow()
        return [held.tensor for held in self._held]

    def own(self) -> torch.Tensor:
        self._follow()
        if not self._held[-1].holds:
            self._written = self._replaced = False
        return self._held[-1].own()

    def misfit(self, data: torch.Tensor) -> str:
        own = self._held[-1].tensor
        if data.layout != own.layout:
            return f"expected a tensor of layout {own.layout}, got one of {data.layout}"
        return f"expected a plain tensor, got a {type(data).__name__}" if _dispatches(data) else ""

    def put(self, data: torch.Tensor) -> None:
        self._follow()
        for held in self._held:
            self._written |= held.put(data)
        forget_derived()

    def restore(self) -> None:
        self._follow()
        for held in self._held:
            self._written |= held.restore()
        forget_derived()

    def release(self) -> None:
        self._held = [Held(self._held[-1].tensor)]

    def remark(self) -> str:
        said = []
        if self._shares:
            said.append("another tensor of the model looks at the same memory, and this edit does not reach it")
        if self._written:
            said.append(
                "it was written to inside the block (an optimizer's step, load_state_dict, a training forward), "
                "which is gone with the edit"
            )
        if self._replaced:
            said.append("another tensor was put in its place inside the block, and stays there")
        return "; ".join(said)

    def _follow(self) -> None:
        """Takes its own numbers along to where the model was moved or converted inside the block."""
        for module, name in self._slots:
            now = getattr(module, name, None)
            if not isinstance(now, torch.Tensor) or any(held.tensor is now for held in self._held):
                continue
            if not self._held[-1].holds:
                self._held = [Held(now)]
            elif (moved := self._held[-1].moved_to(now)) is not None:
                self._held.append(moved)
            else:
                self._replaced = True
        for held in self._held:
            held.follow()


class Held:
    """One tensor, its own memory, and the memory that it looks at in its place."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self._own: torch.Tensor | None = None
        self._other: torch.Tensor | None = None
        self._own_version = 0

    @property
    def holds(self) -> bool:
        """Whether it looks at other memory now."""
        return self._other is not None

    def own(self) -> torch.Tensor:
        """Its own memory, as a tensor without history."""
        if not self.holds and not (self._own is not None and _same_memory(self._own, self.tensor)):
            self._own = self.tensor.data
        assert self._own is not None
        return self._own

    def put(self, data: torch.Tensor) -> bool:
        """Has it look at `data`; whether what it looked at before was written to."""
        own = self.own()
        if data is self._other:
            return False
        if not self.holds:
            self._own_version = _version(self.tensor)
        written = self._leave()
        data = data.to(own.device, own.dtype)
        self._other = data  # before it is true: what is cut short from here on is restored
        self.tensor.data = data
        _set_version(self.tensor, _version_of.setdefault(data, _fresh_version()))
        return written

    def restore(self) -> bool:
        """Has it look at its own memory; whether what it looked at before was written to."""
        if self._other is None or self._own is None:
            return False
        written = self._leave()
        self.tensor.data = self._own
        # Writes count: they may have been made to its own memory, by another tensor that looks at it.
        if (now := _version(self.tensor)) >= FIRST:
            _set_version(self.tensor, self._own_version + now % WRITES)
        _left.keep(self._other)
        self._other = None
        return written

    def follow(self) -> None:
        """Brings its own numbers to where the tensor was moved meanwhile."""
        if self._own is None or self._other is None:
            return
        if _is_shared(self.tensor) and not _is_shared(self._own):
            self._own.share_memory_()  # type: ignore[no-untyped-call]
        if _form(self.tensor) != _form(self._other) and _form(self.tensor) != _form(self._own):
            moved = self.tensor.data
            if self._other in _version_of:
                _version_of[moved] = _version_of[self._other]
            self._own, self._other = _in_form(self._own, moved), moved

    def moved_to(self, now: torch.Tensor) -> Held | None:
        """The same for a tensor that a conversion made of what this one looks at; None if it is no such tensor."""
        if self._own is None or self._other is None:
            return None
        as_before = isinstance(now, nn.Parameter) and _form(now) == _form(self._other)
        if as_before and not conversion_makes_new_parameters():
            return None  # no conversion makes a new parameter of this kind: it is the user's
        if not _converted(self._other, now):
            return None
        moved = Held(now)
        moved._own = _in_form(self._own, now)
        moved._other = now.data
        moved._own_version = _version(now)
        return moved

    def _leave(self) -> bool:
        """Notes the version of what it looks at, before it looks at something else."""
        if self._other is None or (began := _version_of.get(self._other)) is None:
            return False
        now = _version(self.tensor)
        if not 0 <= now - began < WRITES:
            return False
        _version_of[self._other] = now
        return bool(now != began)


def forget_derived() -> None:
    """Forgets what torch has computed from weights and keeps: casts of autocast, cached parametrizations."""
    torch.clear_autocast_cache()
    forget_parametrized()


class Left:
    """Memory that weights looked at, kept for a while: an operation in another thread may still read from it.

    Such an operation holds the weight, not its memory. Without other threads nothing is kept.
    """

    def __init__(self) -> None:
        self._kept: deque[torch.Tensor] = deque()
        self._bytes = 0

    def keep(self, data: torch.Tensor) -> None:
        """Keeps this, and as much of what came before as there is room for."""
        if data.layout is torch.strided and data.is_cpu:  # on other devices, work is in order with freeing
            self._kept.append(data)
            self._bytes += data.nbytes
        alone = threading.active_count() == 1
        while self._kept and (alone or (self._bytes > KEPT and len(self._kept) > 1)):
            self._bytes -= self._kept.popleft().nbytes


_left = Left()


def _check(model: nn.Module, name: str, tensor: torch.Tensor) -> None:
    if is_lazy(tensor):
        raise InvalidArgument(f"{name!r} is lazy and has no numbers yet; run the model once, then edit it.")
    if tensor.is_meta:
        raise InvalidArgument(
            f"{name!r} is on the meta device and has no numbers (the model is not loaded, or offloaded); "
            "load it, or edit the output of its module."
        )
    if _dispatches(tensor):
        raise Unsupported(
            backend="torch",
            feature=f"an edit of {name!r}, a {type(tensor).__name__},",
            why="its numbers are in other tensors, which that class looks after",
            instead="edit the output of its module",
        )
    if weights_are_frozen():
        raise Unsupported(
            backend="torch",
            feature=f"an edit of {name!r} while inductor freezes weights",
            why="compiled code has their numbers as constants",
            instead="edit the output of its module, or compile without inductor's freezing",
        )
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        from torch.distributed.fsdp import FullyShardedDataParallel

        if any(isinstance(module, FullyShardedDataParallel) for module in model.modules()):
            raise Unsupported(
                backend="torch",
                feature=f"an edit of {name!r} under FullyShardedDataParallel",
                why="it puts the numbers of each parameter together anew for every call",
                instead="edit the output of its module",
            )


def _dispatches(tensor: torch.Tensor) -> bool:
    """Whether a class of its own decides what operations on it do, as of sharded or quantized tensors."""
    kind: Any = type(tensor)
    return kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def _is_shared(tensor: torch.Tensor) -> bool:
    """Whether other processes can see its memory."""
    return tensor.is_cpu and tensor.layout is torch.strided and tensor.untyped_storage().is_shared()


def _start(tensor: torch.Tensor) -> int | None:
    """Where its memory starts; None where that can't be told."""
    if is_lazy(tensor) or tensor.layout is not torch.strided or _dispatches(tensor) or tensor.numel() == 0:
        return None
    return tensor.data_ptr() or None


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    strides = tensor.stride() if tensor.layout is torch.strided else ()
    return tensor.dtype, tensor.device, tensor.layout, strides


# As decorators: an interrupt at the end of a `with` would leave the mode on.
@torch.inference_mode(False)
@torch.no_grad()
def _in_form(numbers: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The numbers with the dtype, device and strides of `like`, in memory of their own."""
    if like.layout is not torch.strided or numbers.layout is not torch.strided:
        return numbers.to(like.device, like.dtype)
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device).copy_(numbers)


def _same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    return _form(one) == _form(other) and _start(one) == _start(other)


@torch.no_grad()
def _converted(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Whether `after` is what conversions make of `before`, also by way of a narrow dtype."""
    if before.shape != after.shape:
        return False
    if after.is_meta:
        return True
    for narrow in (after.dtype, torch.float16, torch.bfloat16):
        made = before.to(after.device, narrow).to(after.dtype)
        if bool(((made == after) | ((made != made) & (after != after))).all()):
            return True
    return False


def _fresh_version() -> int:
    """A version that no weight has had, far from those that writes in place count up to."""
    return FIRST + next(_numbers) * WRITES % FIRST


def _version(tensor: torch.Tensor) -> int:
    try:
        return version(tensor)
    except RuntimeError:  # one that was made in inference mode has none
        return -1


def _set_version(tensor: torch.Tensor, number: int) -> None:
    if _version(tensor) != -1:
        set_version(tensor, number)
