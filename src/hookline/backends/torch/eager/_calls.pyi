from collections.abc import Callable
from typing import Any

from hookline.backends.operators import OpSite
from hookline.backends.operators import Scope as Scope

class Here:
    scopes: list[Scope]
    calls: dict[OpSite, list[Scope]]
    numbers: list[int]
    marked: list[Scope | None]

class Part:
    def __init__(
        self,
        local: Any,
        start: OpSite,
        module: str,
        sequence_number: Callable[[], int],
        graph_task: Callable[[], int],
        leave: Callable[[Any, Scope], None],
        limit: int,
        /,
    ) -> None: ...
    def __call__(self, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any: ...
