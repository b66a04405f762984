"""Backend: what hookline needs of a framework, and nothing more, by subject.

A new framework is a folder with a class that has these methods. Most of what frameworks share is in
`defaults.Defaults`, to be derived from; `hookline.testing.conformance` is the suite that such a backend must pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hookline.backends.capabilities import Framework
from hookline.backends.carrying import Carrying
from hookline.backends.facts import ModuleFact, RunFacts
from hookline.backends.gate import Gate
from hookline.backends.hearing import HeardLoss as HeardLoss
from hookline.backends.hearing import Hearing as Hearing
from hookline.backends.hearing import NumbersListener as NumbersListener
from hookline.backends.measuring import Statistics as Statistics
from hookline.backends.nouns import Address as Address
from hookline.backends.nouns import ExchangeRule as ExchangeRule
from hookline.backends.nouns import GradSink as GradSink
from hookline.backends.nouns import HeardSite as HeardSite
from hookline.backends.nouns import JointSink as JointSink
from hookline.backends.nouns import Layout as Layout
from hookline.backends.nouns import Model as Model
from hookline.backends.nouns import Module as Module
from hookline.backends.nouns import Tensor as Tensor
from hookline.backends.nouns import Tree as Tree
from hookline.backends.operators import Operator, OpListener
from hookline.backends.passing import Asked as Asked
from hookline.backends.passing import Joining as Joining
from hookline.backends.passing import Listening as Listening
from hookline.backends.passing import Told as Told
from hookline.backends.repeating import Recomputation, Repeating
from hookline.backends.tap import COUNTING as COUNTING
from hookline.backends.tap import FunctionTap as FunctionTap
from hookline.backends.tap import Inert as Inert
from hookline.backends.tap import Label as Label
from hookline.backends.tap import Needs as Needs
from hookline.backends.tap import Placement as Placement
from hookline.backends.tap import Rank as Rank
from hookline.backends.tap import StatsSpec as StatsSpec
from hookline.backends.tap import Tap as Tap
from hookline.backends.tap import Undo as Undo
from hookline.backends.undoing import Undoing
from hookline.backends.values import Values
from hookline.backends.weights import HeldWeight as HeldWeight
from hookline.backends.wired import Wires

if TYPE_CHECKING:
    pass  # a script that is launched may not want it


class Trees(Protocol):
    """The tree of a model: its modules, their names, their tensors."""

    def is_model(self, thing: Any) -> bool:
        """Whether `thing` is a model of this framework."""

    def named_modules(self, model: Model) -> Iterable[tuple[str, Module]]:
        """Every module under every name, parents first; Unsupported where hooks can't work."""

    def children(self, model: Model) -> list[Module]:
        """The modules directly below the model."""

    def tensors_of(self, model: Model) -> dict[str, Tensor]:
        """Every parameter and buffer by its dotted name."""

    def parameters_of(self, model: Model) -> dict[str, Tensor]:
        """Every parameter by its dotted name, tied ones under each of their names."""


class Placing(Protocol):
    """Taps, and what else is put into a model for a while."""

    def attach(self, undoing: Undoing, placements: list[Placement]) -> None:
        """Places all taps, or none."""

    def placed(self, model: Model) -> list[Label]:
        """The labels of all taps of hookline on this model."""

    def place_state_hook(
        self, undoing: Undoing, module: Module, when: tuple[str, str], fn: Callable[..., Any], label: Label
    ) -> None:
        """A hook on the state dict; `when` is (save or load, pre or post)."""

    def replace_forward(self, undoing: Undoing, module: Module, fn: Callable[..., Any], label: Label) -> None:
        """Has `fn(original_forward, *args, **kwargs)` run in place of the forward."""

    def held_weights(self, model: Model, tensors: dict[str, Tensor]) -> Sequence[HeldWeight]:
        """For parameters and buffers of a model, by name, what puts other numbers into them; each tensor once."""


