"""Describe by running: one real run of a model in inference, call by call.

For frameworks that have no tensors without numbers. Names, types, shapes and parameters are there; costs are not
counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from hookline.backends.capabilities import Framework
from hookline.backends.facts import CallFact, ModuleFact, ParameterFact, RunFacts, TensorFact, described
from hookline.backends.nouns import Model, Module, Tensor, Tree
from hookline.backends.protocol import FunctionTap, Label, Placement
from hookline.backends.undoing import Undoing, tidied
from hookline.trees import map_leaves


@dataclass(frozen=True)
class Described:
    """Stands for an input of which only shape and dtype are known; None is the model's own dtype."""

    shape: tuple[int, ...]
    dtype: Any = None


class DescribeByRunning:
    """`modules_of`, `described_input`, `integers` and `traced_run` of a backend that adds the rest of these."""

    tensor: type
    framework: Framework

    def named_modules(self, model: Model) -> Iterable[tuple[str, Any]]:
        raise NotImplementedError

    def own_parameters(self, module: Module) -> dict[str, Any]:
        raise NotImplementedError

    def attach(self, undoing: Undoing, placements: list[Placement]) -> None:
        raise NotImplementedError

    def evaluating(self, model: Model) -> AbstractContextManager[None]:
        raise NotImplementedError

    def is_training(self, model: Model) -> bool:
        raise NotImplementedError

    def has_forward(self, module: Module) -> bool:
        """Whether the module can be called; one that only holds others can't."""
        raise NotImplementedError

    def zeros(self, model: Model, shape: tuple[int, ...], dtype: Any) -> Any:
        """A tensor of zeros; dtype None is the model's own floating one, "int64" stands for whole numbers."""
        raise NotImplementedError

    def tensor_fact(self, tensor: Tensor) -> TensorFact:
        raise NotImplementedError

    def is_trainable(self, parameter: Tensor) -> bool:
        return True

    # What these make

    def modules_of(self, model: Model) -> list[ModuleFact]:
        """A fact for each module, in order of definition."""
        names: dict[int, list[str]] = {}
        modules: dict[int, Any] = {}
        for name, module in self.named_modules(model):
            names.setdefault(id(module), []).append(name)
            modules[id(module)] = module
        return [
            ModuleFact(own[0], tuple(own[1:]), type(module).__name__, self.has_forward(module), self._held(module))
            for own, module in zip(names.values(), modules.values(), strict=True)
        ]

    def _held(self, module: Module) -> tuple[ParameterFact, ...]:
        held = []
        for name, parameter in self.own_parameters(module).items():
            fact = self.tensor_fact(parameter)
            count = 1
            for size in fact.shape:
                count *= size
            held.append(
                ParameterFact(
                    id(parameter), name, count, fact.nbytes, fact.dtype, fact.device, self.is_trainable(parameter)
                )
            )
        return tuple(held)

    def described_input(self, model: Model, shape: tuple[int, ...], dtype: Any) -> Described:
        return Described(shape, dtype)

    def integers(self, tree: Tree) -> Any:
        return map_leaves(lambda given: Described(given.shape, "int64"), tree, Described)

    def traced_run(
        self, model: Model, args: Tree, kwargs: Any, *, real: bool = False, flow: bool = False
    ) -> RunFacts:
        """What a call of the model does; an error of the model is in the result, not raised."""
        args, kwargs = map_leaves(
            lambda given: self.zeros(model, given.shape, given.dtype), (args, kwargs), Described
        )
        calls = Calls(lambda tree: described(tree, self.tensor, self.tensor_fact))
        error: Exception | None = None
        training = self.is_training(model)
        try:
            _run_within(self, calls, model, args, kwargs)
        except Exception as raised:
            error = raised
        failed = calls.open[-1] if error is not None and calls.open else None
        notes = ["ran with real tensors, in inference; multiply-accumulates and memory are not counted"]
        no_costs = self.framework.unsupported("costs")
        return RunFacts(self.modules_of(model), calls.calls, True, training, error, failed, notes, no_costs)


@tidied
def _run_within(
    undoing: Undoing, backend: DescribeByRunning, calls: Calls, model: Model, args: Tree, kwargs: Any
) -> None:
    """Calls the model in inference, with its calls told."""
    backend.attach(undoing, calls.placements(backend.named_modules(model)))
    undoing.enter_context(backend.evaluating(model))
    model(*args, **kwargs)


class Calls:
    """Keeps the stack of calls under way."""

    def __init__(self, facts: Callable[[Any], Any]) -> None:
        self.calls: list[CallFact] = []
        self.open: list[int] = []
        self._facts = facts
        self.names: dict[int, list[str]] = {}
        self._finished = 0

    def placements(self, named: Iterable[tuple[str, Any]]) -> list[Placement]:
        placements = []
        for name, module in named:
            self.names.setdefault(id(module), []).append(name)
            if len(self.names[id(module)]) == 1:
                label = Label("summary", "summary", name)
                placements.append(Placement(module, FunctionTap(self.before, label, after=False)))
                placements.append(Placement(module, FunctionTap(self.after, label)))
        return placements

    def before(self, module: Module, args: Tree, kwargs: Any) -> None:
        names = self.names[id(module)]
        parent = self.open[-1] if self.open else None
        name = names[0]
        if parent is not None and (caller := self.calls[parent].name):
            name = next((own for own in names if own.startswith(f"{caller}.")), names[0])
        self.open.append(len(self.calls))
        self.calls.append(CallFact(name, names[0], parent, self._facts(args), self._facts(kwargs)))

    def after(self, module: Module, args: Tree, kwargs: Any, output: Tree) -> None:
        name = self.names[id(module)][0]
        # A model may catch the error of a part and go on: that part's call never returns.
        while self.calls[self.open[-1]].module != name:
            self.open.pop()
        call = self.calls[self.open.pop()]
        call.finished, self._finished = self._finished, self._finished + 1
        call.output = self._facts(output)
