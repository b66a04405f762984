"""Live: a model with its inputs, which is run as often as needed and stays what it was."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hookline.backends import resolve
from hookline.backends.protocol import Backend
from hookline.backends.undoing import Steps, Undoing, tidied
from hookline.diffs.following import Way, follow
from hookline.diffs.reading import Side
from hookline.diffs.sharing import SharedCopies
from hookline.errors import InvalidArgument, Unsupported
from hookline.hooks.select import ModuleTree
from hookline.recording.record import record
from hookline.recording.recording import Recording
from hookline.trees import leaves, map_leaves

Loss = Callable[[Any], Any]


@dataclass
class Live:
    """A model and what it is called with; each run starts from the same state and the same random numbers."""

    model: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    loss: Loss | None = None
    where: Any = "**"
    limit: int | str | None = None
    spill: str | None = None
    draws: bool = False
    """Whether a run draws random numbers, as far as one was made."""

    @cached_property
    def backend(self) -> Backend:
        """That of the model's framework."""
        return resolve(self.model)

    @cached_property
    def tree(self) -> ModuleTree:
        """The modules of the model."""
        return ModuleTree(self.backend.named_modules(self.model))

    @cached_property
    def types(self) -> dict[str, str]:
        """The name of each module's class."""
        return {name: type(module).__name__ for name, module in self.tree.modules.items()}

    @cached_property
    def start(self) -> Any:
        """The random numbers that every run begins with."""
        return self.backend.random_state()

    @cached_property
    def steps(self) -> Steps:
        """Those that make the model what it was before its first run; they are the same after every run."""
        steps = Steps()
        self.backend.keep_as_it_is(steps, self.model)
        return steps

    def side(self, way: Way | None = None, sites: list[str] | None = None) -> Side:
        """A recording of one run, of a backward too if there is a loss; each call goes the way."""
        return Side(_recorded(self, way, sites), self.types, in_memory=self.limit is None)

    def run(self, way: Way, sites: list[str]) -> None:
        """One forward, whose calls go the way."""
        _ran(self, way, sites)

    def described(self) -> str:
        """What it is, in words."""
        count = len({id(module) for module in self.tree.modules.values()})
        return f"{type(self.model).__name__} ({count} modules, {self.backend.name})"


@tidied
def _recorded(undoing: Undoing, live: Live, way: Way | None, sites: list[str] | None) -> Recording:
    begin(undoing, live)
    if way is not None:
        follow(undoing, live.backend, live.model, way, live.tree.known if sites is None else sites)
    spill = live.spill if live.limit is not None else None
    block = record(live.model, live.where, inputs=True, grads=live.loss is not None, limit=live.limit, spill=spill)
    if live.limit is None:
        block.copy_by(SharedCopies(live.backend))
    with block as recording:
        forward(undoing, live)
    live.draws = not live.backend.same_random(live.start, live.backend.random_state())
    return recording


@tidied
def _ran(undoing: Undoing, live: Live, way: Way, sites: list[str]) -> None:
    begin(undoing, live)
    follow(undoing, live.backend, live.model, way, sites)
    undoing.enter_context(live.backend.graph_free())
    args, kwargs = copied(live)
    live.model(*args, **kwargs)


def begin(undoing: Undoing, live: Live) -> None:
    """Has the model be what it is after the undoing; the random numbers are those of every run."""
    state = live.start
    live.steps.undone_at(undoing)
    live.backend.put_grads_aside(undoing, live.model)
    live.backend.restore_random(state)


def forward(undoing: Undoing, live: Live) -> None:
    """Calls the model and, where there is a loss, its backward."""
    args, kwargs = copied(live)
    if live.loss is None:
        undoing.enter_context(live.backend.graph_free())
        live.model(*args, **kwargs)
        return
    loss = live.loss(live.model(*args, **kwargs))
    if not isinstance(loss, live.backend.tensor):
        raise InvalidArgument(
            f"diff(loss=...) gave a {type(loss).__name__}: expected a scalar tensor to call backward() on."
        )
    if not hasattr(loss, "backward"):
        raise Unsupported(
            backend=live.backend.name,
            feature="diff(loss=...)",
            why="a loss has no backward() there: gradients are what a transform of a function gives",
            instead="record both with grads=True while you compute the gradients, and compare the recordings",
        )
    if not getattr(loss, "requires_grad", True):
        raise InvalidArgument(
            "diff(loss=...): nothing that the loss depends on needs a gradient. Unfreeze a parameter, give an "
            "input with requires_grad, or leave torch.no_grad()."
        )
    loss.backward()


def copied(live: Live) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs, copied: a model may write to them, and fill caches."""
    backend, given = live.backend, (live.args, live.kwargs)
    copies = {id(tensor): _copy(backend, tensor) for tensor in leaves(given, backend.tensor)}
    try:
        args, kwargs = copy.deepcopy(given, copies)
    except Exception:  # an object of the user's that can't be copied is handed over as it is
        args, kwargs = map_leaves(lambda tensor: copies[id(tensor)], given, backend.tensor)
    return args, kwargs


def _copy(backend: Backend, tensor: Any) -> Any:
    new = backend.snapshot(tensor)
    if getattr(tensor, "requires_grad", False):  # as torch has it
        new.requires_grad_(True)
    return new


def as_live(given: Any, inputs: Any, more: dict[str, Any]) -> Live:
    """A model with what `inputs` means as arguments: a dict is keywords, a tuple or list positions."""
    if isinstance(inputs, Mapping):
        return Live(given, (), dict(inputs), **more)
    if (
        isinstance(inputs, tuple)
        and len(inputs) == 2
        and isinstance(inputs[0], tuple)
        and isinstance(inputs[1], dict)
    ):
        return Live(given, inputs[0], inputs[1], **more)
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    return Live(given, args, {}, **more)
