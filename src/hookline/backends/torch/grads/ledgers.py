"""Ledgers: what comes to an edge of the graph in one backward, and whose it is.

A ledger has an entry for each gradient that a node sends to the edge, in the order of coming. A *claim* is a port
in this backward: its gradient is the sum of those entries that come from its span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from hookline.backends.torch.compat import aside, is_seen, is_wrapped, node_number
from hookline.backends.torch.grads.graph import Looked
from hookline.backends.torch.grads.leaves import Edge, Region
from hookline.backends.torch.grads.passages import Passage
from hookline.backends.torch.grads.ports import STALE, Port

Tensor = torch.Tensor


def added(one: Tensor, other: Tensor) -> Tensor:
    """The sum of two gradients, as autograd makes it; no mode and no tracer sees it."""
    if one.layout is not torch.strided and other.layout is torch.strided:
        one, other = other, one
    if not is_seen(one):
        return one + other
    with aside(type(one), transforms=False):
        return one + other


def total(grads: Iterable[Tensor]) -> Tensor | None:
    """The sum of gradients in their order; None where there is none."""
    result = None
    for grad in grads:
        result = grad if result is None else added(result, grad)
    return result


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal, NaN taken as equal to NaN."""
    if one.layout is not torch.strided or other.layout is not torch.strided or one.shape != other.shape:
        return False
    if is_wrapped(one) or is_wrapped(other):
        return True  # inside torch.func no number decides what is done
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _layout(grad: Tensor) -> Any:
    return grad.stride() if grad.layout is torch.strided else grad.layout


class Entry:
    """What one node sent to an edge; if that is a view of hookline's, `through` is the ledger of the view."""

    __slots__ = ("birth", "grad", "node", "order", "through")

    def __init__(
        self, order: int, birth: int, grad: Tensor, node: Any = None, through: Ledger | None = None
    ) -> None:
        self.order, self.birth, self.grad, self.node, self.through = order, birth, grad, node, through


class Ledger:
    """What comes to one edge, in the order of its coming.

    `by_entries`: it is noted one by one; else as a whole, when the node that owns the edge runs. `at_owner`:
    claims are settled then. `looked(node)` are the views that were looked at after `node` wrote into one.
    """

    # A backward makes three of them for a call that works in place.
    __slots__ = (
        "arrived",
        "asked",
        "at_owner",
        "by_entries",
        "came",
        "claims",
        "entries",
        "is_asked_for",
        "looked",
        "node",
        "output_nr",
        "regrouped",
        "replaced",
        "seeds",
        "users",
    )

    def __init__(self, edge: Edge, looked: Callable[[Any], Looked]) -> None:
        self.node, self.output_nr = edge
        self.looked = looked
        self.claims: list[Claim] = []
        self.users: list[tuple[Any, int, int]] = []  # (node, index of its edge, birth)
        self.seeds = 0
        self.entries: list[Entry] = []
        self.arrived: Tensor | None = None  # what the owner got
        self.came: list[Tensor] = []  # what came, before any of it was replaced
        self.by_entries = self.at_owner = False
        self.regrouped = False  # a view of hookline's changed the order of adding
        self.replaced = False
        self.is_asked_for = False  # by who started the backward
        self.asked: Tensor | None = None

    @property
    def waits(self) -> bool:
        """Whether claims are settled in order, when the owner runs: what one gets may depend on another's hook."""
        return self.regrouped or any(claim.replaces for claim in self.claims)

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        if self.waits:
            self.came.append(entry.grad)

    def forget(self) -> None:
        """Lets go of what came, here and at the views through which it came, if it was told."""
        waiting = [self]
        while waiting:
            ledger = waiting.pop()
            if all(claim.done for claim in ledger.claims):
                waiting += [entry.through for entry in ledger.entries if entry.through is not None]
                ledger.entries, ledger.came, ledger.arrived = [], [], None

    def waiting_for(self, birth: int) -> Iterator[Claim]:
        """The claims that get a part from a node of this birth."""
        for claim in self.claims:
            if not claim.whole and any(s.ledger is self and s.covers(birth) for s in claim.sources):
                yield claim

    def note_asked(self) -> None:
        """Keeps the sum for who asked for the gradient of the tensor: a hook on an output comes behind that."""
        if self.is_asked_for and self.asked is None:
            self.asked = self.total_as_it_came()

    def total_as_it_came(self) -> Tensor | None:
        """The sum as autograd would make it without the views that hookline put in."""
        return total(grad for _, grad in sorted(self._flat(), key=lambda pair: pair[0]))

    def order_does_not_matter(self) -> bool:
        """Whether the sum is the same in any order: one or two gradients, of the same layout."""
        grads = [grad for _, grad in self._flat()]
        return len(grads) < 3 and all(_layout(grad) == _layout(grads[0]) for grad in grads)

    def _flat(self) -> Iterator[tuple[int, Tensor]]:
        waiting = list(self.entries)
        while waiting:
            entry = waiting.pop()
            if entry.through is None or entry.through.replaced or not entry.through.by_entries:
                yield entry.order, entry.grad
            else:
                waiting += entry.through.entries


