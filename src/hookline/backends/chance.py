"""Chance: the random numbers that a run of a model draws, besides its framework's own, put back afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np


@contextmanager
def chance_kept(holders: Iterable[Mapping[str, Any]] = ()) -> Iterator[None]:
    """Around a run: Python's and NumPy's generators, and those that are values of `holders`, are as they were.

    >>> random.seed(3)
    >>> with chance_kept():
    ...     first = random.random()
    >>> random.random() == first
    True
    """
    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        stack.callback(np.random.set_state, np.random.get_state())
        for holder in holders:
            for value in list(holder.values()):
                _keep(value, stack)
        yield


def _keep(value: Any, stack: ExitStack) -> None:
    """Has a generator, of whatever library, be what it is when the stack is closed."""
    if isinstance(value, random.Random):
        stack.callback(value.setstate, value.getstate())
    elif isinstance(value, np.random.Generator):
        stack.callback(setattr, value.bit_generator, "state", value.bit_generator.state)
    elif type(value).__name__ in ("Generator", "RandomState"):  # torch's, and NumPy's old one
        with suppress(AttributeError):
            stack.callback(value.set_state, value.get_state())
