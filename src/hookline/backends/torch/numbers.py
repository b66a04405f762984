"""Numbers of a training: losses, learning rates, gradient norms before and after clipping, the scaler's scale."""

from __future__ import annotations

import ctypes
import math
import weakref
import zlib
from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from hookline.backends.hearing import HeardLoss, NumbersListener
from hookline.backends.torch import compat
from hookline.backends.torch.clipping import hear_clipping, hear_scaling
from hookline.backends.torch.loading import hear_loading
from hookline.backends.torch.losses import as_number, has_values, hear_losses, why_no_number
from hookline.backends.torch.optimizers import hear_gradients, held_by
from hookline.backends.torch.parameters import all_parameters
from hookline.backends.torch.unseen import unseen
from hookline.backends.undoing import Undoing
from hookline.trees import leaves

OF_GROUPS = {"lr": "lr", "weight_decay": "weight_decay"}
"""What is told of each parameter group, and its name there."""
Norm = Tensor | float
"""A tensor is one that nobody waits for."""
SOME = 3
"""Gradients that are looked at: whoever clears them clears all."""
SAMPLE = 4096
"""About so many elements of a batch are looked at."""


def hear_numbers(undoing: Undoing, model: nn.Module, listener: NumbersListener) -> None:
    """Has the numbers of the model's training told, at steps at which they are wanted."""
    numbers = TrainingNumbers(model, listener)
    hear_losses(undoing, model, numbers.backward_begins, listener.wanted)
    hear_clipping(undoing, numbers.is_clipped)
    hear_scaling(undoing, numbers.scaler_steps)
    hear_loading(undoing, numbers.loader_begins)
    hear_gradients(undoing, model, numbers.optimizer_steps, listener.wanted)


