"""Taps on modules of NNX, by a class of its own for as long as they are there.

A module with taps gets a class derived from the one it had, whose `__call__` goes by its post. NNX
keeps a module's class in the static part of a split model, so every function compiled by `nnx.jit`, or by
`jax.jit` of a split model, is traced anew when the class changes. Where the same is wanted again, the same
class comes back, and with it what was compiled. Nothing is put into the instance: its state, and a copy's, stay
what they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
from flax import nnx

from hookline.backends.changing import changing
from hookline.backends.nnx.calls import run_call
from hookline.backends.nnx.compat import tracing
from hookline.backends.nnx.events import failures, later, settled, thread
from hookline.backends.nnx.module_taps import ModuleTaps, Spec, counts, live, module_taps_of, observes, post_at
from hookline.backends.nnx.modules import has_no_forward, walk
from hookline.backends.subclass import base_of, subclass
from hookline.backends.tap import Label, Placement, Tap, put_in_order
from hookline.backends.undoing import Undoing
from hookline.errors import Unsupported

KEPT = 16
"""Classes that a module keeps for the next time; programs that were compiled with others are compiled again."""


@changing
def refresh(post: ModuleTaps) -> None:
    """Gives the module the class that its taps ask for."""
    module = post.module()
    if module is None or has_no_forward(module):
        return
    spec = post.spec()
    traced = [tap for tap in post.taps if not observes(tap)]
    if spec == Spec() and not traced and not post.forwards:
        wanted = post.base
    else:
        key = spec, tuple(sorted((tap.order, id(tap)) for tap in traced)), tuple(map(id, post.forwards))
        wanted = post.classes.pop(key) if key in post.classes else hooked_class(post, spec)
        post.classes[key] = wanted
        if len(post.classes) > KEPT:
            del post.classes[next(iter(post.classes))]
    if type(module) is not wanted:
        object.__setattr__(module, "__class__", wanted)
    if post.closed_over:
        post.closed_over = False
        jax.clear_caches()  # such code does not notice a change of class


def hooked_class(post: ModuleTaps, spec: Spec) -> type:
    """A class like the module's own, whose call goes by the post."""
    base: type = post.base
    call: Callable[..., Any] = base.__call__

    @functools.wraps(call)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        return run_call(post, spec, self, args, kwargs)

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


def attach(undoing: Undoing, placements: list[Placement]) -> None:
    """Puts all taps at the posts of their modules."""
    if tracing() and any(observes(placement.tap) and not counts(placement.tap) for placement in placements):
        raise Unsupported(
            backend="nnx",
            feature="looking at a model from inside of a function that is being traced (jit, grad, ...)",
            why="the block would end before the compiled function runs, so nothing could be seen",
            instead="open the block outside, around the call of the compiled function",
        )
    settled()  # what was sent before is not for these taps
    labels = [placement.tap.label for placement in placements]
    placed: list[tuple[ModuleTaps, Tap]] = []

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
        for module, tap in placements:
            put_in_order(tap)
            post = module_taps_of(module)
            placed.append((post, tap))
            post.taps = [*post.taps, tap]
            live[id(tap.label)] = tap.label
        _refresh({id(post): post for post, _ in placed}.values())

    def remove() -> None:
        if not placed:
            return
        try:
            settled()  # what compiled code has sent is for these taps
        finally:
            take_away()
        failures.raised(labels)

    undoing.noted(remove)
    put()


def _refresh(posts: Iterable[ModuleTaps]) -> None:
    for post in posts:
        if thread.running:
            later.append(partial(refresh, post))
        else:
            refresh(post)


def placed_on(model: nnx.Module) -> list[Label]:
    """The labels of everything of hookline on the model."""
    found: list[Label] = []
    seen: set[int] = set()
    for _, module in walk(model):
        post = post_at(module)
        if post is not None and id(module) not in seen:
            seen.add(id(module))
            found += [tap.label for tap in post.taps]
            found += [label for _, label in post.param_sinks]
            found += [watcher.label for watcher in post.op_watchers]
            found += [label for _, label in post.forwards]
    return found


def replace_forward(undoing: Undoing, module: nnx.Module, fn: Callable[..., Any], label: Label) -> None:
    """Has `fn(original, *args, **kwargs)` run in place of the module's `__call__`."""
    post, mine = module_taps_of(module), (fn, label)

    @changing
    def restore() -> None:
        post.forwards = tuple(other for other in post.forwards if other is not mine)
        refresh(post)

    @changing
    def put() -> None:
        post.forwards = (*post.forwards, mine)
        refresh(post)

    undoing.noted(restore)
    put()
