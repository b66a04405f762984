"""Ways: what is done to the values of a forward, to learn what rounding does and where an error is born."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline.backends.protocol import Backend
from hookline.diffs.calling import calling_line
from hookline.diffs.following import Leaves, Visit, Way
from hookline.diffs.measures import Apart, apart, same_bits, step_of
from hookline.diffs.reading import Key, Leaf, Side, matched
from hookline.diffs.sharing import Gaps, Recent
from hookline.diffs.tolerance import Noise
from hookline.trees import leaves as leaves_in

PLAIN = (bool, int, float, complex, str)

SIGNS = 1 << 12
"""So many random signs are made; larger tensors have them over and over."""


class Shaker:
    """Moves the numbers of tensors by about one step of a dtype, up or down by chance."""

    def __init__(self, backend: Backend, step: float | None = None) -> None:
        self._backend, self._step = backend, step
        self._signs = np.random.default_rng(0).choice(np.array([-1.0, 1.0]), SIGNS)
        self._factors: dict[str, Any] = {}

    def __call__(self, tensor: Any) -> Any:
        """The tensor with each number moved; itself, if it holds whole numbers."""
        dtype = self._backend.dtype_of(tensor)
        if not (own := step_of(dtype)):
            return tensor
        size = int(np.prod(tensor.shape, dtype=np.int64))
        known = self._factors.get(dtype)
        if known is None or known.shape[0] < size:
            factors = self._backend.from_host(1.0 + max(own, self._step or 0.0) * np.resize(self._signs, size))
            known = self._factors[dtype] = self._backend.fitted(factors, tensor)
        return tensor * known[:size].reshape(tuple(tensor.shape))

    def moves(self, tensor: Any) -> bool:
        """Whether the numbers of this tensor can be moved."""
        return step_of(self._backend.dtype_of(tensor)) > 0


class Shaken(Way):
    """What goes into each module that has no parts is moved by one rounding.

    Where only whole numbers go in, as into an embedding, it is what comes out.
    """

    def __init__(self, shaker: Shaker, innermost: set[str]) -> None:
        self._shake, self._innermost = shaker, innermost
        self._whole: set[Visit] = set()

    def arriving(self, visit: Visit, leaves: Leaves) -> Sequence[Any] | None:
        if visit.site not in self._innermost:
            return None
        if not any(self._shake.moves(leaf.tensor) for leaf in leaves):
            self._whole.add(visit)
            return None
        return [self._shake(leaf.tensor) for leaf in leaves]

    def leaving(self, visit: Visit, leaves: Leaves) -> Sequence[Any] | None:
        return [self._shake(leaf.tensor) for leaf in leaves] if visit in self._whole else None


@dataclass
class Measured(Way):
    """How far a run of the reference's own model is from the reference; each call goes the `inner` way as well."""

    backend: Backend
    reference: Side
    inner: Way = field(default_factory=Way)
    noise: Noise = field(default_factory=Noise)

    def __post_init__(self) -> None:
        self._gap = Gaps(self.backend, self.reference)

    def arriving(self, visit: Visit, leaves: Leaves) -> Sequence[Any] | None:
        self._measure(Key(visit.site, "input", visit.call), leaves)
        return self.inner.arriving(visit, leaves)

    def leaving(self, visit: Visit, leaves: Leaves) -> Sequence[Any] | None:
        new = self.inner.leaving(visit, leaves)
        left = leaves if new is None else [Leaf(leaf.path, one) for leaf, one in zip(leaves, new, strict=True)]
        self._measure(Key(visit.site, "output", visit.call), left)
        return new

    def _measure(self, key: Key, leaves: Leaves) -> None:
        if key.call < len(self.reference.calls(key.site)):
            wanted = self.reference.leaves(key)
            for at, there in matched(wanted, leaves):
                if not _misfit(wanted[at].tensor, leaves[there].tensor):
                    self.noise.note(key, at, self._gap(wanted[at], leaves[there].tensor))


@dataclass(frozen=True)
class Born:
    """What a call did with the reference's values: how far from the reference its tensors are.

    `site` is whose code it is: that of the call where it left, that of the caller where it arrived; `at` is then
    the call at which it arrived.
    """

    visit: Visit
    at: Visit | None
    apart: dict[int, Apart]
    misfit: str = ""
    extra: bool = False

    @property
    def key(self) -> Key:
        """The reference's place that was compared with."""
        seen = self.at or self.visit
        return Key(seen.site, "input" if self.at else "output", seen.call)


