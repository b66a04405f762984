from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from hookline.backends.nouns import Copying

Kind = TypeVar("Kind", bound=type)

class Called:
    hook: Callable[..., Any]
    count: int

class Keeping:
    is_plain: bool
    def __init__(
        self,
        copying: Copying,
        opened: Callable[[], Any],
        number: int,
        backward_number: Callable[[], int],
        order: Iterator[int],
        fired: dict[str, Any],
        /,
    ) -> None: ...

class Keeper:
    recorder: Any
    target: Any
    needs: Any
    keeping: Keeping | None
    name: str
    record: Any
    outputs: list[Any]
    order: int
    def __init__(
        self,
        recorder: Any,
        target: Any,
        needs: Any,
        keeping: Keeping | None,
        name: str,
        record: Any,
        outputs: list[Any],
        /,
    ) -> None: ...

class Measuring:
    def __init__(
        self,
        watch: Any,
        clock: Any,
        gathered: Any,
        tensor: type,
        opened: Callable[[], Any],
        number: int,
        backward_number: Callable[[], int],
        /,
    ) -> None: ...

class Measurer:
    measuring: Measuring | None
    visits: list[Any]
    forward: int
    keys: list[Any]
    mode: str | None
    broken: str | None
    fired: int
    order: int

def quick(kind: Kind, /) -> Kind: ...
def beware(name: str, at_work: Callable[[], Any] | None, /) -> None: ...
def call_by(address: int, /) -> None: ...