def regroup(views: dict[Any, Ledger], ledgers: dict[Edge, Ledger]) -> None:
    """Has sums made anew where views of hookline's, by their nodes, changed the order of adding."""
    below = [ledgers[node.next_functions[0]] for node in views]
    for bottom in {id(ledger): ledger for ledger in below if ledger.node not in views}.values():
        if _is_all_of_one_view(bottom, views):
            continue
        # How many gradients come to the edge, whatever views they come through.
        count, found, waiting = 0, [bottom], [bottom]
        while waiting:
            ledger = waiting.pop()
            above = [views[node] for node, _, _ in ledger.users if node in views]
            count += ledger.seeds + len(ledger.users) - len(above)
            found += above
            waiting += above
        if count > 1:
            for ledger in found:
                ledger.by_entries = ledger.regrouped = True
            bottom.at_owner = True


def _is_all_of_one_view(ledger: Ledger, views: dict[Any, Ledger]) -> bool:
    """Whether all that comes to an edge comes through one view: there it is added up just as it would be here."""
    while not ledger.seeds and len(ledger.users) == 1 and (above := views.get(ledger.users[0][0])) is not None:
        ledger = above
    return not any(node in views for node, _, _ in ledger.users)


class Source:
    """Where a port's gradient comes from: entries of a span in the ledger of an edge.

    With a `region` the edge is that of the base of a view, and only what comes of writing into the view counts:
    this part of it. With `through` it comes of writing into another view, cut down to what that one shows.
    What comes of writing into the view of one of the `others`, at another place of the same call, is theirs;
    views of one part are known by their nodes, `view` is that of this one.
    """

    __slots__ = ("below", "high", "ledger", "low", "others", "region", "through", "view")

    def __init__(
        self, ledger: Ledger, span: tuple[int, int], region: Region | None = None, through: Region | None = None
    ) -> None:
        self.ledger, self.region, self.through = ledger, region, through
        self.low, self.high = span
        self.below = -1
        """Nodes of lower numbers count as well: another thread made them."""
        self.others: list[Source] = []
        self.view = 0

    @property
    def written(self) -> Region | None:
        """The view into which something must have been written for an entry to count; None where all count."""
        return self.through or self.region

    def covers(self, birth: int) -> bool:
        return self.low <= birth < self.high or birth < self.below

    def is_used(self) -> bool:
        """Whether anything comes from here."""
        return self.written is None or any(self._is_of(node, birth) for node, _, birth in self.ledger.users)

    def entries(self) -> list[Entry]:
        mine = [entry for entry in self.ledger.entries if self._is_of(entry.node, entry.birth)]
        return [entry for entry in mine if self._has_part(entry)] if self.others else mine

    def value(self, entry: Entry) -> Tensor:
        """What an entry is for the port."""
        grad = entry.grad
        for region in self._owners(entry):
            grad = region.without(grad)
        if self.through is not None:
            grad = self.through.put(torch.zeros_like(grad), self.through.of(grad))
        return grad if self.region is None else self.region.of(grad)

    def _owners(self, entry: Entry) -> list[Region]:
        """The parts of an entry that are others'."""
        if not self.others:
            return []
        looked = self.ledger.looked(entry.node)
        owners = [
            other
            for place, other in enumerate(self.others)
            if other._is_of(entry.node, entry.birth)
            and (other.view not in looked, place) < (self.view not in looked, self._place)
        ]
        return [other.region for other in owners if other.region is not None]

    @property
    def _place(self) -> int:
        return self.others.index(self) if self in self.others else len(self.others)

    def _has_part(self, entry: Entry) -> bool:
        """Whether the others leave anything of an entry."""
        left = torch.ones(entry.grad.shape)
        for region in self._owners(entry):
            left = region.without(left)
        return bool((left if self.region is None else self.region.of(left)).any())

    def is_in_doubt(self, entry: Entry) -> bool:
        """Whether it is not sure that this view is the one that was written to, by its node."""
        return self.written is not None and self.view not in self.ledger.looked(entry.node)

    def put(self, new: Tensor | None) -> None:
        """Has `new`, of the port's shape, stand for all entries; None for nothing."""
        mine, ledger = self.entries(), self.ledger
        if not mine and (new is None or self.written is not None):
            return
        ledger.replaced = True
        if self.written is not None:
            for entry in mine:
                entry.grad = self._with(entry, new)
                new = None
            return
        order, birth = (mine[0].order, mine[0].birth) if mine else (0, self.low)
        place = ledger.entries.index(mine[0]) if mine else len(ledger.entries)
        for entry in mine:
            if self._owners(entry):
                entry.grad = self._with_others(entry, torch.zeros_like(entry.grad))
            else:
                ledger.entries.remove(entry)
        if new is not None:
            ledger.entries.insert(place, Entry(order, birth, new))

    def _is_of(self, node: Any, birth: int) -> bool:
        written = self.written
        if not self.covers(birth):
            return False
        if written is None:
            return True
        looked = self.ledger.looked(node)
        # What was written without autograd comes from each view's own node; else from that of the writing.
        own = node is not None and node_number(node) in looked
        mine = self.view in looked if own and self.view else self.view != STALE
        return any(written.shows(*layout) and (mine or not written.is_at(*layout)) for layout in looked.values())

    def _with(self, entry: Entry, new: Tensor | None) -> Tensor:
        """A gradient of the base with another value of the port in it."""
        grad = entry.grad
        part = torch.zeros_like(self.value(entry)) if new is None else new
        changed = part if self.region is None else self.region.put(grad, part)
        changed = changed if self.through is None else self.through.put(grad, self.through.of(changed))
        return self._with_others(entry, changed)

    def _with_others(self, entry: Entry, grad: Tensor) -> Tensor:
        """A gradient of the base with the parts of an entry in it that are others'."""
        for region in self._owners(entry):
            grad = region.put(grad, region.of(entry.grad))
        return grad


