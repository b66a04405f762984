"""Values: what hookline does to the tensors of a framework, a part of `protocol.Backend`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from hookline.backends.nouns import Copying, Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray  # a script that is launched may not want it


class Values(Protocol):
    """Tensors: copied, compared, moved."""

    def snapshot(self, tensor: Tensor, device: Any = None, dtype: Any = None) -> Tensor:
        """A copy that no later operation can change, without history."""

    def keep(self, tensor: Tensor) -> Any:
        """What `snapshot` gives, or a Kept (`kept.py`) that gives it: cheaper where few are asked for."""

    copying: Copying | None  # what C needs to do the same; None where it can't

    def owned(self, value: Tensor, source: Tensor, device: Any, dtype: Any) -> Tensor:
        """`value`, made from `source`, holding just its own memory."""

    def detached(self, tensor: Tensor) -> Tensor:
        """The same memory without history."""

    def gathered(self, tensor: Tensor) -> Tensor:
        """The tensors of all processes behind each other."""

    def fitted(self, value: Tensor, old: Tensor) -> Tensor:
        """`value` on the device and in the dtype of `old`."""

    def unlike(self, new: Tensor, old: Tensor) -> str:
        """Why tensor `new` can't stand in for `old` (shape, type); empty if it can."""

    def version(self, tensor: Tensor) -> int:
        """How often the memory of a tensor was written to in place."""

    def shares_memory(self, tensor: Tensor, others: list[Tensor]) -> bool:
        """Whether `tensor` looks at the memory of one of the others."""

    def nbytes(self, tensor: Tensor) -> int:
        """The bytes that a tensor's elements take."""

    def is_readable(self, tensor: Tensor) -> bool:
        """Whether `host` can give its values here; not those of a sample inside of a transform, say."""

    def host(self, tensor: Tensor) -> NDArray[Any]:
        """The values as a numpy array, in the tensor's own memory where that is possible."""

    def from_host(self, array: NDArray[Any]) -> Tensor:
        """A tensor with a copy of these values."""

    def dtype_of(self, tensor: Tensor) -> str:
        """The name of a tensor's dtype: "float32"."""

    def device(self, device: Any) -> Any:
        """The framework's device from one, from its name, or None."""

    def dtype(self, dtype: Any) -> Any:
        """The framework's dtype from one, from its name, or None."""
