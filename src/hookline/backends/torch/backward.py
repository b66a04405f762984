"""Backward: one run of autograd's engine, with the gradients of all ports that it passes.

When a run begins, its graph is walked once, from the roots. For each port the walk finds the nodes that send
to its edge, and hooks on these note what they send, in the order of its coming: a *ledger* for each edge. A
port's gradient is the sum of the entries that come from its span. At the end of the run all hooks are gone.

Autograd runs nodes from the youngest to the oldest. So whatever comes to an output is there before the first
node of the call runs, and whatever a call sends to its inputs before the nodes that made these: at the node
that owns an edge, the ledger is complete, ports are told, and what a hook wants instead goes on.

Ports of one edge are told in the order in which a backward reaches them: a container's output before its last
part's, a part's input before the container's.

Where hookline put a view between a tensor and its users, autograd sums what comes to the view first, and may
round otherwise. The owner's ledger then makes the sum anew, entry by entry as they came.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from threading import local
from typing import Any

import torch

from hookline.backends.torch.compat import EngineRun, graph_task, node_number, observe_backwards, sequence_number
from hookline.backends.torch.leaves import Edge, Region, edge_of
from hookline.backends.torch.passages import FOREVER, KEY, Passage, Port, added, marked

Tensor = torch.Tensor
LIMIT = 2**18
"""Births that are kept. Older ones go: their graphs are long gone in all but the oddest loops."""


class Births(local):
    """Of nodes that a backward made (create_graph=True): the number of the node whose backward made them.

    So a second derivative of a module's own operations counts as the module's own.
    """

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._parents: list[int | None] = []

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def mark(self, parent: int | None) -> None:
        """Nodes that are made from now on are of this parent; None: of nobody but themselves."""
        number = sequence_number()
        if self._numbers and self._numbers[-1] == number:
            self._parents[-1] = parent
            return
        self._numbers.append(number)
        self._parents.append(parent)
        if len(self._numbers) > LIMIT:
            del self._numbers[: LIMIT // 2], self._parents[: LIMIT // 2]

    def of(self, number: int) -> int:
        """The number that decides to whose span a node belongs."""
        index = bisect_right(self._numbers, number) - 1
        parent = self._parents[index] if index >= 0 else None
        return number if parent is None else parent


births = Births()


class Source:
    """Where a port's gradient comes from: entries of a span in the ledger of an edge.

    With a `region` the edge is that of the base of a view, and only what comes of writing into views counts: this
    part of it. With `through` that is cut down to what another view shows.
    """

    __slots__ = ("high", "ledger", "low", "region", "through")

    def __init__(
        self, ledger: Ledger, span: tuple[int, int], region: Region | None = None, through: Region | None = None
    ) -> None:
        self.ledger, self.region, self.through = ledger, region, through
        self.low, self.high = span

    @property
    def of_writes(self) -> bool:
        return self.region is not None or self.through is not None

    def covers(self, birth: int) -> bool:
        return self.low <= birth < self.high

    def is_used(self) -> bool:
        """Whether anything may come from here; of writes, only what was really written."""
        return not self.of_writes or any(
            self.covers(birth) and _writes(node) for node, _, birth in self.ledger.users
        )

    def entries(self) -> list[Entry]:
        return [e for e in self.ledger.entries if self.covers(e.birth) and (e.writes or not self.of_writes)]

    def value(self, grad: Tensor) -> Tensor:
        if self.through is not None:
            grad = self.through.put(torch.zeros_like(grad), self.through.of(grad))
        return grad if self.region is None else self.region.of(grad)

    def put(self, new: Tensor | None) -> None:
        """Has `new`, of the port's shape, stand for all entries; None for nothing."""
        mine = self.entries()
        if not mine and (new is None or self.of_writes):
            return
        self.ledger.replaced = True
        if not self.of_writes:
            order, birth = (mine[0].order, mine[0].birth) if mine else (0, self.low)
            place = self.ledger.entries.index(mine[0]) if mine else len(self.ledger.entries)
            self.ledger.entries = [e for e in self.ledger.entries if not self.covers(e.birth)]
            if new is not None:
                self.ledger.entries.insert(place, Entry(order, birth, new, None, False))
            return
        for entry in mine:
            entry.grad = self._with(entry.grad, new)
            new = None

    def _with(self, grad: Tensor, new: Tensor | None) -> Tensor:
        """A gradient of the base with another value of the port in it."""
        part = torch.zeros_like(self.value(grad)) if new is None else new
        changed = part if self.region is None else self.region.put(grad, part)
        return changed if self.through is None else self.through.put(grad, self.through.of(changed))


