"""Passages: one call of a module, as autograd's graph shows it.

Autograd numbers its nodes in the order of their making, so the nodes that a call makes are those of a *span*
of numbers. Gradients of a tensor are sent to its *edge*, from the nodes that use the tensor. With these two,
every gradient of a call is told without a change of the graph:

- of a tensor that enters: what the nodes of the call's own span send to its edge;
- of a tensor that leaves: what nodes that are made after the call send to its edge.

A *port* is such an edge with such a span. What the edge gets from elsewhere (the input's other uses, another
output that was made of this one, something kept aside) is not of the port.

Two tensors that are one object share an edge. There a port gets a view of its own: one tensor at several
arguments, an output that came in as it is, that is a parameter, or that somebody else has as well
(`leaves.Kept`). `backward.py` takes care that sums are rounded as they would be without the view.

Most calls are simple: hooks on one or two nodes tell all. Others are looked up when a backward begins.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import torch

from hookline.backends.protocol import JointSink
from hookline.backends.torch.compat import is_view, node_number, sequence_number, version
from hookline.backends.torch.grads.leaves import (
    Copies,
    Edge,
    Live,
    Region,
    by_number,
    edge_of,
    has_view,
    kept,
    live_leaves,
    region_of,
    replaced_at,
    written,
)
from hookline.backends.torch.grads.marks import every_passage, is_own, looked_up, viewed
from hookline.backends.torch.grads.ports import (
    AGAIN,
    FOREVER,
    SHARED,
    THREADS,
    UNTOLD,
    WRITTEN,
    Port,
    goes_on_as,
    mark,
    number_of,
    number_of_held,
)
from hookline.backends.torch.grads.simple import Simple
from hookline.backends.torch.grads.threads import here, threads

Tensor = torch.Tensor


class Passage(Simple):
    """One call: its ports, and who is told what comes by."""

    early: list[tuple[Port, Tensor]] | tuple[()] = ()
    """Of inputs: what came in the backward under way before anything came to an output."""
    _versions: list[tuple[Tensor, int]] | tuple[()] = ()
    _copies: Copies | None = None

    # In the forward

    def enter_anyhow(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        live, self.places_in = live_leaves(args[0] if len(args) == 1 and not kwargs else (args, kwargs))
        self.live = len(live)
        if live and self.places_in == 1 and self._is_of_leaf(args, live[0][0]):
            args = (viewed(live[0][0]),)
            self.entered, self.of_leaf = edge_of(args[0]), True
        elif live:
            if self.live > 1 or threads.several or (self.joint and live[0][0].grad_fn is None):
                args, kwargs = self._told_apart(args, kwargs, live)
            else:
                self._add_input(live[0][0], (live[0][1],))
        self.start = start = sequence_number()
        for port in self.inputs:
            port.low = start
        return args, kwargs

    def _is_of_leaf(self, args: Any, leaf: Tensor) -> bool:
        """Whether a leaf is the only argument, and gets a view: its node runs as soon as it can, not in order of
        age, and so too early for a hook that wants all gradients."""
        joint = self.joint and not threads.several
        return joint and len(args) == 1 and type(args[0]) is Tensor and leaf.grad_fn is None and has_view(leaf)

    def _told_apart(self, args: Any, kwargs: Any, live: Live) -> tuple[Any, Any]:
        """Ports of several inputs; each tensor that stands at several places gets views."""
        seen: dict[int, list[int]] = {}
        for leaf, number in live:
            seen.setdefault(id(leaf), []).append(number)
        # Those of leaves: see `_is_of_leaf`.
        early, every = self.joint, threads.several
        # By another hook of this very call: it is the very tuple and dict, and no node was made since.
        thread = here.now
        handed_on = thread.handed_on == (id(args), id(kwargs), sequence_number())
        new = {
            number: viewed(leaf)
            for leaf, number in live
            if (every and not handed_on) or number != seen[id(leaf)][0] or (early and leaf.grad_fn is None)
        }
        for leaf, number in live:
            if new.get(number, leaf) is not leaf:
                goes_on_as(leaf, new[number])
        if not new:
            for leaf, number in live:
                self._add_input(leaf, (number,))
                self.inputs[-1].own = every and is_own(leaf)
            return args, kwargs
        given = args, kwargs
        args, kwargs = replaced_at(given, new)
        self._copies, self.mixed = Copies(), True
        self._copies.add(given, (args, kwargs))
        entered = {number: leaf for leaf, number in live_leaves((args, kwargs))[0]}
        apart: dict[int, list[int]] = {}
        for number, leaf in entered.items():
            apart.setdefault(id(leaf), []).append(number)
        for _, number in live:
            mine = apart[id(entered[number])]
            if mine[0] == number:
                self._add_input(entered[number], tuple(mine))
                self.inputs[-1].own = every and is_own(entered[number])
        if every:
            self.remark, thread.handed_on = THREADS, (id(args), id(kwargs), sequence_number())
        if len(seen) < len(live):
            self.remark = SHARED if all(len(mine) == 1 for mine in apart.values()) else UNTOLD
        return args, kwargs

    def _add_input(self, leaf: Tensor, numbers: tuple[int, ...]) -> None:
        port = Port(numbers, outward=False)
        port.edge = edge_of(leaf)
        if is_view(leaf) and (found := region_of(leaf)) is not None:
            port.base, port.region = found
            port.seen_last = partial(number_of, leaf)
            self._versions, self.mixed = [*self._versions, (leaf, version(leaf))], True
        self.inputs = *self.inputs, port

    def leave_anyhow(self, output: Any, call: int, references: int) -> Any:
        thread = here.now
        if self._copies is not None:
            self._copies.write_back()
        self.lay_out_input()
        spare = kept.ids(output, references)  # before anything here holds a tensor of it
        live, self.places_out = live_leaves(output)
        versions, self._versions = self._versions, ()
        written_to = any(written(leaf, before) for leaf, before in versions)
        if call != thread.call:  # else a hook before has looked at the views already
            for leaf, _ in live:
                leaf.grad_fn  # noqa: B018  what leaves is looked at: a view that was written to gets another node then
            thread.looking = sequence_number()
        for port in self.inputs if versions else ():
            seen = port.seen_last(thread.looking) if written_to and port.seen_last is not None else 0
            port.seen_last = (lambda now, seen=seen: seen) if seen else None
        if written_to and self.remark == SHARED:
            self.remark = WRITTEN
        if call == thread.call:
            spare.difference_update(thread.known)  # torch has the last hook's result, and views hold their base
        if not live:
            self.inputs = ()
            return output
        if not self.start:  # it was not entered: only outputs are asked for
            self.before = thread.looked_up
        output, live = self._on_their_own(output, live, spare, call)
        self._settle(live, call, simple=self.simple and not written_to)
        return output

    def point(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The tensors to go on with: what comes back to these, and to no other use of them, is told."""
        live, self.places_out = live_leaves(tensors)
        new = {number: viewed(leaf) for leaf, number in live}
        if not new:
            return tensors
        thread = here.now
        self.before, thread.call = thread.looked_up, 0
        self._settle([(alias, number) for number, alias in new.items()], -1, simple=True)
        return tuple(new.get(number, tensor) for number, tensor in enumerate(tensors))

    def _on_their_own(self, output: Any, live: Live, spare: set[int], call: int) -> tuple[Any, Live]:
        """The output with a view in place of every tensor that is known by another name too."""
        entered, every = {port.edge for port in self.inputs}, threads.several
        known = here.now.known if call == here.now.call else ()
        new: dict[int, Tensor] = {}
        seen: set[int] = set()
        for leaf, number in live:
            node = leaf.grad_fn
            again = every and id(leaf) not in known
            if again or node is None or id(leaf) in spare or id(leaf) in seen or (node, leaf.output_nr) in entered:
                alias = viewed(leaf)
                if alias is not leaf:
                    new[number] = alias
                    goes_on_as(leaf, alias)
            seen.add(id(leaf))
        if not new:
            return output, live
        output = new[0] if type(output) is Tensor else replaced_at(output, new)
        return output, live_leaves(output)[0]

    def _settle(self, live: Live, call: int, *, simple: bool) -> None:
        """Makes the ports of the outputs, and has the gradients told; `simple`: perhaps it is a simple call."""
        end, thread = sequence_number(), here.now
        if thread.call != call:
            thread.call, thread.group, thread.span = call, thread.group + 1, (self.start, end)
        elif not thread.span[0]:  # the first to leave asked for outputs alone
            thread.span = self.start, thread.span[1]
        self.group, self.span = thread.group, thread.span
        thread.known = tuple(id(leaf) for leaf, _ in live)
        for port in self.inputs:
            port.high = end
        regions: list[tuple[Edge, Region]] = []
        for leaf, number in live:
            node: Any = leaf.grad_fn
            if node is None:
                continue  # a parameter without views, or in something that can't be rebuilt: its node is for good
            port = Port((number,), outward=True)
            port.low, port.high = end, FOREVER
            port.own, port.handed_on = threads.several and is_own(leaf), is_own(leaf)
            self.outputs = *self.outputs, port
            mark(node, leaf.output_nr, self, port)
            found = region_of(leaf) if is_view(leaf) else None
            if found is not None and found[0][0].next_functions:  # not of a leaf, whose node is for good
                mark(*found[0], self, port, found[1])
                if found in regions:
                    self.remark = self.remark or AGAIN
                regions.append(found)
                port.seen_last = partial(number_of_held, weakref.ref(leaf))
                if (entered := self._shown_by(leaf, found[0])) is not None:
                    entered.through = [*entered.through, found[1]]
                if node_number(found[0][0]) < self.start:
                    self._let_go()
        alone = len(self.outputs) == len(live) == 1 and self.before == thread.looked_up
        leaf, self.numbers = live[0][0], live[0][1:]
        simple = simple and alone and self.joint_out is None and not is_view(leaf)
        if not (simple and self.hear(thread, leaf.grad_fn, leaf.output_nr, end)):
            self.simple = False
            thread.looked_up += 1
        if self.outputs:
            kind = every_passage if self.simple else looked_up
            self.marks = kind.alive() or kind.made()

    def _shown_by(self, leaf: Tensor, base: Edge) -> Port | None:
        """The input that an output is a view of, or shares the base with."""
        edges = base, by_number(base)
        sharing = [port for port in self.inputs if (port.base or port.edge) in edges]
        node, output_nr = edge_of(leaf)
        while len(sharing) > 1 and node is not None:  # one tensor came in at several places: which one was taken?
            for port in sharing:
                if port.edge in ((node, output_nr), by_number((node, output_nr))):
                    return port
            node, output_nr = node.next_functions[0] if node.next_functions else (None, 0)
        return sharing[0] if sharing else None

    def _let_go(self) -> None:
        """Knows inputs by numbers alone: an older node now holds this passage, which must not hold the node."""
        for port in self.inputs:
            port.edge, port.base = by_number(port.edge), by_number(port.base)

    # In a backward

    def tell(self, port: Port, grad: Tensor, task: int) -> None:
        """Tells the gradient of a port, in the backward of that number.

        That of an input only after one of an output, which may come later, from something that was kept aside;
        or never: in a second derivative it may come to an input alone.
        """
        if port.outward:
            self.told_in = task
            on_output = self.on_output or self.sink._hear_output
            on_output(port.numbers, grad)
            early, self.early = self.early, ()
            for waiting, came in early:
                self.tell(waiting, came, task)
        elif self.sink is not None and self.told_in == task:
            self.sink._hear_input(port.numbers, grad)
        elif self.sink is not None:
            self.early = [*self.early, (port, grad)]

    def ask(self, shares: list[tuple[Port, Any]], task: int, outward: bool) -> list[Any]:
        """The gradients to go on with at each port of a side."""
        if outward and any(grad is not None for _, grad in shares):
            self.told_in = task
        ask, places = (self.joint_out, self.places_out) if outward else (self.sink._ask, self.places_in)
        if ask is None or self.told_in != task:
            return [grad for _, grad in shares]
        return _asked(ask, places, shares)


def _asked(sink: JointSink, places: int, shares: list[tuple[Port, Any]]) -> list[Any]:
    grads: list[Any] = [None] * places
    for port, grad in shares:
        for number in port.numbers:
            grads[number] = grad
    new = sink(grads)
    return [grad for _, grad in shares] if new is None else [new[port.numbers[0]] for port, _ in shares]
