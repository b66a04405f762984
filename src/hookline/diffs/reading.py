"""Reading: what crossed the sites of a recording, place by place, as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from hookline.backends.protocol import Backend
from hookline.branches import inside
from hookline.diffs.entries import Entry
from hookline.diffs.measures import Scale, scale_of
from hookline.errors import NotRecorded
from hookline.recording.calls import Call
from hookline.recording.files import reader_of
from hookline.recording.recording import Recording

FORWARD = ("input", "output")
BACKWARD = ("grad_output", "grad_input")
PARAM_GRAD = "param_grad"


class Key(NamedTuple):
    """A place of one side: a site, what is read there, and in which call."""

    site: str
    kind: str
    call: int = 0


class Leaf(NamedTuple):
    """One tensor of a structure: where it stands in it, and the tensor."""

    path: str
    tensor: Any


def leaves_of(tree: Any, kind: type) -> list[Leaf]:
    """The tensors of a structure, with their places.

    >>> leaves_of((1.5, {"mask": 2.5, "n": 3}), float)
    [Leaf(path='[0]', tensor=1.5), Leaf(path="[1]['mask']", tensor=2.5)]
    """
    if type(tree) is tuple and len(tree) == 1 and isinstance(tree[0], kind):  # as most arguments are
        return [Leaf("[0]", tree[0])]
    return list(_leaves(tree, kind, "", ()))


def _leaves(tree: Any, kind: type, path: str, above: tuple[int, ...]) -> Iterator[Leaf]:
    if isinstance(tree, kind):
        yield Leaf(path, tree)
    elif (branch := inside(tree, above)) is not None:
        for key, child in zip(branch[0], branch[1], strict=True):
            yield from _leaves(child, kind, f"{path}[{key!r}]", (*above, id(tree)))


def matched(ones: Sequence[Leaf], twos: Sequence[Leaf]) -> list[tuple[int, int]]:
    """Which tensor of one structure is which of another: by their places, what is left by shape and order.

    >>> a = [Leaf("[0]", np.zeros(3)), Leaf("['mask']", np.zeros(2))]
    >>> matched(a, [Leaf("[0]", np.ones(3)), Leaf("[1]", np.ones(2)), Leaf("[2]", np.ones(9))])
    [(0, 0), (1, 1)]
    """
    if [one.path for one in ones] == [two.path for two in twos]:
        return [(at, at) for at in range(len(ones))]
    there = {two.path: at for at, two in enumerate(twos)}
    pairs = [(at, there[one.path]) for at, one in enumerate(ones) if one.path in there]
    used, free = {at for at, _ in pairs}, [at for at in range(len(twos)) if at not in {b for _, b in pairs}]
    for at in range(len(ones)):
        if at in used:
            continue
        fit = next((b for b in free if tuple(twos[b].tensor.shape) == tuple(ones[at].tensor.shape)), None)
        if fit is not None:
            pairs.append((at, fit))
            free.remove(fit)
    return sorted(pairs)


class _Norms(Sequence[float]):
    """The norms of the tensors of a place, found when they are asked for: most alignments need none."""

    def __init__(self, side: Side, key: Key, count: int) -> None:
        self._side, self._key, self._count = side, key, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> float: ...
    @overload
    def __getitem__(self, at: slice) -> list[float]: ...
    def __getitem__(self, at: int | slice) -> float | list[float]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(self._count))]
        if not 0 <= at < self._count:
            raise IndexError(at)
        return self._side.scale(self._key, at).norm


class Side:
    """A recording that is compared, with the types of its model's modules where they are known."""

    def __init__(
        self, recording: Recording, types: dict[str, str] | None = None, *, in_memory: bool = False
    ) -> None:
        self.recording = recording
        self.types = types or {name: recording[name].type for name in recording.names}
        self.backend: Backend = reader_of(recording.backend)
        self.sites = [name for name in recording.names if not recording[name].op]
        self._scales: dict[Any, Scale] = {}
        self._calls: dict[str, list[Call]] = {}
        self.in_memory = in_memory
        self.unread: dict[str, None] = {}
        """The sites with tensors that can't be compared, nested ones say, in order."""
        self._leaves: dict[Key, list[Leaf]] = {}

    def calls(self, site: str) -> list[Call]:
        """The calls of a site, in the order in which they began: a module that calls itself ends otherwise."""
        known = self._calls.get(site)
        if known is None:
            known = self._calls[site] = sorted(self.recording[site].calls, key=attrgetter("order"))
        return known

    def entries(self) -> list[Entry]:
        """What is known of each site, for alignment."""
        found = []
        for order, site in enumerate(self.sites):
            given = self.leaves(Key(site, "output"))
            shapes = tuple(tuple(int(n) for n in one.tensor.shape) for one in given)
            norms = _Norms(self, Key(site, "output"), len(given))
            found.append(Entry(site, self.types.get(site, ""), order, len(self.calls(site)), shapes, norms))
        return found

    @cached_property
    def kinds(self) -> list[str]:
        """The kinds that the recording has."""
        return [kind for kind in (*FORWARD, *BACKWARD) if any(self._has(site, kind) for site in self.sites)]

    def leaves(self, key: Key) -> list[Leaf]:
        """The tensors of a place; the keyword arguments are behind the positional ones."""
        if key.kind == PARAM_GRAD:
            module, _, name = key.site.rpartition(".")
            grad = self.recording[module].param_grads.get(name) if name in self.param_grads(module) else None
            return [] if grad is None else [Leaf("", grad)]
        if not self.in_memory:
            return self._read(key)
        known = self._leaves.get(key)
        if known is None:
            known = self._leaves[key] = self._read(key)
        return known

    def _read(self, key: Key) -> list[Leaf]:
        call = self.calls(key.site)[key.call]
        trees = [getattr(call, key.kind)]
        if key.kind == "input":
            trees.append(call.kwargs)
        elif key.kind == "grad_input":
            trees.append(call.grad_kwargs)
        found = [leaf for tree in trees for leaf in leaves_of(tree, self.backend.tensor)]
        readable = [leaf for leaf in found if self.backend.is_readable(leaf.tensor)]
        if len(readable) < len(found):
            self.unread[key.site] = None
        return readable

    def param_grads(self, site: str) -> list[str]:
        """The names of a module's own parameters that have a recorded gradient."""
        try:
            return list(self.recording[site].param_grads)
        except (NotRecorded, NotImplementedError):
            return []

    def array(self, leaf: Leaf) -> NDArray[Any]:
        """The values of a tensor."""
        return np.asarray(self.backend.host(leaf.tensor))

    def dtype(self, leaf: Leaf) -> str:
        """The name of a tensor's dtype."""
        return self.backend.dtype_of(leaf.tensor)

    def scale(self, key: Key, at: int) -> Scale:
        """How large the numbers of a tensor are; each is looked at once, also one that is at several places."""
        asked: Any = id(self.leaves(key)[at].tensor) if self.in_memory else (key, at)
        known = self._scales.get(asked)
        if known is None:
            known = self._scales[asked] = scale_of(self.array(self.leaves(key)[at]))
        return known

    def _has(self, site: str, kind: str) -> bool:
        try:
            getattr(self.calls(site)[0], kind)
        except (NotRecorded, IndexError):
            return False
        return True