class Claim:
    """A port in one run: from where its gradient comes, and for how many senders it waits."""

    __slots__ = ("done", "port", "sources", "waiting", "whole")

    def __init__(self, port: Port) -> None:
        self.port = port
        self.sources: list[Source] = []
        self.waiting = 0
        self.whole = False  # an output that has all of what comes to its edge
        self.done = False

    @property
    def replaces(self) -> bool:
        passage = self.port.passage
        return (passage.joint_out if self.port.outward else passage.joint_in) is not None

    def order(self) -> tuple[int, bool, int, bool]:
        """Sorts the claims of an edge as a backward reaches them."""
        passage, outward = self.port.passage, self.port.outward
        return -passage.span[outward], outward, -passage.group if outward else passage.group, not self.replaces

    def share(self) -> Tensor | None:
        """What came so far."""
        if self.whole and not self.sources[0].ledger.replaced:
            return self.sources[0].ledger.arrived
        return _sum(source.value(entry.grad) for source in self.sources for entry in source.entries())

    def replace(self, new: Tensor) -> None:
        """Has `new` go on in place of what came: where something was written into a view, there."""
        taking = [source for source in self.sources if source.of_writes and source.entries()]
        first = taking[0] if taking else next(source for source in self.sources if not source.of_writes)
        for source in self.sources:
            source.put(new if source is first else None)


class Entry:
    """What one node sent to an edge."""

    __slots__ = ("birth", "grad", "order", "through", "writes")

    def __init__(self, order: int, birth: int, grad: Tensor, through: Ledger | None, writes: bool) -> None:
        self.order, self.birth, self.grad, self.through, self.writes = order, birth, grad, through, writes


class Ledger:
    """What comes to one edge in one run, in the order of its coming."""

    def __init__(self, edge: Edge) -> None:
        self.node, self.output_nr = edge
        self.claims: list[Claim] = []
        self.users: list[tuple[Any, int, int]] = []  # (node, index of its edge, birth)
        self.seeds = 0
        self.arrived: Tensor | None = None  # at the owner
        self.entries: list[Entry] = []
        self.came: Tensor | None = None  # the sum of what came, before any of it was replaced
        self.by_entries = False  # whether what comes is noted one by one, and not as a whole at the owner
        self.at_owner = False
        self.regrouped = False
        self.replaced = False
        self.captured: Tensor | None = None
        self.is_captured = False

    @property
    def waits(self) -> bool:
        """Whether ports are told in order, when the owner runs: what one gets may depend on another's hook."""
        return self.regrouped or any(claim.replaces for claim in self.claims)

    def waiting_for(self, birth: int) -> Iterator[Claim]:
        """The claims that get a part from a node of this birth."""
        for claim in self.claims:
            if not claim.whole and any(s.ledger is self and s.covers(birth) for s in claim.sources):
                yield claim

    def note_captured(self) -> None:
        """Keeps the sum for who asked for the gradient of the tensor: a hook on an output comes behind that."""
        if self.is_captured and self.captured is None:
            self.captured = self.total_as_it_came()

    def total_as_it_came(self) -> Tensor | None:
        """The sum as autograd would make it without the views that hookline put in."""
        return _sum(grad for _, grad in sorted(self._flat(), key=lambda pair: pair[0]))

    def _flat(self) -> Iterator[tuple[int, Tensor]]:
        for entry in self.entries:
            if entry.through is None or entry.through.replaced or not entry.through.by_entries:
                yield entry.order, entry.grad
            else:
                yield from entry.through._flat()


def _sum(grads: Iterator[Tensor]) -> Tensor | None:
    total = None
    for grad in grads:
        total = grad if total is None else added(total, grad)
    return total


