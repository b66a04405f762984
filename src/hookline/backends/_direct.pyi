from collections.abc import Callable, Iterator
from typing import Any

from hookline.backends.nouns import Tensor

class Kept:
    def get(self) -> Tensor: ...
    def make(self) -> Tensor: ...

class Memory:
    def __init__(self, bytes: int, /) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

keeps: object

def reduce(exchange: object, plain: int, strided: int, how: int, words: int, tensor: Tensor, /) -> bool: ...
def reduce_line(
    exchange: object,
    plain: int,
    strided: int,
    how: int,
    types: tuple[type, ...],
    is_odd: Callable[[Tensor], bool],
    words: int,
    apart: int,
    lines: int,
    numbers: Iterator[int],
    tensor: Tensor,
    /,
) -> int: ...
def reduce_two(
    exchange: object, function: int, tensor: Tensor, other: Tensor, how: int, words: int, /
) -> bool: ...
def copy(exchange: object, tensor: Tensor, /) -> Tensor | None: ...
def room(exchange: object, tensor: Tensor, /) -> Tensor | None: ...
def keep(exchange: object, tensor: Tensor, how: Callable[[Callable[[], Any]], Any], /) -> Kept | None: ...
def keeper(
    table: object,
    how: Callable[[Callable[[], Any]], Any],
    kind: type,
    is_negated: Callable[[Tensor], bool],
    in_inference: Callable[[], bool],
    anyhow: Callable[[Tensor], Any],
    /,
) -> Callable[[Tensor], Any]: ...
def held() -> tuple[int, int]: ...
def bound(most: int, /) -> int: ...
