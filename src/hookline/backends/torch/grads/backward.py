"""Backward: one run of autograd's engine, with the gradients of all ports that it passes.

When a run begins, its graph is walked once, from the roots. For each port the walk finds the nodes that send to
its edge, and hooks on these note what they send (`ledgers.py`). At the end of the run all hooks are gone.

Autograd runs nodes from the youngest to the oldest. So whatever comes to an output is there before the first
node of the call runs, and whatever a call sends to its inputs before the nodes that made these: at the node
that owns an edge, the ledger is complete, ports are told, and what a hook wants instead goes on.

Ports of one edge are told in the order in which a backward reaches them: a container's output before its last
part's, a part's input before the container's.

Where hookline put a view between a tensor and its users, autograd sums what comes to the view first. It may round
otherwise, or lay the sum out otherwise, and then a later operation rounds otherwise. The owner's ledger then makes
the sum anew, entry by entry as they came.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import torch

from hookline.backends.torch.compat import graph_task, node_number, sequence_number
from hookline.backends.torch.engine import EngineRun
from hookline.backends.torch.grads.births import births
from hookline.backends.torch.grads.finding import Found, looked_up_at, replaced_simply_at
from hookline.backends.torch.grads.graph import Graph, Looked
from hookline.backends.torch.grads.leaves import Edge, Region, edge_of_root
from hookline.backends.torch.grads.ledgers import Claim, Entry, Ledger, Source, regroup, same, total
from hookline.backends.torch.grads.marks import VIEW
from hookline.backends.torch.grads.passages import Passage
from hookline.backends.torch.grads.ports import ELSEWHERE, FOREVER, STALE, Port

Tensor = torch.Tensor


class Backward:
    """The ports of one run, from its begin to its end."""

    def __init__(self, run: EngineRun) -> None:
        self._run = run
        self._graph = Graph(())
        self._passages: list[Passage] = []
        self._claims: dict[int, Claim] = {}
        self._ledgers: dict[Edge, Ledger] = {}
        self._views: dict[Any, Ledger] = {}  # those that hookline put in, by their nodes
        self._asked_for: list[Ledger | None] = []
        self._undo: list[Callable[[], None]] = []
        self._order = count()
        self._task = -1
        self._is_over = False

    def begin(self) -> None:
        """Walks the graph and places hooks."""
        self._graph = Graph(self._run.roots)
        # In a second derivative, a simple call may get gradients that its hooks can't tell apart.
        second = bool(births) and any(births.of(number) != number for _, number, _ in self._graph.nodes)
        if self._run.create_graph:
            for node, number, _ in self._graph.nodes:
                self._hook(node.register_prehook, partial(self._mark_birth, births.of(number)))
        self._find_passages(simple=second)
        if self._ledgers:
            self._find_users()
            self._choose()
            self._place()

    def end(self, result: Any) -> Any:
        """What the engine gave, with gradients of tensors that were asked for as hooks want them."""
        self._is_over = True
        for claim in sorted(self._claims.values(), key=Claim.order):  # of nodes that did not run
            self._resolve_before(claim)
            self._resolve(claim)
        for passage in self._passages:
            if passage.joint and not any(id(port) in self._claims for port in passage.inputs):
                passage.ask([], self._task, outward=False)  # its inputs are not in this graph
        if not isinstance(result, tuple) or len(result) != len(self._asked_for):
            return result
        return tuple(_as_asked(ledger, grad) for ledger, grad in zip(self._asked_for, result, strict=True))

    def close(self) -> None:
        """Takes every hook off."""
        for undo in self._undo:
            undo()
        for passage in self._passages:
            passage.by_ledger, passage.early = False, ()
        if self._run.create_graph:
            births.mark(None)
        # Ledgers and claims know each other: without this they would hold the graph until the collector runs.
        for claim in self._claims.values():
            claim.sources = []
        for ledger in self._ledgers.values():
            ledger.claims, ledger.users, ledger.looked = [], [], _nothing_looked
            ledger.entries, ledger.came = [], []
        self._graph, self._passages, self._asked_for = Graph(()), [], []
        self._claims, self._ledgers, self._views = {}, {}, {}

    # Before the run

    def _find_passages(self, *, simple: bool) -> None:
        """Makes claims of the ports of all passages that are not simple, or of all."""
        found: list[Found] = []
        for node, _, edges in self._graph.nodes:
            if VIEW in node.metadata:
                self._views[node] = self._ledger((node, 0))
                self._ledger(edges[0])
            found += looked_up_at(node, simple=simple)
        for _, _, edge, _ in found:
            self._ledger(edge)
        passages = {id(passage): passage for passage, *_ in found}
        for passage in passages.values():
            for port in passage.inputs:
                self._claim(passage, port, port.edge)
                self._claim(passage, port, port.base, port.region)
                for through in port.through:
                    self._claim(passage, port, port.base or port.edge, port.region, through)
        # What replaces simply came before all else at its node.
        for passage, port, edge, region in [*self._replaced_simply(every=simple), *found]:
            passages[id(passage)] = passage
            self._claim(passage, port, edge, region)
        self._passages = list(passages.values())
        for passage in self._passages:
            passage.by_ledger = True

    def _replaced_simply(self, *, every: bool) -> list[Found]:
        """Outputs that are replaced simply, where somebody else looks at their edge or not every node runs."""
        if every or self._run.inputs:
            return replaced_simply_at(node for node, _, _ in self._graph.nodes)
        # Of this graph, without leaves: torch 2.6 can't be asked for the edges of a view's node that nothing uses.
        here = {node for node, _, _ in self._graph.nodes}
        nodes = dict.fromkeys(node for node, _ in self._ledgers if node in here)
        return [found for found in replaced_simply_at(nodes) if found[2] in self._ledgers]

    def _claim(
        self,
        passage: Passage,
        port: Port,
        edge: Edge | None,
        region: Region | None = None,
        through: Region | None = None,
    ) -> None:
        found = self._graph.known(edge)
        if found is None:
            return
        claim = self._claims.get(id(port))
        if claim is None:
            claim = self._claims[id(port)] = Claim(passage, port)
        # What shows through an output comes of what is done after the call.
        span = (port.low, port.high) if through is None else (port.high, FOREVER)
        if port.own and region is None and through is None:
            span = -1, FOREVER
        source = Source(self._ledger(found), span, region, through)
        if port.outward and source.written is None:
            # No node that is older than the call uses its output, but for those of another thread.
            source.below = passage.span[0] or node_number(found[0])
        claim.sources.append(source)

    def _ledger(self, edge: Edge) -> Ledger:
        found = self._ledgers.get(edge)
        if found is None:
            found = self._ledgers[edge] = Ledger(edge, self._graph.looked)
        return found

    def _find_users(self) -> None:
        ledgers, run = self._ledgers, self._run
        for node, number, edges in self._graph.nodes:
            for index, edge in enumerate(edges):
                ledger = ledgers.get(edge)
                if ledger is not None:
                    ledger.users.append((node, index, births.of(number) if births else number))
        for claim in self._claims.values():
            claim.sources = [source for source in claim.sources if source.is_used()]
        for passage in self._passages:
            self._part(passage.inputs)
            self._part(passage.outputs)
        for claim in self._claims.values():
            for ledger in {id(source.ledger): source.ledger for source in claim.sources}.values():
                ledger.claims.append(claim)
        for ledger in ledgers.values():
            ledger.claims.sort(key=Claim.order)
        self._asked_for = [self._ledger_of(tensor) for tensor in run.inputs]
        for ledger in self._asked_for:
            if ledger is not None:
                ledger.is_asked_for = True

    def _part(self, ports: tuple[Port, ...]) -> None:
        """Has each gradient of one side of a call belong to one port: that of the view that was written to."""
        claims = [self._claims[id(port)] for port in ports if id(port) in self._claims]
        sources = [(source, claim.port) for claim in claims for source in claim.sources if source.through is None]
        views = [source for source, _ in sources if source.region is not None]
        now = sequence_number()
        for source, port in sources if views else ():
            source.others = [view for view in views if view.ledger is source.ledger]
            source.view = port.seen_last(now) if port.seen_last is not None else 0
        # Where nobody looked at any input of that memory again, a view of one was written to.
        stale = [
            one for one, port in sources if not port.outward and {other.view for other in one.others} == {STALE}
        ]
        for source in stale:
            source.view = 0

    def _ledger_of(self, tensor: Any) -> Ledger | None:
        edge = edge_of_root(tensor)
        return None if edge is None else self._ledgers.get(edge)

    def _choose(self) -> None:
        """Decides for each ledger what has to be noted."""
        seeds = list(zip(self._run.roots, self._run.seeds, strict=False))
        for root, seed in seeds:
            if seed is not None and (ledger := self._ledger_of(root)) is not None:
                ledger.seeds += 1
        regroup(self._views, self._ledgers)
        for ledger in self._ledgers.values():
            ledger.at_owner |= any(claim.replaces for claim in ledger.claims)
            for claim in ledger.claims:
                claim.whole = self._is_whole(claim, ledger)
                claim.at_end = claim.replaces and not claim.port.outward and not claim.is_reached()
                ledger.by_entries |= not claim.whole
                ledger.at_owner |= claim.port.outward and (claim.whole or bool(self._run.inputs))
        for root, seed in seeds:
            if seed is not None and (ledger := self._ledger_of(root)) is not None and ledger.by_entries:
                ledger.add(Entry(-1, FOREVER - 1, seed))

    def _is_whole(self, claim: Claim, ledger: Ledger) -> bool:
        """Whether a port has all of what comes to its edge, and may wait for it until the owner runs."""
        port, (source, *others) = claim.port, claim.sources
        return (
            port.outward
            and not others
            and source.written is None
            and not source.others
            and not self._run.inputs  # else not every owner runs
            and (len(claim.passage.outputs) == 1 or not claim.replaces)
            and all(source.covers(birth) for _, _, birth in ledger.users)
        )

    def _place(self) -> None:
        sent: dict[Any, list[tuple[int, Ledger, Ledger | None]]] = {}
        owned: dict[Any, list[Ledger]] = {}
        born: dict[Any, int] = {}
        for ledger in self._ledgers.values():
            if ledger.at_owner and (ledger.users or ledger.seeds):  # else its node does not run
                owned.setdefault(ledger.node, []).append(ledger)
            if not ledger.by_entries:
                continue
            everything = ledger.waits
            for node, index, birth in ledger.users:
                mine = list(ledger.waiting_for(birth))
                if mine or everything:
                    through = self._views.get(node) if ledger.regrouped else None
                    sent.setdefault(node, []).append((index, ledger, through))
                    born[node] = birth
                    for claim in mine:
                        claim.waiting += 1
        for node, pairs in sent.items():
            self._hook(node.register_hook, partial(self._sent, node, pairs, born[node]))
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
        self, node: Any, pairs: list[tuple[int, Ledger, Ledger | None]], birth: int, grads: Any, _: Any
    ) -> None:
        """After a node: what it sends."""
        if not self._is_mine():
            return
        for index, ledger, through in pairs:
            grad = grads[index]
            if grad is not None:
                ledger.add(Entry(next(self._order), birth, grad, node, through))
        for _, ledger, _ in pairs:
            for claim in ledger.waiting_for(birth):
                claim.waiting -= 1
                if not claim.waiting and not any(source.ledger.waits for source in claim.sources):
                    self._resolve(claim)
        for _, ledger, _ in pairs:
            if not ledger.waits:
                self._let_go(ledger)

    def _arrived(self, ledgers: list[Ledger], grads: Any) -> Any:
        """Before the node that owns edges: what came to them, or what is to go on instead."""
        if not self._is_mine():
            return None
        result = list(grads)
        for ledger in ledgers:
            new = self._settled(ledger, result[ledger.output_nr])
            if new is not None:
                result[ledger.output_nr] = new
            self._let_go(ledger)
        return None if all(new is old for new, old in zip(result, grads, strict=True)) else tuple(result)

    def _let_go(self, ledger: Ledger) -> None:
        """Forgets what came to an edge once nobody needs it any more: memory that is used again costs less."""
        # What came to a view is asked for again where it is summed anew, and what is asked for at the end.
        if not (ledger.regrouped and ledger.node in self._views) and not ledger.is_asked_for:
            ledger.forget()

    def _settled(self, ledger: Ledger, grad: Tensor | None) -> Tensor | None:
        ledger.arrived = grad
        if not ledger.by_entries and grad is not None:
            ledger.entries = [Entry(0, FOREVER - 1, grad)]
        for claim in ledger.claims:
            self._resolve(claim)
        if not (ledger.replaced or ledger.regrouped) or grad is None:
            return None
        if not ledger.replaced and ledger.order_does_not_matter():
            return None
        sum_of_all, came = ledger.total_as_it_came(), total(ledger.came)
        if came is None or sum_of_all is None or same(came, grad):
            return sum_of_all
        # Somebody's hook on the tensor has changed the sum: that stands, and so does what was replaced.
        return grad + (sum_of_all - came) if ledger.replaced else None

    def _resolve(self, claim: Claim) -> None:
        """Tells a port its gradient, or has it replaced together with the others of its side."""
        if claim.done or (claim.at_end and not self._is_over):
            return
        claim.done = True
        port, passage = claim.port, claim.passage
        if not claim.replaces:
            share = _without_graph(claim) if torch.is_grad_enabled() else claim.share()
            if share is not None:
                passage.tell(port, share, self._task)
                if port.handed_on and passage.sink is not None and not passage.joint and claim.is_in_doubt():
                    passage.sink._hear_doubt(ELSEWHERE)
            return
        if not port.outward:
            for out in passage.outputs:  # in a run for some inputs, not all that they wait for comes
                if id(out) in self._claims:
                    self._resolve_before(self._claims[id(out)])
                    self._resolve(self._claims[id(out)])
        ports = passage.outputs if port.outward else passage.inputs
        claims = [self._claims[id(one)] for one in ports if id(one) in self._claims]
        for one in claims:
            one.done = True
        for one in claims:
            self._resolve_before(one)
        shares = [self._shown(one) for one in claims]
        new = passage.ask(list(zip([one.port for one in claims], shares, strict=True)), self._task, port.outward)
        for one, share, other in zip(claims, shares, new, strict=True):
            if port.outward:
                for source in one.sources:
                    source.ledger.note_asked()
            if other is not None and other is not share:
                one.replace(other)

    def _shown(self, claim: Claim) -> Tensor | None:
        share = claim.share()
        node: Any = claim.sources[0].ledger.node if claim.sources else None
        if share is not None and node in self._views and not node.next_functions[0][0].next_functions:
            # Of a leaf: its gradient will have the same memory and be added to, and a hook may keep what it gets.
            return share.clone()
        return share

    def _resolve_before(self, claim: Claim) -> None:
        """Tells whatever a backward reaches before this port, on the port's edges."""
        for source in claim.sources:
            for other in source.ledger.claims:
                if other is claim:
                    break
                self._resolve(other)


def _nothing_looked(node: Any) -> Looked:
    """As `Graph.looked`, of a run that is over."""
    return {}


@torch.no_grad()  # a decorator: an interrupt at the end of a `with` would leave the mode on
def _without_graph(claim: Claim) -> Tensor | None:
    return claim.share()


def _as_asked(ledger: Ledger | None, grad: Any) -> Any:
    """A gradient that was asked for, as hooks want it."""
    if ledger is None or grad is None or not ledger.by_entries:
        return grad
    if ledger.asked is not None:
        return ledger.asked
    return ledger.total_as_it_came() if ledger.replaced or ledger.regrouped else grad
