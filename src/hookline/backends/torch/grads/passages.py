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
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from hookline.backends.protocol import GradSink, JointSink
from hookline.backends.torch.compat import is_view, node_number, sequence_number, version
from hookline.backends.torch.grads.leaves import (
    Copies,
    Edge,
    Live,
    Region,
    by_number,
    edge_of,
    is_live,
    kept,
    live_leaves,
    region_of,
    replaced_at,
    written,
)
from hookline.backends.torch.grads.marks import is_own, marked, viewed
from hookline.backends.torch.grads.ports import (
    AGAIN,
    FOREVER,
    ONLY,
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
from hookline.backends.torch.grads.simple import hear_simply
from hookline.backends.torch.grads.threads import here, threads

Tensor = torch.Tensor


class Passage:
    """One call: its ports, and who is told what comes by.

    `on_input` and `on_output` are told each gradient; `joint_in` and `joint_out`, in place of these, get all
    gradients of a side at once and may replace them. `live` inputs need a gradient. `remark` says what looking
    may have changed.
    """

    on_input: GradSink | None = None
    on_output: GradSink | None = None
    joint_in: JointSink | None = None
    joint_out: JointSink | None = None
    on_doubt: Callable[[str], None] | None = None
    remark: str | None = None
    simple = True
    by_ledger = False
    """Whether the backward under way looks a simple passage up all the same."""
    told_in: int | None = None  # the last backward in which an output had a gradient
    early: list[tuple[Port, Tensor]] | tuple[()] = ()
    """Of inputs: what came in the backward under way before anything came to an output."""
    live = places_in = places_out = start = group = 0
    span = (0, 0)  # of the call: one for all of its passages, which may have made views in between
    marks: Any = None  # see `Marked.held`
    _before = 0
    _versions: list[tuple[Tensor, int]] | tuple[()] = ()
    _copies: Copies | None = None

    # A passage is made for every call, and stays until the graph goes: what most have no use for is not made.
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()

    # In the forward

    def enter(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments to go on with."""
        if not here.is_main:
            threads.note()
        self._before = here.looked_up
        if len(args) == 1 and not kwargs and type(leaf := args[0]) is Tensor and self._enter_plainly(leaf):
            return args, kwargs
        live, self.places_in = live_leaves((args, kwargs))
        self.live = len(live)
        if live:
            if self.live > 1 or threads.several or (self.joint_in is not None and live[0][0].grad_fn is None):
                args, kwargs = self._told_apart(args, kwargs, live)
            else:
                self._add_input(live[0][0], (live[0][1],))
        self.start = start = sequence_number()
        for port in self.inputs:
            port.low = start
        return args, kwargs

    def _enter_plainly(self, leaf: Tensor) -> bool:
        """The one port of a call that gets one tensor, as most calls do; False if that is a leaf or a view."""
        node = leaf.grad_fn
        if node is None or threads.several or is_view(leaf) or not is_live(leaf):
            return False
        port = Port(ONLY, outward=False)
        port.edge = node, leaf.output_nr
        port.low = self.start = sequence_number()
        self.inputs, self.live, self.places_in = (port,), 1, 1
        return True

    def _told_apart(self, args: Any, kwargs: Any, live: Live) -> tuple[Any, Any]:
        """Ports of several inputs; each tensor that stands at several places gets views."""
        seen: dict[int, list[int]] = {}
        for leaf, number in live:
            seen.setdefault(id(leaf), []).append(number)
        # A leaf's node runs as soon as it can, not in order of age: too early for a hook that wants all gradients.
        early, every = self.joint_in is not None, threads.several
        # By another hook of this very call: it is the very tuple and dict, and no node was made since.
        handed_on = here.handed_on == (id(args), id(kwargs), sequence_number())
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
        self._copies = Copies()
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
            self.remark, here.handed_on = THREADS, (id(args), id(kwargs), sequence_number())
        if len(seen) < len(live):
            self.remark = SHARED if all(len(mine) == 1 for mine in apart.values()) else UNTOLD
        return args, kwargs

    def _add_input(self, leaf: Tensor, numbers: tuple[int, ...]) -> None:
        port = Port(numbers, outward=False)
        port.edge = edge_of(leaf)
        if is_view(leaf) and (found := region_of(leaf)) is not None:
            port.base, port.region = found
            port.seen_last = partial(number_of, leaf)
            self._versions = [*self._versions, (leaf, version(leaf))]
        self.inputs = *self.inputs, port

    def leave(self, output: Any, call: int, references: int) -> Any:
        """The output to go on with. `call` is one number for all hooks of a call, and no other call's;
        `references` is what the hook counted of `output`."""
        if not self.start and not here.is_main:
            threads.note()
        plain = type(output) is Tensor and self._is_plain(output, call, references)
        if plain and self._leave_plainly(output, call):
            return output
        if self._copies is not None:
            self._copies.write_back()
        spare = kept.ids(output, references)  # before anything here holds a tensor of it
        live, self.places_out = live_leaves(output)
        versions, self._versions = self._versions, ()
        written_to = any(written(leaf, before) for leaf, before in versions)
        if call != here.call:  # else a hook before has looked at the views already
            for leaf, _ in live:
                leaf.grad_fn  # noqa: B018  what leaves is looked at: a view that was written to gets another node then
            here.looking = sequence_number()
        for port in self.inputs if versions else ():
            seen = port.seen_last(here.looking) if written_to and port.seen_last is not None else 0
            port.seen_last = (lambda now, seen=seen: seen) if seen else None
        if written_to and self.remark == SHARED:
            self.remark = WRITTEN
        if call == here.call:
            spare -= here.known  # torch still has the result of the hook before, and views hold their base
        if not live:
            self.inputs = ()
            return output
        if not self.start:  # it was not entered: only outputs are asked for
            self._before = here.looked_up
        output, live = self._on_their_own(output, live, spare, call)
        self._settle(live, call, simple=not (written_to or plain))
        return output

    def _is_plain(self, output: Tensor, call: int, references: int) -> bool:
        """Whether a call is of the plainest kind: a tensor that nobody else has, and that is no view, left it, no
        view came in and no copy, no call within it has to be looked up, and nobody else has hooked it."""
        node, inputs = output.grad_fn, self.inputs
        if threads.several:
            return False
        if node is None or call == here.call or self._versions or self._copies or self.joint_out is not None:
            return False
        if (self.start and here.looked_up != self._before) or (not inputs and not is_live(output)):
            return False
        if inputs and (node, output.output_nr) in [port.edge for port in inputs]:
            return False
        return not (is_view(output) or kept.ids(output, references))

    def _leave_plainly(self, output: Tensor, call: int) -> bool:
        """Does for a plain call what the rest of `leave` does for any; False if it has to be looked up."""
        node, output_nr, end, thread = output.grad_fn, output.output_nr, sequence_number(), here
        if not hear_simply(self, node, output_nr, end):
            return False
        thread.call, thread.span, thread.looking = call, (self.start, end), end
        thread.group += 1
        thread.known = frozenset((id(output),))
        self.group, self.span, self.places_out = thread.group, thread.span, 1
        for port in self.inputs:
            port.high = end
        port = Port(ONLY, outward=True)
        port.low, port.high = end, FOREVER
        self.outputs = (port,)
        mark(node, output_nr, self, port)
        self.marks = marked.held(looked_up=False)
        return True

    def point(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The tensors to go on with: what comes back to these, and to no other use of them, is told."""
        live, self.places_out = live_leaves(tensors)
        new = {number: viewed(leaf) for leaf, number in live}
        if not new:
            return tensors
        self._before, here.call = here.looked_up, 0
        self._settle([(alias, number) for number, alias in new.items()], -1, simple=True)
        return tuple(new.get(number, tensor) for number, tensor in enumerate(tensors))

    def _on_their_own(self, output: Any, live: Live, spare: set[int], call: int) -> tuple[Any, Live]:
        """The output with a view in place of every tensor that is known by another name too."""
        entered, every = {port.edge for port in self.inputs}, threads.several
        known = here.known if call == here.call else ()
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
        end = sequence_number()
        if here.call != call:
            here.call, here.group, here.span = call, here.group + 1, (self.start, end)
        elif not here.span[0]:  # the first to leave asked for outputs alone
            here.span = self.start, here.span[1]
        self.group, self.span = here.group, here.span
        here.known = frozenset(id(leaf) for leaf, _ in live)
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
        alone = len(self.outputs) == len(live) == 1 and self._before == here.looked_up
        leaf = live[0][0]
        simple = simple and alone and self.joint_out is None and not is_view(leaf)
        if not (simple and hear_simply(self, leaf.grad_fn, leaf.output_nr, end)):
            self.simple = False
            here.looked_up += 1
        if self.outputs:
            self.marks = marked.held(looked_up=not self.simple)

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
            assert self.on_output is not None
            self.on_output(port.numbers, grad)
            early, self.early = self.early, ()
            for waiting, came in early:
                self.tell(waiting, came, task)
        elif self.on_input is not None and self.told_in == task:
            self.on_input(port.numbers, grad)
        elif self.on_input is not None:
            self.early = [*self.early, (port, grad)]

    def ask(self, shares: list[tuple[Port, Any]], task: int, outward: bool) -> list[Any]:
        """The gradients to go on with at each port of a side."""
        if outward and any(grad is not None for _, grad in shares):
            self.told_in = task
        sink, places = (self.joint_out, self.places_out) if outward else (self.joint_in, self.places_in)
        if sink is None or self.told_in != task:
            return [grad for _, grad in shares]
        return _asked(sink, places, shares)


def _asked(sink: JointSink, places: int, shares: list[tuple[Port, Any]]) -> list[Any]:
    grads: list[Any] = [None] * places
    for port, grad in shares:
        for number in port.numbers:
            grads[number] = grad
    new = sink(grads)
    return [grad for _, grad in shares] if new is None else [new[port.numbers[0]] for port, _ in shares]
