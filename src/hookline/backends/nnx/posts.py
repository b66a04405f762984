"""Posts: hookline's place at a module of NNX, which has no hooks of its own.

A module with taps gets a class of its own, derived from the one it had, whose `__call__` goes by the taps. NNX
keeps a module's class in the static part of a split model, so every function compiled by `nnx.jit`, or by
`jax.jit` of a split model, is traced anew when the class changes. Where the same is wanted again, the same
class comes back, and with it what was compiled. Nothing is put into the instance: its state, and a copy's, stay
what they are.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
from flax import nnx

from hookline.backends.changing import changing
from hookline.backends.nnx.compat import tracing
from hookline.backends.nnx.events import failures, later, settled, thread
from hookline.backends.nnx.modules import has_no_forward, walk
from hookline.backends.nnx.replay import Shares, Waiting
from hookline.backends.subclass import base_of, subclass
from hookline.backends.tap import Figures, Label, Rank, Tap, Wish, backwards_in_order, put_in_order
from hookline.backends.undoing import Undoing
from hookline.errors import Unsupported

RAW = Figures(histogram=False, functions=(), dim=-1)
"""The view of a tap that wants the arrays themselves."""

KEPT = 16
"""Classes that a module keeps for the next time; programs that were compiled with others are compiled again."""

_numbers = itertools.count()


class Spec(NamedTuple):
    """What compiled code has to send from one module, in which views."""

    begins: bool = False
    ends: bool = False
    inputs: frozenset[Figures] = frozenset()
    outputs: frozenset[Figures] = frozenset()
    grads: frozenset[Figures] = frozenset()
    params: bool = False
    operators: bool = False
    steps: frozenset[Figures] = frozenset()


class Post:
    """All taps of one module."""

    def __init__(self, module: nnx.Module) -> None:
        self.module = weakref.ref(module)
        self.base = base_of(type(module))
        self.taps: list[Tap] = []
        self.forwards: tuple[tuple[Callable[..., Any], Label], ...] = ()  # each has those before it as original
        self.number = next(_numbers)
        self.op_watchers: list[Any] = []
        self.param_sinks: list[tuple[Callable[[str, Any], None], Label]] = []
        self.closed_over = False  # code was compiled that holds the module itself and not a split one
        self.waiting = Waiting()
        self.shares = Shares()
        self._classes: dict[Any, type] = {}

    def before(self) -> list[Tap]:
        """The taps before the forward in the order of Rank."""
        return sorted(
            (tap for tap in self.taps if not tap.after),
            key=lambda tap: (_BEFORE[tap.rank], *backwards_in_order(tap)),
        )

    def after(self) -> list[Tap]:
        """The taps after the forward in the order of Rank."""
        return sorted(
            (tap for tap in self.taps if tap.after), key=lambda tap: (tap.rank, *backwards_in_order(tap))
        )

    def spec(self) -> Spec:
        """What the taps of now ask of compiled code."""
        seeing = [tap for tap in self.taps if observes(tap)]
        counting = [tap for tap in seeing if counts(tap)]
        return Spec(
            begins=any(not tap.after for tap in counting),
            ends=any(tap.after for tap in counting),
            inputs=frozenset(view_of(tap) for tap in seeing if tap.needs.inputs),
            outputs=frozenset(view_of(tap) for tap in seeing if tap.needs.outputs),
            grads=frozenset(view_of(tap) for tap in seeing if tap.needs.grads),
            params=bool(self.param_sinks),
            operators=bool(self.op_watchers),
            steps=frozenset(tap.needs.statistics for tap in counting if tap.needs.statistics is not None),
        )

    @changing
    def refresh(self) -> None:
        """Gives the module the class that its taps ask for."""
        module = self.module()
        if module is None or has_no_forward(module):
            return
        spec = self.spec()
        traced = [tap for tap in self.taps if not observes(tap)]
        if spec == Spec() and not traced and not self.forwards:
            wanted = self.base
        else:
            key = spec, tuple(sorted((tap.order, id(tap)) for tap in traced)), tuple(map(id, self.forwards))
            wanted = self._classes.pop(key) if key in self._classes else hooked_class(self, spec)
            self._classes[key] = wanted
            if len(self._classes) > KEPT:
                del self._classes[next(iter(self._classes))]
        if type(module) is not wanted:
            object.__setattr__(module, "__class__", wanted)
        if self.closed_over:
            self.closed_over = False
            jax.clear_caches()  # such code does not notice a change of class


_BEFORE = {Rank.ORIGINAL: -1, Rank.EDIT: 0, Rank.OBSERVE: 1, Rank.STOP: 1, Rank.GRADIENT: 2}

_posts: dict[int, Post] = {}

live: dict[int, Label] = {}
"""The labels of all taps in place: a program that was compiled with others may still run."""


def post_of(module: nnx.Module) -> Post:
    """The module's post, made if there is none; a copy of a module with taps gets one of its own."""
    found = _posts.get(id(module))
    if found is None or found.module() is not module:
        found = _posts[id(module)] = Post(module)
        weakref.finalize(module, _posts.pop, id(module), None)
    return found