class Backward:
    """A context around one run of the engine."""

    def __init__(self, run: EngineRun) -> None:
        self._roots, self._seeds, self._inputs = run.roots, run.seeds, run.inputs
        self._create_graph = run.create_graph
        self._undo: list[Callable[[], None]] = []
        self._ledgers: dict[Edge, Ledger] = {}
        self._claims: dict[int, Claim] = {}
        self._aliases: dict[Any, Ledger] = {}  # views that hookline put in, by their nodes
        self._simple: list[Passage] = []
        self._by_number: dict[int, Any] = {}
        self._order = count()
        self._task = -1

    def begin(self) -> None:
        """Walks the graph and places hooks."""
        nodes = self._walked()
        exact = bool(births) and any(births.of(number) != number for _, number, _ in nodes)
        if self._create_graph:
            for node, number, _ in nodes:
                self._hook(node.register_prehook, partial(self._mark_birth, births.of(number)))
        self._find_claims(nodes, exact)
        if self._ledgers:
            self._find_users(nodes)
            self._choose()
            self._place()

    def end(self, result: Any) -> Any:
        """What the engine gave, with gradients of tensors that were asked for as hooks want them."""
        for claim in sorted(self._claims.values(), key=Claim.order):
            self._tell_before(claim)
            self._resolve(claim)
        if not isinstance(result, tuple) or len(result) != len(self._inputs):
            return result
        return tuple(self._as_asked(tensor, grad) for tensor, grad in zip(self._inputs, result, strict=True))

    def close(self) -> None:
        """Takes every hook off."""
        for undo in self._undo:
            undo()
        self._undo = []
        for passage in self._simple:
            passage.by_ledger = False
        if self._create_graph:
            births.mark(None)

    # Before the run

    def _walked(self) -> list[tuple[Any, int, Any]]:
        """Every node that may run: (node, its number, its edges)."""
        found: list[tuple[Any, int, Any]] = []
        stack = [edge[0] for edge in map(_edge, self._roots) if edge is not None]
        seen = set(stack)
        stack = list(seen)
        while stack:
            node = stack.pop()
            edges = node.next_functions
            if not edges:  # it accumulates a leaf's gradient
                continue
            found.append((node, node_number(node), edges))
            for child, _ in edges:
                if child is not None and child not in seen:
                    seen.add(child)
                    stack.append(child)
        return found

    def _find_claims(self, nodes: list[tuple[Any, int, Any]], exact: bool) -> None:
        passages: dict[int, Passage] = {}
        sources: list[tuple[Any, int, Port, Region | None]] = []
        for node, number, _ in nodes:
            if number in marked:
                for output_nr, port, region in node.metadata.get(KEY, ()):
                    passage = port.passage
                    if passage.simple and not exact:
                        continue
                    passages[id(passage)] = passage
                    sources.append((node, output_nr, port, region))
        for node, output_nr, port, region in sources:
            self._claim(port, (node, output_nr), region)
        for passage in passages.values():
            if passage.simple:
                passage.by_ledger = True
                self._simple.append(passage)
            for port in passage.inputs:
                for edge, region in ((port.edge, None), (port.base, port.region)):
                    if edge is not None and (found := self._found(edge, nodes)) is not None:
                        self._claim(port, found, region)
                below = port.base or port.edge
                if port.through and below is not None and (found := self._found(below, nodes)) is not None:
                    for through in port.through:
                        self._claim(port, found, port.region, through)

    def _found(self, edge: Edge, nodes: list[tuple[Any, int, Any]]) -> Edge | None:
        """An edge that may be known by a number."""
        if not isinstance(edge[0], int):
            return edge
        if not self._by_number:
            self._by_number = {number: node for node, number, _ in nodes}
        node = self._by_number.get(edge[0])
        return None if node is None else (node, edge[1])

    def _claim(self, port: Port, edge: Edge, region: Region | None, through: Region | None = None) -> None:
        claim = self._claims.get(id(port))
        if claim is None:
            claim = self._claims[id(port)] = Claim(port)
        ledger = self._ledger(edge)
        # What shows through an output comes of what is done after the call.
        span = (port.low, port.high) if through is None else (port.high, FOREVER)
        claim.sources.append(Source(ledger, span, region, through))
        if claim not in ledger.claims:
            ledger.claims.append(claim)
        if port.alias and region is None and through is None:
            self._aliases[ledger.node] = ledger
            self._ledger(edge[0].next_functions[0])

    def _ledger(self, edge: Edge) -> Ledger:
        found = self._ledgers.get(edge)
        if found is None:
            found = self._ledgers[edge] = Ledger(edge)
        return found

    def _find_users(self, nodes: list[tuple[Any, int, Any]]) -> None:
        ledgers = self._ledgers
        for node, number, edges in nodes:
            for index, edge in enumerate(edges):
                ledger = ledgers.get(edge)
                if ledger is not None:
                    ledger.users.append((node, index, births.of(number) if births else number))
        for root, seed in zip(self._roots, self._seeds, strict=False):
            edge = _edge(root)
            ledger = ledgers.get(edge) if edge is not None else None
            if ledger is not None and seed is not None:
                ledger.seeds += 1
                ledger.came = seed if ledger.came is None else added(ledger.came, seed)
                ledger.entries.append(Entry(-1, FOREVER - 1, seed, None, False))
        for tensor in self._inputs:
            edge = _edge(tensor)
            if edge in ledgers:
                ledgers[edge].is_captured = True

    def _choose(self) -> None:
        """Decides for each ledger what has to be noted."""
        whole_run = not self._inputs  # else not every node runs
        for claim in self._claims.values():
            claim.sources = [source for source in claim.sources if source.is_used()]
        for ledger in self._ledgers.values():
            ledger.claims = [c for c in ledger.claims if any(s.ledger is ledger for s in c.sources)]
            ledger.claims.sort(key=Claim.order)
        for node, above in self._aliases.items():
            self._choose_for_alias(node, above)
        for ledger in self._ledgers.values():
            ledger.at_owner |= any(claim.replaces for claim in ledger.claims)
            for claim in ledger.claims:
                port = claim.port
                alone = len(port.passage.outputs) == 1 or not claim.replaces
                claim.whole = (
                    port.outward
                    and alone
                    and whole_run
                    and len(claim.sources) == 1
                    and not claim.sources[0].of_writes
                    and all(claim.sources[0].covers(birth) for _, _, birth in ledger.users)
                )
                if claim.whole:
                    ledger.at_owner = True
                else:
                    ledger.by_entries = True
            if not ledger.by_entries:
                ledger.entries = []

    def _choose_for_alias(self, node: Any, above: Ledger) -> None:
        """Has a sum made anew where a view of hookline's changed the order of adding."""
        chain = [above]
        below = self._ledgers[node.next_functions[0]]
        while below.node in self._aliases:
            chain.append(below)
            below = self._ledgers[below.node.next_functions[0]]
        if self._count(above) > 1 and len(below.users) + below.seeds > 1:
            for ledger in (*chain, below):
                ledger.by_entries = ledger.regrouped = True
            below.at_owner = True

    def _count(self, ledger: Ledger) -> int:
        """How many gradients come to an edge, whatever views of hookline's they come through."""
        through = (self._aliases.get(node) for node, _, _ in ledger.users)
        return ledger.seeds + sum(1 if one is None else self._count(one) for one in through)

    def _place(self) -> None:
        sent: dict[Any, list[tuple[int, Ledger, Ledger | None]]] = {}
        owned: dict[Any, list[Ledger]] = {}
        born: dict[Any, int] = {}
        for ledger in self._ledgers.values():
            if ledger.at_owner:
                owned.setdefault(ledger.node, []).append(ledger)
            if not ledger.by_entries:
                continue
            everything = ledger.waits
            for node, index, birth in ledger.users:
                mine = list(ledger.waiting_for(birth))
                if mine or everything:
                    through = self._aliases.get(node) if ledger.regrouped else None
                    sent.setdefault(node, []).append((index, ledger, through))
                    born[node] = birth
                    for claim in mine:
                        claim.waiting += 1
        for node, pairs in sent.items():
            self._hook(node.register_hook, partial(self._sent, pairs, born[node], _writes(node)))
        for node, ledgers in owned.items():
            self._hook(node.register_prehook, partial(self._arrived, ledgers))

    def _hook(self, register: Callable[..., Any], fn: Callable[..., Any]) -> None:
        self._undo.append(register(fn).remove)

    # During the run

    def _is_mine(self) -> bool:
        """Whether the node that runs now runs in this run: a hook may start another one over the same graph."""
        task = graph_task()
        if self._task == -1:
            self._task = task
        return self._task == task

    def _mark_birth(self, number: int, grads: Any) -> None:
        if self._is_mine():
            births.mark(number)

    def _sent(
        self, pairs: list[tuple[int, Ledger, Ledger | None]], birth: int, writes: bool, grads: Any, _: Any
    ) -> None:
        """After a node: what it sends."""
        if not self._is_mine():
            return
        for index, ledger, through in pairs:
            grad = grads[index]
            if grad is not None:
                ledger.entries.append(Entry(next(self._order), birth, grad, through, writes))
                if ledger.waits:
                    ledger.came = grad if ledger.came is None else added(ledger.came, grad)
        for _, ledger, _ in pairs:
            for claim in ledger.waiting_for(birth):
                claim.waiting -= 1
                if not claim.waiting and not any(source.ledger.waits for source in claim.sources):
                    self._resolve(claim)

    def _arrived(self, ledgers: list[Ledger], grads: Any) -> Any:
        """Before the node that owns edges: what came to them, or what is to go on instead."""
        if not self._is_mine():
            return None
        result: list[Any] | None = None
        for ledger in ledgers:
            grad = grads[ledger.output_nr]
            new = self._settled(ledger, grad)
            if new is not None and new is not grad:
                result = list(grads) if result is None else result
                result[ledger.output_nr] = new
        return None if result is None else tuple(result)

    def _settled(self, ledger: Ledger, grad: Tensor | None) -> Tensor | None:
        ledger.arrived = grad
        if not ledger.by_entries and grad is not None:
            ledger.entries = [Entry(0, FOREVER - 1, grad, None, False)]
        self._tell(ledger)
        if not (ledger.replaced or ledger.regrouped) or grad is None:
            return None
        total = ledger.total_as_it_came()
        if ledger.came is None or total is None or _same(ledger.came, grad):
            return total
        # Somebody's hook on the tensor has changed the sum: that stands, and so does what was replaced.
        return grad + (total - ledger.came) if ledger.replaced else None

    def _tell(self, ledger: Ledger) -> None:
        """Tells every port of an edge, in order."""
        for claim in ledger.claims:
            self._resolve(claim)

    def _resolve(self, claim: Claim) -> None:
        if claim.done:
            return
        claim.done = True
        port, passage = claim.port, claim.port.passage
        if not claim.replaces:
            with torch.no_grad():
                share = claim.share()
            if share is not None:
                passage.tell(port, share, self._task)
            return
        ports = passage.outputs if port.outward else passage.inputs
        claims = [self._claims[id(one)] for one in ports if id(one) in self._claims]
        for one in claims:
            one.done = True
        for one in claims:
            self._tell_before(one)
        shares = [one.share() for one in claims]
        asked = [(one.port, share) for one, share in zip(claims, shares, strict=True)]
        new = passage.ask(asked, self._task, outward=port.outward)
        for one, share, other in zip(claims, shares, new, strict=True):
            if port.outward:
                for source in one.sources:
                    source.ledger.note_captured()
            if other is not None and other is not share:
                one.replace(other)

    def _tell_before(self, claim: Claim) -> None:
        """Tells whatever a backward reaches before this port, on the port's edges."""
        for source in claim.sources:
            for other in source.ledger.claims:
                if other is claim:
                    break
                self._resolve(other)

    # After the run

    def _as_asked(self, tensor: Any, grad: Any) -> Any:
        edge = _edge(tensor)
        ledger = self._ledgers.get(edge) if edge is not None else None
        if ledger is None or grad is None or not ledger.by_entries:
            return grad
        if ledger.captured is not None:
            return ledger.captured
        return ledger.total_as_it_came() if ledger.replaced or ledger.regrouped else grad


def _edge(root: Any) -> Edge | None:
    """The edge of a tensor, or of what `torch.autograd.graph.get_gradient_edge` gives; None without history."""
    if isinstance(root, Tensor):
        return edge_of(root) if root.requires_grad else None
    return root.node, root.output_nr


def _writes(node: Any) -> bool:
    """Whether a node is that of an operation in place on a view."""
    return bool(node.name().endswith("CopySlices"))


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal, NaN taken as equal to NaN."""
    if one.layout is not torch.strided or other.layout is not torch.strided or one.shape != other.shape:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())


@contextmanager
def observed(run: EngineRun) -> Iterator[None]:
    """Around a run of the engine: tells the gradients of all passages that it comes by."""
    if not marked.looked_up and not run.create_graph and not births:
        yield
        return
    backward = Backward(run)
    try:
        backward.begin()
        yield
        run.result = backward.end(run.result)
    finally:
        backward.close()


marked.on_first, marked.on_last = observe_backwards(observed)
