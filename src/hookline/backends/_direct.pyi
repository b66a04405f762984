from collections.abc import Callable

from hookline.backends.nouns import Tensor

def reduce(exchange: object, plain: int, strided: int, tensor: Tensor, how: int, words: int, /) -> bool: ...
def copy(exchange: object, tensor: Tensor, most: int, /) -> Tensor | None: ...
def copier(
    exchange: object,
    most: int,
    kind: type,
    is_neg: Callable[[Tensor], bool],
    in_inference: Callable[[], bool],
    otherwise: Callable[[Tensor], Tensor],
    /,
) -> Callable[[Tensor], Tensor]: ...
def copy_into(exchange: object, tensor: Tensor, room: Tensor, /) -> bool: ...
