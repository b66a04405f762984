"""Following: a forward of a model whose calls are looked at and changed, one by one, beside a reference.

A `Way` says what becomes of the tensors that arrive at a call and that leave it; `follow` takes it along.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hookline.backends.protocol import Backend, FunctionTap, Label, Model, Module, Needs, Placement, Rank
from hookline.backends.undoing import Undoing
from hookline.branches import inside
from hookline.diffs.reading import Leaf, leaves_of
from hookline.hooks.select import ModuleTree
from hookline.hooks.session import Session
from hookline.trees import map_leaves

Leaves = list[Leaf]


class Visit(NamedTuple):
    """A call that is under way: of which site, which one it is, and in which call it was made."""

    site: str
    call: int
    caller: Visit | None


class Way:
    """What becomes of tensors on their way; None leaves them as they are."""

    def called(self, visit: Visit, args: Any, kwargs: Any) -> None:
        """A call begins, with these arguments."""

    def passed_by(self, visit: Visit) -> None:
        """Tensors of a call can't be read or replaced where it is made, so they are left as they are."""

    def arriving(self, visit: Visit, leaves: Leaves) -> Sequence[Any] | None:
        """The tensors to go into a call with, of those that arrive at it."""
        return None

    def leaving(self, visit: Visit, leaves: Leaves) -> Sequence[Any] | None:
        """The tensors that leave a call, of those that its code made."""
        return None


def follow(undoing: Undoing, backend: Backend, model: Model, way: Way, sites: Sequence[str]) -> None:
    """Until the undoing, each call of these sites goes the way."""
    tree = ModuleTree(backend.named_modules(model))
    session = Session()
    undoing.noted(session.close)
    session.open()
    follower = _Follower(backend, session, way)
    placements: list[Placement] = []
    for site in sites:
        target = tree.target(site)
        placements += follower.placements(target.name, target.module)
    backend.attach(undoing, placements)


class _Follower:
    """Knows which calls are under way, and takes structures apart for the Way."""

    def __init__(self, backend: Backend, session: Session, way: Way) -> None:
        self._backend, self._session, self._way = backend, session, way
        self._home = threading.get_ident()
        self._foreign = {thread.ident for thread in threading.enumerate()} - {self._home}
        self._stacks: dict[int, list[Visit]] = {self._home: []}  # of each thread, the calls that are under way
        self._counts: dict[str, int] = {}

    def placements(self, site: str, module: Module) -> list[Placement]:
        label = Label("diff", "diff of calls", site, "")

        def before(module: Module, args: Any, kwargs: Any) -> Any:
            return self._arrive(site, args, kwargs) if self._is_mine() else None

        def after(module: Module, args: Any, output: Any) -> Any:
            return self._leave(site, output) if self._is_mine() else None

        entrance = FunctionTap(before, label, after=False, rank=Rank.EDIT)
        leaving = FunctionTap(after, label, kwargs=False, rank=Rank.EDIT, needs=Needs(inputs=False))
        return [Placement(module, entrance), Placement(module, leaving)]

    def _is_mine(self) -> bool:
        """Whether a call is of this run: not of a thread that was there before, which may use the model meanwhile
        and gets its own values; threads that the model starts are its own."""
        return threading.get_ident() not in self._foreign and self._session.sees_this_context()

    def _caller(self, stack: list[Visit]) -> Visit | None:
        """The call in which one begins; that of a thread which has none is made by who started it."""
        above = stack or self._stacks[self._home]
        return above[-1] if above else None

    def _arrive(self, site: str, args: Any, kwargs: Any) -> Any:
        number = self._counts[site] = self._counts.get(site, -1) + 1
        stack = self._stacks.setdefault(threading.get_ident(), [])
        visit = Visit(site, number, self._caller(stack))
        stack.append(visit)
        tree = (args, kwargs)
        with self._backend.unseen():  # nothing of this is the model's, for whoever looks at its operators
            self._way.called(visit, args, kwargs)
            leaves = [*self._leaves(args), *self._leaves(kwargs)]
            new = self._way.arriving(visit, leaves) if self._can_read(visit, leaves) else None
        return tree if new is None else _refilled(tree, iter(new), self._backend.tensor)

    def _leave(self, site: str, output: Any) -> Any:
        stack = self._stacks.get(threading.get_ident(), [])
        while stack and stack[-1].site != site:
            stack.pop()  # it raised, and its caller went on
        if not stack:
            return None
        with self._backend.unseen():
            visit, leaves = stack.pop(), self._leaves(output)
            new = self._way.leaving(visit, leaves) if self._can_read(visit, leaves) else None
        return None if new is None else _refilled(output, iter(new), self._backend.tensor)

    def _can_read(self, visit: Visit, leaves: Leaves) -> bool:
        can = all(self._backend.is_readable(leaf.tensor) for leaf in leaves)
        if not can:
            self._way.passed_by(visit)
        return can

    def _leaves(self, tree: Any) -> Leaves:
        return leaves_of(tree, self._backend.tensor)


def _refilled(tree: Any, new: Iterator[Any], kind: type, above: tuple[int, ...] = ()) -> Any:
    """A structure with other tensors. Dicts and lists stay the objects they are: a cache is filled by its user."""
    if isinstance(tree, kind):
        return next(new)
    if inside(tree, above) is None:  # a leaf, or something that leads back to itself
        return tree
    below = (*above, id(tree))
    if type(tree) is tuple:
        return tuple(_refilled(child, new, kind, below) for child in tree)
    if type(tree) in (dict, list):
        for key in list(tree) if type(tree) is dict else range(len(tree)):
            tree[key] = _refilled(tree[key], new, kind, below)
        return tree
    return map_leaves(lambda old: next(new), tree, kind)
