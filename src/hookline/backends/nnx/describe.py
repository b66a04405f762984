"""Describing: NNX models as facts, from one run on shapes alone (`jax.eval_shape`): nothing is computed."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from hookline.backends.capabilities import capabilities
from hookline.backends.describe_by_running import Calls
from hookline.backends.facts import ModuleFact, ParameterFact, RunFacts, TensorFact, described
from hookline.backends.nnx.compat import attributes
from hookline.backends.nnx.leaves import Array, array_of, is_float
from hookline.backends.nnx.modules import has_no_forward, is_training, own_parameters, walk
from hookline.backends.nnx.taps import attach
from hookline.backends.nouns import Module, Tensor, Tree
from hookline.backends.subclass import base_of
from hookline.backends.tap import FunctionTap, Label, Placement, Rank
from hookline.backends.undoing import Undoing, tidied
from hookline.errors import InvalidArgument
from hookline.trees import map_leaves

Shape: Any = jax.ShapeDtypeStruct


def modules_of(model: nnx.Module) -> list[ModuleFact]:
    """A fact for each module, in order of definition."""
    names: dict[int, list[str]] = {}
    modules: dict[int, nnx.Module] = {}
    for name, module in walk(model):
        names.setdefault(id(module), []).append(name)
        modules[id(module)] = module
    return [
        ModuleFact(own[0], tuple(own[1:]), type(module).__name__, not has_no_forward(module), tuple(_held(module)))
        for own, module in zip(names.values(), modules.values(), strict=True)
    ]


def _held(module: nnx.Module) -> Iterator[ParameterFact]:
    for name, parameter in own_parameters(module).items():
        fact = tensor_fact(array_of(parameter))
        count = math.prod(fact.shape)
        yield ParameterFact(id(parameter), name, count, fact.nbytes, fact.dtype, fact.device, True)


def tensor_fact(array: Tensor) -> TensorFact:
    """A fact of an array, real or traced."""
    shape = tuple(map(int, array.shape))
    devices = array.devices() if isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer) else ()
    home = str(next(iter(devices), "")) or jax.default_backend()
    return TensorFact(shape, str(array.dtype), home, math.prod(shape) * np.dtype(array.dtype).itemsize)


def described_input(model: nnx.Module, shape: tuple[int, ...], dtype: Any) -> Any:
    """What stands for an input of that shape; dtype None is that of the model's first floating parameter."""
    try:
        return Shape(shape, _floating(model) if dtype is None else dtype)
    except TypeError as error:
        raise InvalidArgument(f"no array has the shape {shape}: {error}") from None


def integers(tree: Tree) -> Any:
    """A structure in which described inputs are integers."""
    return map_leaves(lambda given: Shape(given.shape, jnp.int32), tree, Shape)


def random_input(model: nnx.Module, shape: tuple[int, ...]) -> jax.Array:
    """Numbers between -1 and 1 in the model's dtype."""
    return jax.random.uniform(jax.random.key(0), shape, _floating(model), -1.0, 1.0)


def _floating(model: nnx.Module) -> Any:
    held = (array_of(p) for _, module in walk(model) for p in own_parameters(module).values())
    return next((array.dtype for array in held if is_float(array)), jnp.float32)


@tidied
def _run_told(
    undoing: Undoing, calls: TracedCalls, model: nnx.Module, args: Tree, kwargs: Any, *, real: bool
) -> None:
    attach(undoing, calls.placements(walk(model)))
    _run(model, args, kwargs, real=real)


def traced_run(model: nnx.Module, args: Tree, kwargs: Any, *, real: bool = False, flow: bool = False) -> RunFacts:
    """What a call of the model does; an error of the model is in the result, not raised.

    It is a copy that runs: counters of random streams and running averages stay as they are.
    """
    calls = TracedCalls(lambda tree: described(tree, Array, lambda leaf: tensor_fact(array_of(leaf))))
    error: Exception | None = None
    try:
        _run_told(calls, model, args, kwargs, real=real)
    except Exception as raised:
        error = raised
    failed = calls.open[-1] if error is not None and calls.open else None
    notes = ["multiply-accumulates and memory are not counted on nnx"]
    no_costs = capabilities()["nnx"].unsupported("costs")
    return RunFacts(modules_of(model), calls.calls, real, is_training(model), error, failed, notes, no_costs)


def _run(model: nnx.Module, args: Tree, kwargs: Any, *, real: bool) -> None:
    """Runs a copy of the model on shapes; with `real`, on values: zeros where only a shape is given."""
    graph, state = nnx.split(model)
    given: list[Any] = []

    def take(leaf: Tensor) -> _Place:
        given.append(leaf)
        return _Place(len(given) - 1)

    template = map_leaves(take, (args, kwargs), (Shape, Array))

    def run(state: Any, arrays: list[Any]) -> None:
        positional, named = map_leaves(lambda place: arrays[place.index], template, _Place)
        nnx.merge(graph, state)(*positional, **named)

    if real:
        given = [jnp.zeros(one.shape, one.dtype) if isinstance(one, Shape) else one for one in given]
        jax.jit(run)(state, given)
    else:
        jax.eval_shape(run, state, given)


class _Place:
    def __init__(self, index: int) -> None:
        self.index = index


class TracedCalls(Calls):
    """Keeps the stack of calls under way while copies of the modules are traced."""

    def placements(self, named: Iterable[tuple[str, Any]]) -> list[Placement]:
        placements = []
        for name, module in named:
            self.names.setdefault(id(module), []).append(name)
            if len(self.names[id(module)]) == 1:
                label = Label("summary", "summary", name)
                before, after = partial(self._enter, module), partial(self._leave, module)
                # As edits they run while the code is traced, where the shapes are.
                placements.append(Placement(module, FunctionTap(before, label, after=False, rank=Rank.EDIT)))
                placements.append(Placement(module, FunctionTap(after, label, rank=Rank.EDIT)))
        return placements

    def _enter(self, original: Any, module: Module, args: Tree, kwargs: Any) -> None:
        self.before(original, args, kwargs)

    def _leave(self, original: Any, module: Module, args: Tree, kwargs: Any, output: Tree) -> None:
        self.after(original, args, kwargs, output)


@contextmanager
def evaluating(model: nnx.Module) -> Iterator[None]:
    """The model as for inference; each module's own mode comes back."""
    with ExitStack() as modes:
        for _, module in walk(model):
            for name, value in attributes(module):
                if name in ("deterministic", "use_running_average"):
                    modes.callback(setattr, module, name, value)
        model.eval()
        yield


def forward_of(module: nnx.Module) -> tuple[Callable[..., Any], str]:
    """The function that runs when the module is called, and the class that has it."""
    for base in base_of(type(module)).__mro__:
        if "__call__" in vars(base):
            found: Callable[..., Any] = inspect.getattr_static(base, "__call__")
            return found, base.__name__
    raise InvalidArgument(f"a {type(module).__name__} can't be called: it only holds other modules.")
