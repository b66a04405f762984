from collections.abc import Callable
from typing import TypeVar

Fn = TypeVar("Fn", bound=Callable[..., object])
T = TypeVar("T")

def again(method: Fn) -> Fn: ...
def itself(owner: T) -> T: ...
