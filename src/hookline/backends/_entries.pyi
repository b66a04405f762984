from collections import OrderedDict
from collections.abc import Iterator
from typing import Any
from weakref import ref

from torch import nn

class Entries:
    key: int
    held: list[ref[nn.Module]]
    def __init__(
        self,
        hooks_name: str,
        kwargs_name: str | None,
        key: int,
        order_numbers: Iterator[int],
        held: list[ref[nn.Module]],
        /,
    ) -> None: ...
    def put(self, module: nn.Module, tap: Any, /) -> OrderedDict[int, Any] | None: ...
    def remove(self) -> None: ...
