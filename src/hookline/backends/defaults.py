"""Defaults: what a backend has unless it says otherwise.

A new one derives from it and adds what only its framework can tell. Statistics and files go through numpy: `host`
gives the array of a tensor, `from_host` a tensor of an array. What a framework has no way to do raises what its
declaration says (`capabilities`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline.backends import arrays
from hookline.backends.capabilities import Framework
from hookline.backends.chance import keep_chance
from hookline.backends.gate import Gate
from hookline.backends.neutral import Forms
from hookline.backends.nouns import Copying, HeardSite, Model, Module, Tensor
from hookline.backends.operators import Operator, OpListener
from hookline.backends.protocol import Address, ExchangeRule, HeardLoss, Label, NumbersListener
from hookline.backends.undoing import Steps, Undoing
from hookline.backends.weights import PlainWeight
from hookline.errors import InvalidArgument, RunError
from hookline.wiring import Place

_versions = itertools.count()


class Immediate:
    """For `protocol.Compiling`, where a tap sees a value when it passes and a hook runs as it is written."""

    tells_at_once = True
    not_called = "the model was not called in this block, or only by .forward(...), which passes all hooks by"

    def hooked(self, hook: Callable[..., Any], label: Label) -> Callable[..., Any]:
        return hook

    def lasting(self, module: Module) -> Any:
        return module

    def is_compiled(self) -> bool:
        return False

    def settled(self) -> None:
        return None


class Defaults(Immediate):
    """The parts of `protocol.Backend` that need nothing of a framework but these four."""

    name: str
    tensor: type
    framework: Framework
    forward_name = "forward"
    copying: Copying | None = None

    def is_readable(self, tensor: Tensor) -> bool:
        return True

    def host(self, tensor: Tensor) -> NDArray[Any]:
        """The values as a numpy array, in the tensor's own memory where that is possible."""
        raise NotImplementedError

    def from_host(self, array: NDArray[Any]) -> Any:
        """A tensor with a copy of these values."""
        raise NotImplementedError

    def snapshot(self, tensor: Tensor, device: Any = None, dtype: Any = None) -> Any:
        """A copy that no later operation can change, without history."""
        raise NotImplementedError

    def detached(self, tensor: Tensor) -> Any:
        """The same values without history."""
        raise NotImplementedError

    def callee(self, module: Module) -> Callable[..., Any]:
        fn: Callable[..., Any] = getattr(module, self.forward_name)
        return fn

    # Taps that few frameworks have a way for

    def tensors_of(self, model: Model) -> dict[str, Any]:
        """Every parameter and buffer by its dotted name."""
        raise NotImplementedError

    def dtype_of(self, tensor: Tensor) -> str:
        return str(self.host(tensor).dtype)

    def keep_as_it_is(self, steps: Steps, model: Model) -> None:
        keep_chance(steps)
        for weight in self.tensors_of(model).values():
            steps.noted(self.write_weight, weight, self.read_weight(weight))

    def put_grads_aside(self, undoing: Undoing, model: Model) -> None:
        return None

    def random_state(self) -> Any:
        return None

    def restore_random(self, state: Any) -> None:
        return None

    def same_random(self, one: Any, other: Any) -> bool:
        return True

    def graph_free(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def place_state_hook(
        self, undoing: Undoing, module: Module, when: tuple[str, str], fn: Callable[..., Any], label: Label
    ) -> None:
        raise self.framework.unsupported("state_hooks")

    def replace_forward(self, undoing: Undoing, module: Module, fn: Callable[..., Any], label: Label) -> None:
        raise self.framework.unsupported("skip")

    def place_marks(self, undoing: Undoing, places: dict[str, Any], label: Label) -> None:
        raise self.framework.unsupported("export")

    def hear_marks(self, undoing: Undoing, listener: Callable[[str, Any], Any]) -> None:
        raise self.framework.unsupported("export")

    def with_statistics(self, model: Model, places: dict[str, Any]) -> Any:
        raise self.framework.unsupported("export")

    def read_weight(self, tensor: Tensor) -> Any:
        """What a parameter holds, to be written back by `write_weight`; its elements are the tensor's."""
        raise self.framework.unsupported("edit_weights")

    def write_weight(self, tensor: Tensor, data: Any) -> None:
        """Has a parameter hold `data`."""
        raise self.framework.unsupported("edit_weights")

    def forms_of(self, module: Module) -> Forms:
        return {}

    def held_weights(self, model: Model, tensors: dict[str, Any]) -> list[PlainWeight]:
        once = {id(tensor): tensor for tensor in tensors.values()}
        return [PlainWeight(tensor, self.read_weight, self.write_weight) for tensor in once.values()]

    def hear_parameters(self, undoing: Undoing, sites: Iterable[HeardSite], label: Label) -> None:
        for name, module, sink in sites:
            self.hear_parameters_of(undoing, module, sink, label._replace(site=name))

    def hear_parameters_of(
        self, undoing: Undoing, module: Module, sink: Callable[[str, Any], None], label: Label
    ) -> None:
        """The same of one site."""
        raise self.framework.unsupported("param_grads")

    def parameters_of(self, model: Model) -> dict[str, Any]:
        raise self.framework.unsupported("accumulated")

    def hear_accumulated(
        self, undoing: Undoing, parameter: Tensor, fn: Callable[[Any], None], label: Label
    ) -> None:
        raise self.framework.unsupported("accumulated")

    def hear_steps(
        self,
        undoing: Undoing,
        model: Model,
        before: Callable[..., None],
        after: Callable[[set[int]], None],
        gate: Gate | None = None,
    ) -> None:
        """No optimizer is heard: without steps told by hand, each call of the model is a step."""

    def hook_operators(
        self, undoing: Undoing, model: Model, places: dict[str, Any], listener: OpListener, label: Label
    ) -> None:
        raise self.framework.unsupported("ops")

    def operator_names(self) -> tuple[Operator, ...]:
        return ()

    def unseen(self) -> AbstractContextManager[None]:
        return nullcontext()

    # Values

    def keep(self, tensor: Tensor) -> Any:
        return self.snapshot(tensor)

    def owned(self, value: Any, source: Any, device: Any, dtype: Any) -> Any:
        return self.snapshot(value, device, dtype)

    def gathered(self, tensor: Tensor) -> Any:
        return tensor

    def version(self, tensor: Tensor) -> int:
        """Never the same twice: nobody counts writes, so a tensor seen again may hold other values."""
        return next(_versions)

    def shares_memory(self, tensor: Tensor, others: list[Any]) -> bool:
        return True  # it can't be told, and a copy too many is harmless

    def nbytes(self, tensor: Tensor) -> int:
        return int(self.host(tensor).nbytes)

    def unlike(self, new: Any, old: Any) -> str:
        if tuple(new.shape) != tuple(old.shape):
            return f"expected shape {tuple(old.shape)}, got {tuple(new.shape)}"
        return "" if new.dtype == old.dtype else f"expected {old.dtype}, got {new.dtype}"

    def device(self, device: Any) -> None:
        if device is not None:
            raise InvalidArgument(f"device={device!r}: on {self.name}, recorded values stay on their own device.")

    # Statistics, through numpy

    def side_by_side(self, after: Tensor, before: Tensor) -> tuple[Address, Address] | None:
        return None

    def address(self, tensor: Tensor, strided: bool = False) -> Address | None:
        return arrays.address(tensor, strided)

    exchange_rule: ExchangeRule | None = None

    def exchange_of(self, tensor: Tensor) -> object | None:
        return None

    def room_like(self, tensor: Tensor) -> Any:
        return None

    def has_fractions(self, tensor: Tensor) -> bool:
        return self.host(tensor).dtype.kind not in "biu"

    def reducible(self, tensor: Tensor) -> Any:
        return arrays.reducible(tensor if isinstance(tensor, np.ndarray) else self.host(self.detached(tensor)))

    def reduced_on_device(self, tensor: Tensor, histogram: bool, dim: int | None = None) -> Any:
        return arrays.words(tensor, histogram, dim)

    def scalars(self, functions: list[Callable[..., Any]], tensor: Tensor) -> Any:
        """The results of `function(array, numpy)`."""
        return np.array([float(function(tensor, np)) for function in functions]).view(np.int64)

    def fetched(self, tensors: list[Any]) -> list[Any]:
        return [self.host(tensor).reshape(-1) for tensor in tensors]

    def bytes_of(self, tensor: Tensor) -> NDArray[Any] | None:
        array = tensor if isinstance(tensor, np.ndarray) else self.host(self.detached(tensor))
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def hashed_on_device(self, tensor: Tensor) -> Any:
        return None

    # No forward is repeated

    def backward_number(self) -> int:
        return -1

    def in_recompute(self, called: bool = False) -> bool:
        return False

    def calls_under_way(self, module: Module) -> int:
        return 0

    def sequence_number(self) -> int:
        return 0

    def recomputed(self, calls: list[Any]) -> Any:
        return None

    # Training

    def gradient(self, parameter: Tensor) -> Any:
        return None

    def value_of(self, parameter: Tensor) -> Any:
        return parameter

    def update_of(self, parameter: Tensor, before: Any) -> Any:
        return self.detached(parameter) - before

    def lost(self, parameter: Tensor, before: Any, grad: Tensor) -> float | None:
        after = self.detached(parameter)
        old, new = self.host(before), self.host(after)
        if self.nbytes(after) > 2 * new.size:
            return None
        moved = self.host(grad) != 0
        return float((moved & (old == new)).sum() / max(int(moved.sum()), 1))

    def rank(self) -> int:
        return 0

    def wiring_source(self, model: Model) -> None:
        return None

    def repeatable(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return None

    def find_origin(self, model: Model, call: Any) -> Place | None:
        return None

    def hear_losses(
        self, undoing: Undoing, model: Model, told: Callable[[HeardLoss], None], wanted: Callable[[], bool]
    ) -> None:
        """Nobody tells of losses."""

    def hear_numbers(self, undoing: Undoing, model: Model, listener: NumbersListener) -> None:
        """Nobody tells of numbers: what a user logs is there."""

    def hear_moments(
        self,
        undoing: Undoing,
        model: Model,
        told: Callable[[Mapping[int, Mapping[str, Any]]], None],
        wanted: Callable[[], bool],
    ) -> None:
        """Nobody tells of what optimizers keep."""

    def fingerprint(self, tree: Any) -> Any:
        return None

    def scale(self, tree: Any) -> Any:
        return None

    def as_number(self, value: Any) -> Any:
        """A float: frameworks that compute later are waited for."""
        return float(self.host(value))

    def read_numbers(self, values: list[Any]) -> list[float]:
        return [float(value) for value in values]

    # The audit

    def why_silent(self, modules: dict[str, Any], name: str, silent: Collection[str] = ()) -> str | None:
        return None

    def remarks(self, modules: dict[str, Any], sites: Collection[str] | None = None) -> dict[str, str]:
        return {}

    def why_no_numbers(self, value: Any) -> str | None:
        return None

    # Files

    def write_safetensors(self, path: Path, tensors: dict[str, Any], metadata: dict[str, str]) -> None:
        from safetensors import SafetensorError
        from safetensors.numpy import save_file

        plain: dict[str, NDArray[Any]] = {}
        for key, tensor in tensors.items():
            array: NDArray[Any] = np.array(self.host(tensor), order="C")
            if array.dtype.kind == "c":
                metadata = {**metadata, f"complex:{key}": array.dtype.name}
                array = array.view(array.real.dtype).reshape(*array.shape, 2)
            plain[key] = array
        try:
            save_file(plain, path, metadata)
        except SafetensorError as error:
            raise OSError(str(error)) from error
        except (KeyError, ValueError) as error:
            raise RunError(f"a value of this recording can't be saved as safetensors: {error}") from error

    def read_safetensors(self, path: Path, keys: list[str] | None = None) -> dict[str, Any]:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                found: dict[str, Any] = {"": metadata}
                for key in file.keys() if keys is None else keys:
                    array = file.get_tensor(key)
                    if (kind := metadata.get(f"complex:{key}")) is not None:
                        if kind not in ("complex64", "complex128"):
                            raise ValueError(f"{kind!r} is no kind of complex numbers")
                        array = np.ascontiguousarray(array).view(kind)[..., 0]
                    found[key] = self.from_host(array)
                return found
        except SafetensorError as error:
            raise ValueError(str(error)) from error
