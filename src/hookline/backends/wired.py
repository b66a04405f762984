"""Wired: what a framework tells of how a training hangs together, for `hookline.wiring`.

A backend that can tell gives a `WiringSource` for a model; the others give none, and there is no wiring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from hookline.backends.nouns import Model, Module, Tensor, Tree
from hookline.backends.undoing import Undoing
from hookline.wiring import Module as ModuleNoun
from hookline.wiring import Parameter, Place

Node = tuple[int, str]
"""A node of a graph by its number and name: it is known by these, and nothing of the graph is kept alive."""


SpreadOnHost = Callable[[int, int, int, int], tuple[float, float]]
"""See `WiringSource.spread_of`."""


class Group(NamedTuple):
    """A group of an optimizer: its numbers, and the parameters that it holds."""

    numbers: dict[str, float]
    params: list[Tensor]


@dataclass
class Walked:
    """What a loss depends on, by its graph."""

    leaves: set[int] = field(default_factory=set)
    """The ids of the tensors without a history that it depends on."""
    maybe: set[int] = field(default_factory=set)
    """Those that it may depend on: compiled code takes them, and nobody sees what it does with them."""
    nodes: set[Node] = field(default_factory=set)
    is_whole: bool = True
    """Whether the graph shows all: no part of it runs code that it does not show, and it was walked to its end."""
    divided: bool | None = None
    operators: list[str] = field(default_factory=list)
    is_overlap: bool = False
    """Whether it is a score that is large where two agree: Dice, IoU."""


class Cut(NamedTuple):
    """Why a gradient does not come to a parameter, as the operators show it."""

    words: str
    line: str = ""


class OperatorLook(Protocol):
    """A look at each operator of one step, from the call of the model to the backward."""

    broadcast: list[Place]
    double_softmax: list[Place]
    dropped: list[Place]
    risky: list[Place]
    activations: list[Place]
    padding: list[Place]

    def start(self, inputs: Tree = None, *, evaluating: bool = False) -> None:
        """Operators are seen from now on, in this thread; `inputs` came into the model.

        In eval mode (`evaluating`) only those that drop values are noted.
        """

    def is_elsewhere(self) -> bool:
        """Whether it was begun in another thread, which alone can end it."""

    def stop(self) -> None:
        """No longer; a second time does nothing."""

    def module_ended(self, name: str, output: Tree) -> None:
        """The module of that name has put out these tensors."""

    def cut_of(self, parameter: Tensor) -> Cut | None:
        """What cut the graph behind a parameter; None where no operator shows it."""

    def on_input(self, losses: Iterable[Tensor]) -> bool | None:
        """Whether a loss was computed from what came into the model."""


class WiringSource(Protocol):
    """All that is asked of a framework about one model."""

    def stamp(self) -> object:
        """Something that differs once modules or parameters of the model are others than before."""

    def modules(self) -> dict[str, Module]:
        """Every module under every name, parents first."""

    def parameters(self) -> dict[str, Tensor]:
        """Every parameter that has a shape, tied ones under each of their names."""

    def outside(self) -> dict[str, tuple[Module | None, dict[str, Tensor]]]:
        """What modules of the model hold in lists and dicts, where nobody finds it: modules and parameters.

        By its place, "layers[0]": the module, or None for a parameter on its own, and all parameters by name.
        """

    def described(self, module: Module) -> ModuleNoun:
        """What a module is: its type, mode and settings."""

    def described_parameter(self, parameter: Tensor, module: str) -> Parameter:
        """What a parameter is that belongs to the module of that name."""

    def trainable(self, parameters: Iterable[Tensor]) -> list[bool]:
        """Whether gradients are computed for each."""

    def makes_graphs(self) -> bool:
        """Whether what runs now could have a backward."""

    def has_gradient(self, parameter: Tensor) -> bool:
        """Whether it has one now."""

    def modes(self, modules: Iterable[Module]) -> list[bool]:
        """Whether each module is in training mode."""

    def memory(self, parameter: Tensor) -> tuple[int, int, int] | None:
        """Which memory it lies in, and from which byte to which; None where that can't be told."""

    def hear(
        self,
        undoing: Undoing,
        stepping: Callable[[Any], None],
        loss: Callable[[tuple[Tensor, ...], str], None],
        wanted: Callable[[], bool],
    ) -> None:
        """Has `stepping(optimizer)` called before any optimizer steps, `loss(tensors, line)` before a backward.

        While `wanted()`; they must not raise.
        """

    def groups(self, optimizer: Any) -> list[Group]:
        """What an optimizer holds."""

    def held(self, optimizer: Any) -> tuple[int, ...]:
        """The ids of all that it holds, group by group, with -1 between them."""

    def is_same_optimizer(self, one: Any, other: Any) -> bool:
        """Whether one is a wrapper around the other."""

    def owners(self, tensors: Mapping[int, Tensor]) -> dict[int, str]:
        """By id, the type of a living module outside of the model that has the tensor. It looks at all objects."""

    def described_tensor(self, tensor: Tensor) -> str:
        """In words: "Parameter (10, 4)"."""

    def walked(self, tensors: Iterable[Tensor]) -> Walked:
        """What a loss depends on."""

    def nodes_of(self, tree: Tree) -> tuple[list[Node], bool]:
        """The nodes that made these tensors, and whether any tensor of them could have one."""

    def samples_of(self, tree: Tree) -> int:
        """How many samples come into a model; 0 where that can't be told."""

    def spread_of(self, tree: Tree, samples: int, on_host: SpreadOnHost | None) -> tuple[Any, Any] | None:
        """(spread, size) of a module's output for so many samples, to be read later; None where there is none.

        `on_host(pointer, lines, width, step)` gives both of fp32 values in this process's memory, quickly.
        """

    def is_compiled(self) -> bool:
        """Whether any code may run compiled: it is not looked into."""

    def look_at_operators(self) -> OperatorLook | None:
        """A look at the operators of a step, not begun; None where that would change what runs."""


class Wires(Protocol):
    """Whether a framework tells of wiring."""

    def wiring_source(self, model: Model) -> WiringSource | None:
        """What tells of the wiring of a model; None where nothing does."""