def observes(tap: Tap) -> bool:
    """Whether a tap only looks, so that it can be told of a call later."""
    return tap.rank in (Rank.OBSERVE, Rank.STOP)


def counts(tap: Tap) -> bool:
    """Whether a tap looks at no value and only counts calls."""
    return not tap.needs.inputs and not tap.needs.outputs


def view_of(tap: Tap) -> Figures:
    """In which form a tap takes values."""
    return RAW if tap.needs.statistics is None else tap.needs.statistics


def post_in(kind: type) -> Post | None:
    """The post that a class goes by; None for a class without taps."""
    found: Post | None = kind.__dict__.get("__hookline_post__")
    return found


def hooked_class(post: Post, spec: Spec) -> type:
    """A class like the module's own, whose call goes by the post."""
    from hookline.backends.nnx.passing import passed

    base: type = post.base
    call: Callable[..., Any] = base.__call__

    @functools.wraps(call)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        return passed(post, spec, self, args, kwargs)

    def __deepcopy__(self: Any, memo: Any) -> Any:
        copied = base.__deepcopy__(self, memo) if hasattr(base, "__deepcopy__") else nnx.clone(self)
        for _, module in walk(copied):
            object.__setattr__(module, "__class__", base_of(type(module)))
        return copied

    names = {
        "__call__": __call__,
        "__deepcopy__": __deepcopy__,
        "__hookline_post__": post,
        "__hookline_spec__": spec,
    }
    made: type = subclass(base, names, _metaclass(type(base)), pytree=getattr(base, "_pytree__is_pytree", True))
    return made


@functools.cache
def _metaclass(own: type) -> Any:
    """The class of the classes of modules with taps.

    They are not equal, so programs are compiled for each. But nnx.jit asks after a call, by `!=`, whether a model
    is still of the class that it had before, and another thread may have attached something meanwhile.
    """

    def differs(cls: type, other: object) -> bool:
        return not isinstance(other, type) or base_of(cls) is not base_of(other)

    return type(own.__name__, (own,), {"__ne__": differs, "__hash__": own.__hash__})


def place(undoing: Undoing, wishes: list[Wish]) -> None:
    """Puts all taps at the posts of their modules."""
    if tracing() and any(observes(wish.tap) and not counts(wish.tap) for wish in wishes):
        raise Unsupported(
            backend="nnx",
            feature="looking at a model from inside of a function that is being traced (jit, grad, ...)",
            why="the block would end before the compiled function runs, so nothing could be seen",
            instead="open the block outside, around the call of the compiled function",
        )
    settled()  # what was sent before is not for these taps
    placed: list[tuple[Post, Tap]] = []

    @changing
    def take_away() -> None:
        # May be cut short and run again: each step can be done twice.
        posts = {id(post): post for post, _ in placed}
        for post, tap in placed:
            post.taps = [other for other in post.taps if other is not tap]
            if not any(other.needs.grads for other in post.taps):
                post.waiting.clear()
            live.pop(id(tap.label), None)
        _refresh(posts.values())
        placed.clear()

    @changing
    def put() -> None:
        for module, tap in wishes:
            put_in_order(tap)
            post = post_of(module)
            placed.append((post, tap))
            post.taps = [*post.taps, tap]
            live[id(tap.label)] = tap.label
        _refresh({id(post): post for post, _ in placed}.values())

    def remove() -> None:
        if not placed:
            return
        labels = [tap.label for _, tap in placed]
        try:
            settled()  # what compiled code has sent is for these taps
        finally:
            take_away()
        failures.raised(labels)

    undoing.noted(remove)
    put()


def _refresh(posts: Iterable[Post]) -> None:
    for post in posts:
        if thread.running:
            later.append(post.refresh)
        else:
            post.refresh()


def placed_on(model: nnx.Module) -> list[Label]:
    """The labels of everything of hookline on the model."""
    found: list[Label] = []
    seen: set[int] = set()
    for _, module in walk(model):
        post = _posts.get(id(module))
        if post is not None and post.module() is module and id(module) not in seen:
            seen.add(id(module))
            found += [tap.label for tap in post.taps]
            found += [label for _, label in post.param_sinks]
            found += [watcher.label for watcher in post.op_watchers]
            found += [label for _, label in post.forwards]
    return found


def replace_forward(undoing: Undoing, module: nnx.Module, fn: Callable[..., Any], label: Label) -> None:
    """Has `fn(original, *args, **kwargs)` run in place of the module's `__call__`."""
    post, mine = post_of(module), (fn, label)

    @changing
    def restore() -> None:
        post.forwards = tuple(other for other in post.forwards if other is not mine)
        post.refresh()

    @changing
    def put() -> None:
        post.forwards = (*post.forwards, mine)
        post.refresh()

    undoing.noted(restore)
    put()