class GradientTaps(Protocol):
    """Gradients of what enters and leaves a module, heard or replaced.

    Where an output leaves, `call` is a number that all taps of that call have in common, and no other call;
    `references` is what the tap counted of the output by `sys.getrefcount`, before anything else: it tells whether
    somebody else has the output too.
    """

    def heard(self, output: Tree, sink: GradSink, call: int, references: int) -> Tree:
        """`output` to go on with; `sink` is called with each gradient of it."""

    def site_memory(self, module: Module) -> Any:
        """What the passages of one site may remember from call to call."""

    def listener(self, sink: Told, memory: Any) -> Listening:
        """A passage that reports the gradient of each place and changes nothing."""

    def joined_inputs(self, sink: Asked, memory: Any) -> Joining:
        """A passage that brings the gradients of all inputs together, those of the outputs told before."""

    def joined(self, output: Tree, sink: JointSink, call: int, references: int) -> Tree:
        """`output` to go on with; `sink` gets the gradients of all its places at once."""

    def tapped(self, tensors: tuple[Tensor, ...], sink: JointSink) -> tuple[Tensor, ...]:
        """The tensors to go on with; `sink` gets the gradients at this very point."""

    def hear_parameters(self, undoing: Undoing, sites: Iterable[HeardSite], label: Label) -> None:
        """Has `sink(name, grad)` called for each of the own parameters of every site's module; `label` is the same
        for all of them, but for the site."""

    def hear_accumulated(
        self, undoing: Undoing, parameter: Tensor, fn: Callable[[Tensor], None], label: Label
    ) -> None:
        """Has `fn(parameter)` called when a backward has added to its gradient; InvalidArgument if it is lazy."""


class Operators(Protocol):
    """Every operator that a model runs; `operators.py` names them for all frameworks."""

    def operator_names(self) -> Sequence[Operator]:
        """Every operator there is; empty where the framework does not tell."""

    def hook_operators(
        self, undoing: Undoing, model: Model, places: dict[str, Module], listener: OpListener, label: Label
    ) -> None:
        """Has `listener` told of each operator that runs in these modules of the model or their parts."""

    def unseen(self) -> AbstractContextManager[object]:
        """A block whose operators are no model's: a user's function that works on recorded values."""


class Compiling(Protocol):
    """Programs made of code before it runs; `defaults.Immediate` is for frameworks that run it as it is.

    `not_called` says in an audit why no tap at all was called; `tells_at_once`, whether a tap is told of a call
    when it happens, also in compiled code.
    """

    not_called: str
    tells_at_once: bool

    def hooked(self, hook: Callable[..., Any], label: Label) -> Callable[..., Any]:
        """A user's hook in the form in which a tap calls it."""

    def lasting(self, module: Module) -> Module:
        """The module to hand to a hook that runs when the call of `module` is over."""

    def is_compiled(self) -> bool:
        """Whether code may run that was made for the taps there were: with others it would be made again."""

    def settled(self) -> None:
        """Waits until every tap has seen what has passed it so far; raises what a hook raised meanwhile."""


class Training(Protocol):
    """Optimizer steps, modes, parameters and their gradients."""

    def hear_steps(
        self,
        undoing: Undoing,
        model: Model,
        before: Callable[..., None],
        after: Callable[[set[int]], None],
        gate: Gate | None = None,
    ) -> None:
        """Has `before` and `after` called around each step of an optimizer of this model.

        They get the ids of the parameters that the optimizer holds; `before` also the gradients by these ids,
        where a framework keeps them outside of the parameters. A `gate` that is closed for an optimizer is
        all that is told of its step; a backend may leave it open.
        """

    def needs_gradient(self, tree: Tree) -> bool:
        """Whether a tensor of this structure is part of a graph."""

    def is_training(self, model: Model) -> bool:
        """Whether the model is in training mode."""

    def own_parameters(self, module: Module) -> dict[str, Tensor]:
        """The module's own parameters, without those of its parts."""

    def gradient(self, parameter: Tensor) -> Tensor | None:
        """A parameter's accumulated gradient, or None."""

    # Of a parameter, around a step that `hear_steps` tells of. A framework may tell of a step later than it was
    # made; the parameter then holds something else, and these say what it was.

    def value_of(self, parameter: Tensor) -> Tensor:
        """What the parameter held before the step: most often the parameter itself."""

    def update_of(self, parameter: Tensor, before: Tensor) -> Tensor:
        """What the step added to the parameter; `before` is a snapshot of `value_of`."""

    def lost(self, parameter: Tensor, before: Tensor, grad: Tensor) -> Any:
        """The share of elements with a gradient that the step left as they were; None in full precision."""

    def rank(self) -> int:
        """The number of this process among those that train together."""


