"""Chance: the random numbers that a run of a model draws, besides its framework's own, put back afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from hookline.backends.undoing import Noting


def keep_chance(undoing: Noting, holders: Iterable[Mapping[str, Any]] = ()) -> None:
    """Has Python's and NumPy's generators, and those that are values of `holders`, be put back to what they are.

    >>> from hookline.backends.undoing import Undoing
    >>> random.seed(3)
    >>> with Undoing() as undoing:
    ...     keep_chance(undoing)
    ...     first = random.random()
    >>> random.random() == first
    True
    """
    undoing.noted(random.setstate, random.getstate())
    undoing.noted(np.random.set_state, np.random.get_state())
    for holder in holders:
        for value in list(holder.values()):
            _keep(value, undoing)


def _keep(value: Any, undoing: Noting) -> None:
    """Has a generator, of whatever library, be put back to what it is."""
    if isinstance(value, random.Random):
        undoing.noted(value.setstate, value.getstate())
    elif isinstance(value, np.random.Generator):
        undoing.noted(setattr, value.bit_generator, "state", value.bit_generator.state)
    elif type(value).__name__ in ("Generator", "RandomState"):  # torch's, and NumPy's old one
        with suppress(AttributeError):
            undoing.noted(value.set_state, value.get_state())
