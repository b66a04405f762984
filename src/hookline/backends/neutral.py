"""Neutral: weights as a file has them that every framework can read, with torch's names and torch's axes.

A dense weight is (out, in), that of a convolution (out, in, *kernel), that of a transposed one (in, out, *kernel).
A framework declares a Form for each weight that it keeps otherwise; what it does not name is kept as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LAYOUT = "torch: dense (out, in), convolution (out, in, *kernel), transposed convolution (in, out, *kernel)"
"""What is said of the axes in a file."""


@dataclass(frozen=True)
class Form:
    """A weight, or a part of one, in a neutral file: its `name` there, below its module, and how its numbers lie.

    `view` gives the numbers as the file has them, without a copy: what is written to the result is in the weight.
    `type` is the type of module that has such a weight, where it is not the module's own.
    """

    name: str
    view: Callable[[Array], Array] = lambda array: array
    type: str = ""

    def filled(self, weight: Array, numbers: Array) -> None:
        """Writes numbers of a file into the weight."""
        self.view(weight)[...] = numbers


Forms = Mapping[str, tuple[Form, ...]]
"""By the name that a module has for a weight: how it is kept. Nothing for one that is not."""


def last_first(kernel: Array) -> Array:
    """A kernel (*kernel, in, out) as (out, in, *kernel).

    >>> last_first(np.zeros((3, 5, 2, 4))).shape, last_first(np.zeros((2, 4))).shape
    ((4, 2, 3, 5), (4, 2))
    """
    return np.moveaxis(kernel, (-1, -2), (0, 1))


def turned(kernel: Array) -> Array:
    """The kernel (*kernel, in, out) of a transposed convolution, turned around, as (in, out, *kernel)."""
    window = tuple(range(kernel.ndim - 2))
    return np.moveaxis(np.flip(kernel, window), (-2, -1), (0, 1))


def flat(inputs: int) -> Callable[[Array], Array]:
    """For a kernel with several axes of inputs, the first so many, and of outputs: as (out, in).

    >>> flat(1)(np.zeros((8, 2, 3))).shape, flat(2)(np.zeros((2, 3, 8))).shape
    ((6, 8), (8, 6))
    """

    def view(kernel: Array) -> Array:
        return kernel.reshape(math.prod(kernel.shape[:inputs]), -1).T

    return view


def line(array: Array) -> Array:
    """An array of several axes as one of one."""
    return array.reshape(-1)


def packed(*names: str, own: str, type: str = "") -> tuple[Form, ...]:
    """Forms of one weight in which several lie behind each other along the first axis, all of one size.

    >>> [one.view(np.arange(6)).tolist() for one in packed("q", "k", "v", own="weight")]
    [[0, 1], [2, 3], [4, 5]]
    """

    def part(at: int) -> Callable[[Array], Array]:
        return lambda array: array[at * (len(array) // len(names)) : (at + 1) * (len(array) // len(names))]

    return tuple(Form(f"{name}.{own}", part(at), type) for at, name in enumerate(names))


ATTENTION: Forms = {
    "in_proj_weight": packed("q_proj", "k_proj", "v_proj", own="weight", type="Linear"),
    "in_proj_bias": packed("q_proj", "k_proj", "v_proj", own="bias", type="Linear"),
    "q_proj_weight": (Form("q_proj.weight", type="Linear"),),
    "k_proj_weight": (Form("k_proj.weight", type="Linear"),),
    "v_proj_weight": (Form("v_proj.weight", type="Linear"),),
}
"""Attention that has the projections of queries, keys and values in one weight, or in weights of its own."""


def by_class(known: Mapping[type, Forms], module: object) -> Forms:
    """What is declared for the nearest class of a module."""
    return next((known[base] for base in type(module).__mro__ if base in known), {})
