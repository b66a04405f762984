"""Models: the models that were found in a process, each with a name, a watch and a run of its own."""

from __future__ import annotations

import inspect
import operator
import re
import sys
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from hookline.launching.frames import is_library

MOST = 16
"""So many models are watched at a time; a script that makes hundreds would drown in files."""


class Model:
    """One that was found: its watch, and who trains it.

    `is_guess`: it was only called so far, and goes when another one is trained.
    """

    def __init__(self, name: str, found: Any, watch: Any, *, is_guess: bool) -> None:
        self.name, self.is_guess = name, is_guess
        self.kind = type(found).__name__
        self.watch = watch
        """None when it was let go of: a watch holds its model."""
        self.path: Path | None = watch.path
        """The folder of its run."""
        self.optimizers: list[weakref.ref[Any]] = []
        self.unheard: Any = None
        """Follows the steps of an optimizer that tells nobody of them; None where one does."""
        self.is_over = False
        self._itself = weakref.ref(found)
        self._parameters = {id(one): weakref.ref(one) for one in found.parameters()}

    def is_of(self, found: Any) -> bool:
        """Whether this is the model."""
        return self._itself() is found

    def owns(self, parameter: Any) -> bool:
        """Whether the parameter was one of its own when it was found."""
        held = self._parameters.get(id(parameter))
        return held is not None and held() is parameter

    @property
    def is_abandoned(self) -> bool:
        """Whether there was an optimizer for it, and is none any more."""
        return bool(self.optimizers) and all(one() is None for one in self.optimizers)

    def part_named(self, module: Any) -> str | None:
        """The name of a module in it; None where it is no part of it."""
        itself = self._itself()
        if itself is None or self.watch is None:
            return None
        parts = self.watch.backend.named_modules(itself)
        return next((name for name, part in parts if part is module), None)


def name_for(model: Any, taken: Iterable[str], is_it: Callable[[Any, Any], bool] = operator.is_) -> str:
    """What the script calls a model: the variable or attribute that has it, or its class; numbered if need be.

    `is_it(value, model)` tells whether a value is the model, or something around it.
    """
    name = _variable_of(model, is_it) or snake(type(model).__name__)
    others = set(taken)
    if name not in others:
        return name
    return next(one for number in range(2, len(others) + 3) if (one := f"{name}_{number}") not in others)


def snake(name: str) -> str:
    """A class's name as a variable would be called.

    >>> snake("ResNet"), snake("GPT2LMHeadModel")
    ('res_net', 'gpt2_lm_head_model')
    """
    parts = re.sub(r"([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])", r"\1\3_\2\4", name)
    return re.sub(r"\W", "_", parts).lower().strip("_") or "model"


DEEPEST = 12
"""So many frames of the script are looked through for a name."""


def _variable_of(model: Any, is_it: Callable[[Any, Any], bool]) -> str:
    frame: FrameType | None = sys._getframe(1)
    for _ in range(DEEPEST):
        while frame is not None and is_library(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            break
        found = _name_in(frame, lambda value: value is not None and is_it(value, model))
        if found:
            return found
        frame = frame.f_back
    return ""


def _name_in(frame: FrameType, is_it: Callable[[Any], bool]) -> str:
    """The variable of a frame that has the model, or the attribute of its `self`; not `self` itself."""
    variables = frame.f_locals
    found = _key_of(variables, is_it)
    owner = variables.get("self")
    if not found and owner is not None and not is_it(owner):
        with suppress(TypeError):
            found = _key_of(vars(owner), is_it)
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(variables, dict):
        variables.clear()  # a copy that Python keeps: what the function lets go of would live on in it
    return found


def _key_of(variables: Any, is_it: Callable[[Any], bool]) -> str:
    for name, value in list(variables.items()):
        if isinstance(name, str) and name != "self" and not name.startswith("__") and is_it(value):
            return name.strip("_") or name
    return ""