@dataclass
class Isolated(Way):
    """Every call gets what the reference's call got, and hands on what that handed on.

    So each difference is made by the code between two such points: by the module's own where a tensor leaves, by
    the caller's where it arrives. With a `shaker`, the values that are put there are moved by one rounding.
    """

    backend: Backend
    reference: Side
    names: dict[str, str]
    """The reference's name of each site."""
    random: dict[tuple[str, int], Any] = field(default_factory=dict)
    shaker: Shaker | None = None
    events: list[Born] = field(default_factory=list)
    lines: dict[tuple[str, int], str] = field(default_factory=dict)
    """The line at which each call is made."""
    unlike: dict[tuple[str, int], str] = field(default_factory=dict)
    """The calls that get other numbers, or another number of tensors, than the reference's, in words."""

    def __post_init__(self) -> None:
        self.passed: dict[str, None] = {}  # the sites with a call that was left alone, in order
        self._put_there = Recent(self.backend)  # whose tensor of the reference each one stands for

    def passed_by(self, visit: Visit) -> None:
        self.passed[self.names[visit.site]] = None

    def called(self, visit: Visit, args: Any, kwargs: Any) -> None:
        site = self.names[visit.site]
        if self.shaker is not None or visit.call >= len(self.reference.calls(site)):
            return
        self.lines[site, visit.call] = calling_line()
        call = self.reference.calls(site)[visit.call]
        ours, theirs = plain_values((call.input, call.kwargs)), plain_values((args, kwargs))
        if ours != theirs:
            self.unlike[site, visit.call] = f"A hands it {_listed(ours, theirs)}, B {_listed(theirs, ours)}"

    def arriving(self, visit: Visit, leaves: Leaves) -> Sequence[Any] | None:
        if (state := self.random.get((self.names[visit.site], visit.call))) is not None:
            self.backend.restore_random(state)
        return self._put(visit, "input", leaves)

    def leaving(self, visit: Visit, leaves: Leaves) -> Sequence[Any] | None:
        return self._put(visit, "output", leaves)

    def _put(self, visit: Visit, kind: str, leaves: Leaves) -> Sequence[Any] | None:
        own = visit._replace(site=self.names[visit.site])
        if visit.call >= len(self.reference.calls(own.site)):
            caller = own.caller and own.caller._replace(site=self.names[own.caller.site])
            self.events.append(Born(own._replace(caller=caller), None, {}, "A makes no such call", extra=True))
            return None
        wanted = self.reference.leaves(Key(own.site, kind, visit.call))
        given = [leaf.tensor for leaf in leaves]
        if kind == "input" and len(wanted) != len(given):
            self.unlike[own.site, own.call] = f"A hands it {len(wanted)} tensors, B {len(given)}"
        gaps: dict[int, Apart] = {}
        for at, there in matched(wanted, leaves):
            old = given[there]
            if reason := _misfit(wanted[at].tensor, old):
                self._note(visit, kind, {}, reason)
                return None
            if self._is_handed_on(wanted[at].tensor, old):
                gaps[at] = Apart()
                continue
            array, came = self.reference.array(wanted[at]), self.backend.host(old)
            if self.shaker is None and same_bits(array, came):
                gaps[at] = Apart()
            else:
                gaps[at] = apart(array, came)
                given[there] = self._value(wanted[at].tensor, array, old)
            self._put_there.note(given[there], wanted[at].tensor)
        self._note(visit, kind, gaps)
        return given

    def _is_handed_on(self, wanted: Any, came: Any) -> bool:
        """Whether a tensor is the moved one that was put there before, as it is. Only of the reference's model:
        in the other one, code may write to it in a way that nobody counts."""
        return self.shaker is not None and self.reference.in_memory and self._put_there.find(came) is wanted

    def _note(self, visit: Visit, kind: str, gaps: dict[int, Apart], misfit: str = "") -> None:
        seen = visit._replace(site=self.names[visit.site])
        if kind == "output":
            self.events.append(Born(seen, None, gaps, misfit))
            return
        caller = visit.caller
        if caller is not None:
            self.events.append(Born(caller._replace(site=self.names[caller.site]), seen, gaps, misfit))

    def _value(self, tensor: Any, array: NDArray[Any], old: Any) -> Any:
        same = self.reference.backend is self.backend
        if same and self.shaker is not None and self.shaker.moves(tensor):
            return self.shaker(self.backend.fitted(tensor, old))
        new = self.backend.fitted(self.backend.from_host(array), old)
        return new if self.shaker is None else self.shaker(new)


@dataclass
class Randomness(Way):
    """Notes the state of the random numbers at the beginning of each call."""

    backend: Backend
    states: dict[tuple[str, int], Any] = field(default_factory=dict)

    def arriving(self, visit: Visit, leaves: Leaves) -> None:
        self.states[visit.site, visit.call] = self.backend.random_state()


def floor_of(way: Isolated) -> Noise:
    """What rounding alone adds at each place, of a run with a shaker."""
    noise = Noise()
    for event in way.events:
        for at, gap in event.apart.items():
            noise.note(event.key, at, gap)
    return noise


def plain_values(tree: Any) -> list[str]:
    """The numbers and texts among arguments, whatever their places: a port may hand them over by name.

    >>> plain_values(((2, None), {"mode": "same", "scale": 0.5}))
    ["'same'", '0.5', '2']
    """
    return sorted(repr(value) for value in leaves_in(tree, PLAIN))


def _listed(ones: list[str], others: list[str]) -> str:
    own = list((Counter(ones) - Counter(others)).elements())
    return ", ".join(own[:3]) or "nothing there"


def _misfit(wanted: Any, came: Any) -> str:
    ours, theirs = tuple(wanted.shape), tuple(came.shape)
    return "" if ours == theirs else f"the shape is {ours} in A and {theirs} in B"
