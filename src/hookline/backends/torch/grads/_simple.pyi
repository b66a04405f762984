from typing import Any

from hookline.backends.nouns import GradSink, JointSink
from hookline.backends.torch.grads.leaves import Edge
from hookline.backends.torch.grads.ports import Port
from hookline.backends.torch.grads.simple import Sent

class Here:
    call: int
    group: int
    looked_up: int
    marked: int
    looking: int
    span: tuple[int, int]
    known: tuple[int, ...]
    handed_on: tuple[int, int, int] | None
    is_main: bool

class Several:
    several: bool

class Simple:
    sink: Any
    on_output: GradSink | None
    joint_out: JointSink | None
    joint: bool
    remark: str | None
    marks: Any
    span: tuple[int, int]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    numbers: tuple[int, ...]
    sent: Sent | None
    entered: Edge | None
    told_in: int
    start: int
    group: int
    before: int
    output_nr: int
    live: int
    places_in: int
    places_out: int
    simple: bool
    by_ledger: bool
    mixed: bool
    of_leaf: bool

    def __init__(self, sink: Any = None, joint: bool = False, /) -> None: ...
    def enter(self, args: Any, kwargs: Any, /) -> tuple[Any, Any]: ...
    def leave(self, output: Any, call: int, references: int, /) -> Any: ...
    def hear(self, thread: Here, node: Any, output_nr: int, end: int, /) -> bool: ...
    def tell_output(self, grads: Any, grad_outputs: Any, /) -> None: ...
    def tell_inputs(self, grads: Any, grad_outputs: Any, /) -> Any: ...
    def ask_output(self, grads: Any, /) -> Any: ...
    def __call__(self, grads: Any, grad_outputs: Any, /) -> Any: ...

def bind(**told: Any) -> None: ...