class TrainingNumbers:
    """What is known of the step under way, until its optimizers have stepped."""

    def __init__(self, model: nn.Module, listener: NumbersListener) -> None:
        self._model, self._listener = model, listener
        self._optimizers: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        """Those that stepped, by their numbers."""
        self._step = -1
        self._stepped = False  # an optimizer has stepped, at any step that was wanted
        self._before: dict[int, Norm] = {}
        """By parameter: the norm of its gradient before it was clipped."""
        self._used: dict[int, Norm] = {}
        """By parameter: the norm of the gradient that an optimizer used."""
        self._groups: dict[tuple[int, int], dict[str, Any]] = {}
        self._left: dict[int, Tensor] | None = None
        """By parameter: whether each backward found a gradient that was not zero; None before the first."""
        self._begun = 0
        """How often a DataLoader was begun."""
        self._added: Any = None
        """How many backwards have added up in the gradients that are there, a number or a tensor; None before."""

    def _look(self) -> None:
        """Begins anew where this is another step."""
        if self._step != self._listener.now:
            self._step = self._listener.now
            self._before, self._used, self._groups, self._left = {}, {}, {}, None
            self._begun, self._added = 0, None

    # What happens

    def loader_begins(self) -> None:
        if self._listener.wanted():
            self._look()
            self._begun += 1
            self._listener.tell("loaders_begun", self._begun)

    def backward_begins(self, loss: HeardLoss) -> None:
        self._look()
        self._listener.guarded("the loss", partial(self._listener.hear_loss, loss))
        if loss.accumulates:
            self._listener.guarded("gradients that add up", self._note_added)
        if self._stepped and loss.accumulates:
            self._listener.guarded("gradients that are left over", self._note_left)

    def is_clipped(self, parameters: list[Tensor]) -> None:
        if self._listener.wanted():
            self._look()
            self._listener.guarded("the gradient norm", partial(self._note_norms, parameters))

    def scaler_steps(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        if self._listener.wanted():
            self._listener.guarded("the scale of the loss", partial(self._tell_scale, scaler, optimizer))

    def optimizer_steps(self, optimizer: Optimizer, held: set[int]) -> None:
        self._look()
        mine: list[Tensor] = [one for one in all_parameters(self._model) if id(one) in held and one.requires_grad]
        for what, work in (
            ("learning rates", partial(self._tell_groups, optimizer)),
            ("the gradient norm", partial(self._tell_norms, mine, getattr(optimizer, "grad_scale", None))),
            ("gradients that are left over", partial(self._tell_left, mine)),
            ("gradients that add up", self._tell_added),
        ):
            self._listener.guarded(what, work)
        self._stepped = True

    # What is told

    def _tell_scale(self, scaler: GradScaler, optimizer: Optimizer) -> None:
        if scaler.is_enabled() and held_by(optimizer, self._model) is not None:
            self._listener.tell("loss_scale", float(scaler.get_scale()))

    def _tell_groups(self, optimizer: Optimizer) -> None:
        """All groups of all optimizers are numbered; one alone has no number."""
        number = self._optimizers.setdefault(optimizer, 1 + max(self._optimizers.values(), default=-1))
        for place, group in enumerate(optimizer.param_groups):
            values = {name: group[key] for name, key in OF_GROUPS.items() if key in group}
            # A learning rate may be a tensor, which a scheduler writes to.
            self._groups[number, place] = {
                name: as_number(value) if isinstance(value, Tensor) else float(value)
                for name, value in values.items()
            }
        sizes = {known: len(one.param_groups) for one, known in self._optimizers.items()}
        alone = sum(sizes.values()) == 1
        for (number, place), values in self._groups.items():
            first = sum(size for other, size in sizes.items() if other < number)
            for name, value in values.items():
                self._listener.tell(name if alone else f"{name}/{first + place}", value)
                if not alone:
                    self._listener.tell(name, None)

    def _note_norms(self, parameters: list[Tensor]) -> None:
        """Notes the norms of gradients that are about to be clipped; the first time in a step counts."""
        mine = set(map(id, all_parameters(self._model)))
        fresh = [one for one in parameters if id(one) in mine and id(one) not in self._before]
        self._before |= gradient_norms(fresh)

    def _tell_norms(self, mine: list[Tensor], scale: Tensor | None) -> None:
        """`scale` is the factor that an optimizer takes out of the gradients itself."""
        norms = self._norms(mine)
        self._used |= norms if scale is None else {one: norm / scale for one, norm in norms.items()}
        if not self._used:
            return
        used = self._used.items()
        self._listener.tell("grad_norm", total_norm([self._before.get(one, norm) for one, norm in used]))
        if self._before.keys() & self._used.keys():
            self._listener.tell("grad_norm_clipped", total_norm(self._used.values()))

    def _norms(self, mine: list[Tensor]) -> dict[int, Norm]:
        """The norm of each one's gradient, if it has one: as it was just measured, or else computed."""
        own = [one.grad for one in mine if one.grad is not None and _is_here(one.grad)]
        known = self._listener.norms_of(own)
        found: dict[int, Norm] = {
            id(one): _rounded(known[id(one.grad)], one.grad) for one in mine if id(one.grad) in known
        }
        return found | gradient_norms(one for one in mine if id(one) not in found)

    def _note_left(self) -> None:
        """Notes which parameters have a gradient; one that had none at any backward of the step has none left."""
        found = {id(one): one for one in all_parameters(self._model) if one.grad is not None and one.requires_grad}
        if self._left is not None:
            found = {number: one for number, one in found.items() if number in self._left}
        left = {number: norm != 0 for number, norm in gradient_norms(found.values()).items()}
        if self._left is not None:
            left = {number: flag & self._left[number] for number, flag in left.items()}
        self._left = left

    def _note_added(self) -> None:
        """Counts the backward that begins; from 1 again where somebody has cleared the gradients in between."""
        if self._added is None:
            self._added = 1  # what an earlier step has left is another matter
            return
        some = (one for one in all_parameters(self._model) if one.requires_grad and one.grad is not None)
        norms = gradient_norms(islice(some, SOME))
        self._added = self._added * (total_norm(norms.values()) != 0) + 1 if norms else 1

    def _tell_added(self) -> None:
        if self._added is not None:
            self._listener.tell("accumulated", self._added)

    def _tell_left(self, mine: list[Tensor]) -> None:
        if self._left is None or not mine:
            return
        flags = [self._left[id(one)] for one in mine if id(one) in self._left]
        self._listener.tell("stale_grads", _share(flags, len(mine)) if flags else 0.0)


def _is_here(grad: Tensor) -> bool:
    """Whether it is an ordinary tensor in the memory of this process."""
    return type(grad) is Tensor and grad.is_cpu and grad.layout is torch.strided and grad.is_floating_point()


def _rounded(norm: float, grad: Tensor | None) -> float:
    """A norm as torch would give it: in double digits of a double gradient only.

    The last ones depend on the order of adding, and so on the processor; two runs would seem to differ.
    """
    return norm if grad is not None and grad.dtype is torch.float64 else ctypes.c_float(norm).value


@torch.no_grad()
def gradient_norms(parameters: Iterable[Tensor]) -> dict[int, Tensor]:
    """The norm of each one's gradient, where it has one, by its identity."""
    groups: dict[Any, tuple[list[int], list[Tensor]]] = {}
    for one in parameters:
        if one.grad is not None:
            grad = one.grad.detach()
            grad = grad if grad.layout is torch.strided else grad.coalesce().values()
            if type(grad) is not Tensor:  # sharded: its norm is known by all processes together only
                continue
            numbers, grads = groups.setdefault((grad.device, grad.dtype), ([], []))
            numbers.append(id(one))
            grads.append(grad)
    found: dict[int, Tensor] = {}
    with unseen(), compat.aside():
        for numbers, grads in groups.values():
            found.update(zip(numbers, compat.norms(grads), strict=True))
    return found


@torch.no_grad()
def total_norm(norms: Iterable[Norm]) -> Any:
    """The norm of all from the norms of each."""
    tensors: list[Tensor] = []
    squares: list[float] = []
    for norm in norms:
        if isinstance(norm, Tensor):
            tensors.append(norm)
        else:
            squares.append(norm * norm)
    known = math.sqrt(sum(squares))
    if not tensors:
        return known
    with unseen(), compat.aside():
        if squares:
            tensors.append(torch.tensor(known, dtype=torch.float64))
        return as_number(torch.linalg.vector_norm(_stacked(tensors)))


@torch.no_grad()
def _share(flags: Iterable[Tensor], count: int) -> Any:
    with unseen(), compat.aside():
        return as_number(_stacked(flags).sum() / count)


def _stacked(numbers: Iterable[Tensor]) -> Tensor:
    """Numbers of any devices as one tensor, with one operation for those of a device."""
    groups: dict[Any, list[Tensor]] = {}
    for number in numbers:
        groups.setdefault((number.device, number.dtype), []).append(number)
    parts = [torch.stack(some) for some in groups.values()]
    return parts[0] if len(parts) == 1 else torch.cat([part.to(parts[0]) for part in parts])


# Reading


def logged(tensor: Tensor) -> Any:
    """A number that a user logs: a float, or a tensor that nobody waits for; TypeError where it is none."""
    if (why := why_no_number(tensor)) is not None:
        raise TypeError(why)
    return as_number(tensor)


class Sample(NamedTuple):
    """Some elements of a batch, still on its device."""

    values: Tensor
    shape: tuple[int, ...]


def fingerprint(tree: Any) -> Any:
    """Of the first tensor of a structure some elements, or a number of 32 bits made of them; None without one, and
    where a tracer or transform would see that somebody asks."""
    sample = _sampled(tree)
    if sample is None:
        return None
    with torch.no_grad(), unseen(), compat.aside():
        return _checksum(sample.values, sample.shape) if sample.values.is_cpu else sample


def scale(tree: Any) -> Any:
    """The root of the mean square of the first tensor of a structure, if it is of floats; of some elements."""
    sample = _sampled(tree)
    if sample is None or not sample.values.is_floating_point():
        return None
    with torch.no_grad(), unseen(), compat.aside():
        return as_number(sample.values.float().square().mean().sqrt())


def _sampled(tree: Any) -> Sample | None:
    """Some elements of the first tensor; None without one, and where somebody would see that they are read."""
    tensors = list(leaves(tree, Tensor))
    if any(map(compat.is_seen, tensors)):
        return None
    found = next((one for one in tensors if one.numel() > 0), None)
    if found is None or type(found) is not Tensor or found.layout is not torch.strided or not has_values(found):
        return None
    with torch.no_grad(), unseen(), compat.aside():
        each = max(1, int(SAMPLE ** (1 / max(found.ndim, 1)) + 1e-9))
        steps = tuple(slice(None, None, -(-size // each)) for size in found.shape)
        return Sample(found.detach()[steps].clone(), tuple(found.shape))


def _checksum(values: Tensor, shape: tuple[int, ...]) -> float:
    raw = values.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return float(zlib.crc32(raw, zlib.crc32(repr(shape).encode())))


def read_numbers(values: list[Any]) -> list[float]:
    """The numbers; those of a device come in one transfer, and so does each sample."""
    found = list(values)
    places: dict[torch.device, list[int]] = {}
    for place, value in enumerate(values):
        if isinstance(value, Sample):
            found[place] = _checksum(value.values.cpu(), value.shape)
        elif isinstance(value, Tensor):
            places.setdefault(value.device, []).append(place)
    with unseen(), compat.aside():
        for own in places.values():
            together = torch.stack([values[place].detach().double().reshape(()) for place in own]).tolist()
            for place, number in zip(own, together, strict=True):
                found[place] = number
    return [float(value) for value in found]
