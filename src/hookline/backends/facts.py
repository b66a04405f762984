"""Facts: what a backend tells of a model and of one run of it, in plain numbers and text.

No tensor and no module is in here, so that whatever is built on facts works without a framework.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hookline.backends.nouns import Tree
from hookline.branches import inside
from hookline.errors import Unsupported


@dataclass(frozen=True, slots=True)
class TensorFact:
    """A tensor's shape, dtype, device and bytes; -1 is a size that differs from part to part."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    nbytes: int

    def __str__(self) -> str:
        return "x".join("?" if size < 0 else str(size) for size in self.shape) or "scalar"


@dataclass(frozen=True, slots=True)
class ParameterFact:
    """A parameter of a module; `key` is the same for one that several modules share."""

    key: int
    name: str
    count: int
    nbytes: int
    dtype: str
    device: str
    trainable: bool


@dataclass(frozen=True, slots=True)
class ModuleFact:
    """A module: its first name, its other names, and what it holds itself, not in its parts.

    `callable` is False where it only holds others, as a ModuleList does. `hidden` says why calls of it are seen by
    nobody, where that is so.
    """

    name: str
    aliases: tuple[str, ...]
    type: str
    callable: bool
    parameters: tuple[ParameterFact, ...]
    hidden: str = ""


@dataclass(slots=True)
class CallFact:
    """One call of a module, under the name by which its caller has it.

    Costs are the call's own: what its parts cost stands in their calls. `parent` is the number of the
    call that made this one, None for the model's; `finished` numbers calls in the order in which they
    returned, and is None where one did not. `fed_by` are the calls of leaves whose results reach it.
    """

    name: str
    module: str
    parent: int | None
    input: Any
    kwargs: Any
    output: Any = None
    finished: int | None = None
    macs: int = 0
    activation_bytes: int = 0
    saved_bytes: int = 0
    unknown_ops: dict[str, int] = field(default_factory=dict)
    fed_by: set[int] = field(default_factory=set)


@dataclass(slots=True)
class RunFacts:
    """One run: the modules, the calls in the order in which they began, and how it ended.

    `real` tells whether tensors were computed; `error` is what ended the run, in the call `failed_in`;
    `no_costs` is what asking for costs raises, where a backend does not count them.
    """

    modules: list[ModuleFact]
    calls: list[CallFact]
    real: bool
    training: bool
    error: Exception | None = None
    failed_in: int | None = None
    notes: list[str] = field(default_factory=list)
    no_costs: Unsupported | None = None


def described(tree: Tree, tensor: type, fact: Callable[[Any], TensorFact], above: tuple[int, ...] = ()) -> Any:
    """`tree` with a TensorFact for each tensor, in plain tuples, lists and dicts; small values stay.

    >>> described({"a": (1.5, None), "b": range(3)}, float, lambda x: TensorFact((), "float", "cpu", 8))
    {'a': (TensorFact(shape=(), dtype='float', device='cpu', nbytes=8), None), 'b': 'range'}
    """
    if isinstance(tree, tensor):
        return fact(tree)
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    if (branch := inside(tree, above)) is None:
        return type(tree).__name__
    keys, children, _ = branch
    inner = [described(child, tensor, fact, (*above, id(tree))) for child in children]
    if isinstance(tree, (tuple, list)):
        return tuple(inner) if isinstance(tree, tuple) else inner
    return dict(zip(map(str, keys), inner, strict=True))