class Auditing(Protocol):
    """What the audit of a recording asks."""

    def why_silent(self, modules: dict[str, Module], name: str, silent: Collection[str] = ()) -> str | None:
        """What the code tells of a module that was never called; those in `silent` are known not to have run."""

    def remarks(self, modules: dict[str, Module], sites: Collection[str] | None = None) -> dict[str, str]:
        """What looking changed, by site."""

    def why_no_numbers(self, value: Tree) -> str | None:
        """Why a recorded structure stands for values and has none; None where it has numbers."""


class Describing(Protocol):
    """What summaries and traces are made of; `forward_name` is what the framework calls a forward."""

    forward_name: str

    def modules_of(self, model: Model) -> list[ModuleFact]:
        """A fact for each module, in order of definition."""

    def described_input(self, model: Model, shape: tuple[int, ...], dtype: Any) -> Any:
        """What stands for an input of that shape in `traced_run`; dtype None is the model's own."""

    def traced_run(
        self, model: Model, args: Tree, kwargs: Tree, *, real: bool = False, flow: bool = False
    ) -> RunFacts:
        """What a call of the model does, without computing it unless `real`; the model stays as it is."""

    def evaluating(self, model: Model) -> AbstractContextManager[object]:
        """The model as for inference, without gradients; afterwards each module's own mode is back."""

    def random_input(self, model: Model, shape: tuple[int, ...]) -> Tensor:
        """A random tensor as the model takes them; the global generator is left alone."""

    def integers(self, tree: Tree) -> Tree:
        """A structure in which described inputs are integers."""

    def forward_of(self, module: Module) -> tuple[Callable[..., Any], str]:
        """The function that runs when the module is called, and whose it is."""

    def callee(self, module: Module) -> Callable[..., Any]:
        """What a call's arguments are handed to after all taps: they must fit its signature."""


class Exporting(Protocol):
    """Programs that are made of a model and run elsewhere."""

    def place_marks(self, undoing: Undoing, places: dict[str, Any], label: Label) -> None:
        """Marks the outputs of these modules, also in programs that are made meanwhile."""

    def hear_marks(self, undoing: Undoing, listener: Callable[[str, Any], Any]) -> None:
        """Has `listener(site, tensor)` called for every marked value that passes in this process."""

    def with_statistics(self, model: Any, places: dict[str, Any]) -> Any:
        """A model that returns (its output, {site: a vector of statistics})."""


class Files(Protocol):
    """Tensors in safetensors files."""

    def write_safetensors(self, path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
        """Writes tensors to a new file."""

    def read_safetensors(self, path: Path, keys: list[str] | None = None) -> dict[str, Tensor]:
        """The tensors of a file by name."""


class TensorBackend(Values, Statistics, Files, Protocol):
    """The entry to what has tensors and no models: numpy. `framework` declares what of it works."""

    name: str
    tensor: type
    framework: Framework


class Backend(
    Trees,
    Placing,
    GradientTaps,
    Operators,
    Exporting,
    Compiling,
    Recomputation,
    Training,
    Repeating,
    Carrying,
    Wires,
    Hearing,
    Auditing,
    Describing,
    TensorBackend,
    Protocol,
):
    """The entry to one framework: all of the above."""
