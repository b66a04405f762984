"""Inputs: what a user gives for a model's inputs, as arguments to call it with.

A tuple of whole numbers is a shape; a structure of shapes stands for a structure of tensors; anything
else is passed on. A mapping whose keys are the forward's own arguments is passed as keywords.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hookline.backends.nouns import Model
from hookline.backends.protocol import Backend
from hookline.errors import InvalidArgument


class Inputs(NamedTuple):
    """Arguments for a call; `shapes` tells whether some of them were given as shapes only."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shapes: bool


def is_shape(value: Any) -> bool:
    """Whether `value` is a tuple or list of whole numbers.

    >>> [is_shape(value) for value in ((1, 3), [2, 2], (), (1, 2.5), ((1, 3), (1, 4)), (True, False))]
    [True, True, False, False, False, False]
    """
    return isinstance(value, (tuple, list)) and len(value) > 0 and all(type(size) is int for size in value)


def prepare(backend: Backend, model: Model, inputs: tuple[Any, ...], kwargs: dict[str, Any], dtype: Any) -> Inputs:
    """The arguments that `inputs` and `kwargs` mean; `dtype` is for shapes, one for all or one for each."""
    reader = _Reader(backend, model, dtype)
    args = [reader.read(value) for value in inputs]
    named = {name: reader.read(value) for name, value in kwargs.items()}
    if reader.dtypes:
        raise InvalidArgument(f"dtype={dtype!r} has {len(reader.dtypes)} entries more than there are shapes.")
    forward, _ = backend.forward_of(model)
    if len(args) == 1 and isinstance(args[0], Mapping) and _are_keywords(forward, args[0]):
        return Inputs((), {**args[0], **named}, reader.found)
    return Inputs(tuple(args), named, reader.found)


class _Reader:
    """Puts descriptions of inputs in the place of shapes; `found` says whether there were any."""

    def __init__(self, backend: Backend, model: Model, dtype: Any) -> None:
        self._backend, self._model, self._dtype = backend, model, dtype
        # A list with one dtype for each shape is taken from the front, shape by shape.
        self._one_each = isinstance(dtype, (list, tuple))
        self.dtypes = list(dtype) if self._one_each else []
        self.found = False

    def read(self, value: Any) -> Any:
        if is_shape(value):
            return self._described(value)
        if type(value) in (tuple, list):
            return type(value)([self.read(part) for part in value])
        if isinstance(value, Mapping):
            parts = {key: self.read(part) for key, part in value.items()}
            # Without shapes in it, it stays the very object that was given.
            return value if all(parts[key] is part for key, part in value.items()) else parts
        return value

    def _described(self, shape: Any) -> Any:
        self.found = True
        if any(size < 0 for size in shape):
            raise InvalidArgument(f"{shape} is no shape: a size is negative. Give sizes of 0 or more.")
        if self._one_each and not self.dtypes:
            raise InvalidArgument(f"dtype={self._dtype!r} has fewer entries than there are shapes.")
        wanted = self._backend.dtype(self.dtypes.pop(0) if self._one_each else self._dtype)
        return self._backend.described_input(self._model, tuple(shape), wanted)


def _are_keywords(forward: Callable[..., Any], mapping: Mapping[Any, Any]) -> bool:
    """Whether every key names an argument of `forward`."""
    try:
        parameters = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):  # a C function, or a ScriptModule's forward
        return False
    positional = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    names = {parameter.name for parameter in parameters if parameter.kind not in positional}
    return bool(mapping) and all(key in names for key in mapping)


def of_learner(learner: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """(model, inputs) of something like a fastai Learner, with a `.model` and `.dls.one_batch()`; else None."""
    model: Any = getattr(learner, "model", None)
    loaders: Any = getattr(learner, "dls", None)
    if model is None or not callable(getattr(loaders, "one_batch", None)):
        return None
    batch = loaders.one_batch()
    if not isinstance(batch, (tuple, list)):
        return model, (batch,)
    # The rest of a batch are targets.
    return model, tuple(batch[: getattr(loaders, "n_inp", 1 if len(batch) == 1 else len(batch) - 1)])