class Claim:
    """A port in one backward: from where its gradient comes, and for how many senders it waits.

    `whole`: it is an output that has all of what comes to its edge. `at_end`: a hook is to be called that nothing
    comes to, so nothing tells when all else of the call is there but the end of the run.
    """

    __slots__ = ("at_end", "done", "passage", "port", "sources", "waiting", "whole")

    def __init__(self, passage: Passage, port: Port) -> None:
        self.passage, self.port = passage, port
        self.sources: list[Source] = []
        self.waiting = 0
        self.whole = self.at_end = self.done = False

    @property
    def replaces(self) -> bool:
        passage = self.passage
        return passage.joint_out is not None if self.port.outward else passage.joint

    def is_reached(self) -> bool:
        """Whether any node sends it something."""
        return any(s.covers(birth) for s in self.sources for _, _, birth in s.ledger.users)

    def order(self) -> tuple[int, bool, int, bool]:
        """Sorts the claims of an edge as a backward reaches them."""
        passage, outward = self.passage, self.port.outward
        return -passage.span[outward], outward, -passage.group if outward else passage.group, not self.replaces

    def share(self) -> Tensor | None:
        """What came so far."""
        ledger = self.sources[0].ledger if self.whole else None
        # Asked before the owner runs, what came is in the entries.
        if ledger is not None and not ledger.replaced and not (ledger.arrived is None and ledger.by_entries):
            return ledger.arrived
        return total(source.value(entry) for source in self.sources for entry in source.entries())

    def is_in_doubt(self) -> bool:
        """Whether something came of writing into memory that another view shows as well."""
        return any(source.is_in_doubt(entry) for source in self.sources for entry in source.entries())

    def replace(self, new: Tensor) -> None:
        """Has `new` go on in place of what came: where something was written into a view, there."""
        taking = [source for source in self.sources if source.written is not None and source.entries()]
        first = taking[0] if taking else next(source for source in self.sources if source.written is None)
        for source in self.sources:
            source.put(new if source is first else None)
