from collections.abc import Callable, Iterator

from hookline.backends.nouns import Tensor

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
def copy(exchange: object, tensor: Tensor, most: int, /) -> Tensor | None: ...
def copy_into(exchange: object, tensor: Tensor, room: Tensor, /) -> bool: ...
