"""Own names: what frameworks call the weights of a module, and how their axes lie, for gradients of weights.

Recordings have no modules, only the types of them: so this goes by names. Weights themselves are carried over by
what `backends/<framework>/neutral.py` declares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline.backends.neutral import last_first, turned
from hookline.diffs.naming import kinds_of

TORCHS = {
    "kernel": "weight",
    "scale": "weight",
    "gamma": "weight",
    "embedding": "weight",
    "embedding_table": "weight",
    "beta": "bias",
}
"""torch's name for what other frameworks call otherwise."""


def same_weights(
    ours: Sequence[str], theirs: Sequence[str], said: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[str, str]]:
    """The names of one module's weights in A and in B, and twice the same for one that only one side has.

    `said` are names that a map tells. Where both sides have weights that the other has not, these are names that
    nobody knows, and none of them is given.

    >>> list(same_weights(["weight", "bias"], ["kernel", "bias"]))
    [('weight', 'kernel'), ('bias', 'bias')]
    >>> list(same_weights(["weight", "bias"], ["weight"])), list(same_weights(["weight_ih_l0"], ["l0_i2h_weight"]))
    ([('weight', 'weight'), ('bias', 'bias')], [])
    """
    found = dict(said)
    for same in (str, _word):
        for name in ours:
            known = [its for its in theirs if its not in found.values() and same(its) == same(name)]
            if name not in found and len(known) == 1:
                found[name] = known[0]
    lone = [name for name in theirs if name not in found.values()]
    for name in ours:
        if name in found or not lone:
            yield name, found.get(name, name)
    if all(name in found for name in ours):
        yield from ((name, name) for name in lone)


def in_layout_of(mine: tuple[str, str], its: tuple[str, str], array: NDArray[Any]) -> NDArray[Any]:
    """B's array of a weight as A has it; each side is (name of the weight, type of its module).

    >>> in_layout_of(("weight", "Conv2d"), ("kernel", "Conv"), np.zeros((3, 3, 2, 4))).shape
    (4, 2, 3, 3)
    >>> in_layout_of(("kernel", "Linear"), ("weight", "Linear"), np.zeros((4, 2))).shape
    (2, 4)
    """
    if (way := _way(*its)) is not None:
        array = (last_first if way == "kernel" else turned)(array)
    if (way := _way(*mine)) == "kernel":
        array = np.moveaxis(array, (0, 1), (-1, -2))
    elif way == "turned":
        array = np.flip(np.moveaxis(array, (0, 1), (-2, -1)), tuple(range(array.ndim - 2)))
    return array


def _way(name: str, type_name: str) -> str | None:
    """How a weight lies that is not as torch has it: a kernel has its output last."""
    kinds = kinds_of(type_name)
    if name != "kernel" or not kinds & {"dense", "conv", "convtranspose"}:
        return None
    return "turned" if "convtranspose" in kinds else "kernel"


def _word(name: str) -> str:
    return TORCHS.get(name, name)
