"""Measuring: what a backend tells of its tensors, so that statistics can be taken of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from hookline.backends.nouns import Address, ExchangeRule, Tensor

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Statistics(Protocol):
    """What statistics are taken of, and where; `defaults.Defaults` has all of it for arrays of numpy."""

    def address(self, tensor: Tensor, strided: bool = False) -> Address | None:
        """Where the values lie, for the C kernel to read; None where it can't, as `tensor` is.

        With `strided` the layout is told even of values that lie behind each other.
        """

    def exchange_of(self, tensor: Tensor) -> object | None:
        """DLPack's table of C functions, if there is one and memory has the values as they are."""

    exchange_rule: ExchangeRule | None
    """The same for all tensors, as C asks for it; None where there is no such table."""

    def side_by_side(self, after: Tensor, before: Tensor) -> tuple[Address, Address] | None:
        """Where a parameter and its snapshot lie, for the C kernel to subtract them.

        None where they do not lie in the same way, or have gaps: then it is `update_of` that subtracts.
        """

    def room_like(self, tensor: Tensor) -> Any:
        """Memory for a snapshot of a tensor, into which the C kernel may copy it; None where it can't."""

    def has_fractions(self, tensor: Tensor) -> bool:
        """Whether its numbers are floating-point or complex, not whole or true and false."""

    def reducible(self, tensor: Tensor) -> Tensor:
        """`tensor` in a form that statistics are taken of: real floats, no history; Unsupported where none is."""

    def reduced_on_device(self, tensor: Tensor, histogram: bool, dim: int | None = None) -> Tensor:
        """The statistics as 64-bit integers on the tensor's device, not waited for: a row as `Stats.from_words`
        reads it, or with `dim` one for each of its indices. `tensor` comes from `reducible`."""

    def scalars(self, functions: list[Callable[..., Any]], tensor: Tensor) -> Tensor:
        """The results of `function(tensor, xp)` as one tensor of 64-bit integers, the bits of float64."""

    def fetched(self, tensors: list[Tensor]) -> list[Any]:
        """Tensors of 64-bit integers as flat numpy arrays, with one transfer for each device."""

    def bytes_of(self, tensor: Tensor) -> NDArray[Any] | None:
        """The bytes of the values in the order of their indices, to be hashed; None where they are on a device."""

    def hashed_on_device(self, tensor: Tensor) -> Tensor | None:
        """The fingerprint of its bits (`hashing.py`) as one 64-bit integer there, not waited for; None where there
        are no bits to be had."""
