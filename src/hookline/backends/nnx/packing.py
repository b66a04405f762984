"""Packing: from a structure of traced arrays to what is sent of it, and back to the structure that a tap sees."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hookline.backends.nnx import statistics
from hookline.backends.nnx.compat import is_opaque
from hookline.backends.nnx.leaves import Array, NotSent, array_of
from hookline.backends.nnx.module_taps import RAW
from hookline.backends.nouns import Tensor, Tree
from hookline.backends.tap import StatsSpec
from hookline.trees import leaves, map_leaves


class Packing:
    """What is sent of one structure: the leaves in each of the views, to be taken once.

    Statistics are computed in the program; where that runs on this machine's processor and the C kernel is there,
    the kernel does it in the callback, on the program's own memory, in less time than XLA's code takes. Either way
    only rows are kept. `reducers` are for `send`: what makes rows of an array that has arrived, or None.
    """

    def __init__(self, tree: Tree, views: Iterable[StatsSpec]) -> None:
        self._template = map_leaves(NotSent.of, tree, Array)
        self._arrays: list[Any] = []
        self._parts: dict[tuple[StatsSpec, int], tuple[int, int]] = {}
        self.reducers: list[Reducer | None] = []
        for view in views:
            for number, leaf in enumerate(map(array_of, leaves(tree, Array))):
                start = len(self._arrays)
                if view == RAW or on_host(view):
                    self._arrays.append(jax.random.key_data(leaf) if is_opaque(leaf) else leaf)
                    self.reducers.append(None if view == RAW else partial(_rows, view))
                else:
                    self._arrays += _packed(leaf, view)
                    self.reducers += [None] * (len(self._arrays) - start)
                self._parts[view, number] = start, len(self._arrays)
        self.count = len(self._arrays)

    def taken(self) -> list[Any]:
        """The arrays to send; this object outlives the trace and must not hold them."""
        arrays, self._arrays = self._arrays, []
        return arrays

    def seen(self, view: StatsSpec, values: list[Any]) -> Any:
        """The structure with what was sent for this view; a leaf of which nothing was sent has no values."""
        count = -1

        def leaf(known: NotSent) -> Any:
            nonlocal count
            count += 1
            part = self._parts.get((view, count))
            return known if part is None else _unpacked(known, view, values[part[0] : part[1]])

        return map_leaves(leaf, self._template, NotSent)


Reducer = Callable[[Any], "list[Any]"]


def on_host(view: StatsSpec) -> bool:
    """Whether statistics are left to the C kernel."""
    return view.on_host is not None and jax.default_backend() == "cpu"


def _rows(view: StatsSpec, array: Tensor) -> list[Any]:
    """What `_packed` gives, of an array that has arrived, as 64-bit words."""
    assert view.on_host is not None
    found = [view.on_host(array, view.histogram)]
    if view.functions:
        found.append(np.array([float(function(array, np)) for function in view.functions]).view(np.int64))
    if view.dim is not None and array.ndim > view.dim:
        found.append(view.on_host(array, False, view.dim))
    return found


def _packed(leaf: Tensor, view: StatsSpec) -> list[Any]:
    found = [statistics.packed(leaf, view.histogram)]
    if view.functions:
        found.append(statistics.scalars(view.functions, leaf))
    if view.dim is not None and leaf.ndim > view.dim:
        found.append(statistics.packed(leaf, False, view.dim))
    return found


def _unpacked(known: NotSent, view: StatsSpec, values: list[Any]) -> Any:
    if view == RAW:
        return jnp.asarray(values[0])
    seen = NotSent(known.shape, known.dtype)
    arrived = iter(values[0] if isinstance(values[0], list) else map(statistics.unpacked, values))
    seen.rows[view.histogram, None] = next(arrived)
    if view.functions:
        seen.numbers[view.functions] = next(arrived)
    if view.dim is not None and known.ndim > view.dim:
        seen.rows[False, view.dim] = next(arrived)
    return seen


def fingerprint(tree: Tree) -> Any:
    """A number made of the bits of all arrays.

    It tells the calls of one place in the code apart, so that a gradient finds the call that it belongs to: in
    loops, under vmap, and where a forward runs again.
    """
    total = jnp.uint32(0)
    for leaf in leaves(tree, Array):
        words = _bits(array_of(leaf)).reshape(-1)
        weights = lax.iota(jnp.uint32, words.size) * jnp.uint32(2654435761) + jnp.uint32(1)
        total = total * jnp.uint32(31) + (words * weights).sum(dtype=jnp.uint32)
    return total


def _bits(leaf: Tensor) -> Any:
    leaf = jnp.asarray(jax.random.key_data(leaf) if is_opaque(leaf) else leaf)
    if leaf.dtype == bool or leaf.dtype.itemsize < 2:
        return leaf.astype(jnp.uint32)
    if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
        leaf = jnp.stack([leaf.real, leaf.imag])
    wide = jnp.uint16 if leaf.dtype.itemsize == 2 else jnp.uint32
    return lax.bitcast_convert_type(leaf, wide).astype(jnp.uint32)
