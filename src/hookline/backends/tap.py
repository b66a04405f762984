"""Tap: what hookline puts into a module, and in which order taps run. The same in every framework."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from enum import IntEnum
from functools import partial, wraps
from typing import Any, NamedTuple

from hookline.backends.keywords import following
from hookline.backends.nouns import Module, Tree
from hookline.errors import Unsupported


class Rank(IntEnum):
    """In which order taps of one module run, whatever the order in which they were placed.

    Before the forward: EDIT, OBSERVE, GRADIENT. After it: ORIGINAL, EDIT, GRADIENT, OBSERVE, STOP.
    So a recording sees values after every edit, a gradient belongs to the value that really crossed,
    and a forward is ended only when everybody has seen it.
    """

    ORIGINAL = -1
    EDIT = 0
    GRADIENT = 1
    OBSERVE = 2
    STOP = 3


class Label(NamedTuple):
    """Whose tap this is: what `installed` shows."""

    owner: str
    kind: str
    site: str
    placed_at: str = ""


class StatsSpec(NamedTuple):
    """What is computed of each tensor that a tap sees, where the tap wants numbers and not the tensor itself.

    `functions` take (tensor, xp) and give a number; along `dim`, if there is one, channels are reduced one by one.
    `on_host(array, histogram, dim)` gives the words of an array in this process's memory, where that is quick.
    """

    histogram: bool = True
    functions: tuple[Callable[..., Any], ...] = ()
    dim: int | None = None
    on_host: Callable[..., Any] | None = None


class Needs(NamedTuple):
    """What a tap takes of a call and may do to it: where code is compiled, that must be known before it runs.

    `inputs` and `outputs` are values; without both, the tap only counts calls. If it `replaces`, it may return
    other values. `grads` are gradients that it listens to: of the arguments, or of the output if it runs after the
    forward; `joint` ones come all at once, and it may replace them. `stops`: it may end the forward. With
    `statistics` it is content with these numbers.
    """

    inputs: bool = True
    outputs: bool = True
    replaces: bool = True
    grads: bool = False
    joint: bool = False
    stops: bool = False
    statistics: StatsSpec | None = None


COUNTING = Needs(inputs=False, outputs=False, replaces=False)
"""The needs of a tap that looks at no value."""


GONE: Any = object()
"""The output, as a tap finds it that takes kwargs and is called without; see `Tap.whole_calls_only`."""


class NotAFunction(Unsupported, AttributeError):
    """torch.jit.script or torch.export asked of what hookline put into a module what only functions have."""

    def __init__(self, label: Label) -> None:
        placed = f" (placed at {label.placed_at})" if label.placed_at else ""
        super().__init__(
            backend="torch",
            feature=f"torch.jit.script of a model while hookline's {label.owner} is on it",
            why=f"it compiles hooks, the one at {label.site or 'the model'!r}{placed} is no function",
            instead="leave the block or remove the handle first; torch.jit.trace and torch.compile work inside",
        )


class Tap:
    """What hookline puts into a module: called before or after its forward, labelled, never copied.

    `after` and `kwargs` say how it is called: (module, args[, kwargs]) before the forward, (module,
    args[, kwargs], output) after it. What it returns replaces (args, kwargs) or the output. In a deep
    copy of the model it is inert, and pickled it is a callable of the standard library, so that a
    saved model loads where hookline is not installed. One that `may_miss` calls is not worth running
    compiled code as it is written for. One that is `first_in_backward` gets the gradient before other
    taps of the site do. One that is `prepended` runs before those of its rank that are there when it
    comes. One that is `always_called` runs after a forward that raised, too.
    """

    label: Label
    after = True
    kwargs = True
    rank = Rank.OBSERVE
    order = 0
    index = 0
    needs = Needs()
    followed = False
    """Whether compiled code follows its call, and does not only make room for it."""
    may_miss = False
    first_in_backward = False
    prepended = False
    always_called = False
    alike = False
    """Whether no tap of this class has `after` or `kwargs` of its own, and none is prepended or always called."""

    def __init_subclass__(cls) -> None:
        if cls.kwargs and cls.whole_calls_only and "__call__" in vars(cls):
            cls.__call__ = _whole_calls_only(cls.__call__, 2 if cls.after else 1)  # type: ignore[method-assign]

    whole_calls_only = True
    """Whether it is left out of a call that is told without the kwargs it takes.

    Frameworks look up at each call whether a hook takes kwargs. A call that was under way when the tap was taken
    off still comes to it, and does not find that any more.
    """

    def __call__(self, *args: Any) -> Any:
        raise NotImplementedError

    @property
    def __name__(self) -> str:
        raise NotAFunction(self.label)

    def __deepcopy__(self, memo: dict[int, Any]) -> Inert:
        return Inert(stays=self.always_called)

    def __reduce__(self) -> Any:
        return _inert_pickle()


def _whole_calls_only(call: Callable[..., Any], more: int) -> Callable[..., Any]:
    """`call` of a tap that is called with `more` arguments than (module, args); with fewer it does nothing."""

    @wraps(call)
    def called(tap: Tap, module: Module, args: Tree, *rest: Any) -> Any:
        return call(tap, module, args, *rest) if len(rest) == more else None

    return called


order_numbers = itertools.count(1)
"""The next number that a tap gets when it is placed; see `put_in_order`."""


def put_in_order(tap: Tap) -> None:
    """Gives a tap that is being placed its number within its rank: the last, or the first if prepended."""
    number = next(order_numbers)
    tap.order = -number if tap.prepended else number


def backwards_in_order(tap: Tap) -> tuple[bool, int]:
    """A key among taps of one rank, for frameworks that lead tensors through an identity for each tap.

    A gradient comes to the last identity first, so taps on gradients stand in the opposite order: what shall see
    it first comes last.
    """
    if tap.rank in (Rank.ORIGINAL, Rank.GRADIENT):
        return tap.first_in_backward, -tap.order
    return False, tap.order


class FunctionTap(Tap):
    """A tap that calls a function."""

    whole_calls_only = False  # it looks itself
    count = 0
    """With how many arguments calls of a module come to it at least; set where it is placed on one."""

    def __init__(
        self,
        fn: Callable[..., Any],
        label: Label,
        *,
        after: bool = True,
        kwargs: bool = True,
        rank: Rank = Rank.OBSERVE,
        needs: Needs | None = None,
    ) -> None:
        self.fn = fn
        self.label, self.after, self.kwargs, self.rank = label, after, kwargs, rank
        if needs is not None:
            self.needs = needs

    def __call__(self, *args: Any) -> Any:
        if len(args) < self.count:
            return None  # see `whole_calls_only`
        if self.after or not self.kwargs:
            return self.fn(*args)
        return following(self.fn, *args)


class Inert:
    """What a copy has in place of a tap: called, it takes itself out of the copy's forward hooks.

    One that `stays` does not: after a forward that raised, torch goes through the hooks themselves, and
    fails where one goes meanwhile.
    """

    def __init__(self, *, stays: bool = False) -> None:
        self.stays = stays

    def __call__(self, module: Module, *rest: Any) -> None:
        if self.stays:
            return
        for name, hooks in list(vars(module).items()):
            if name.startswith("_forward") and isinstance(hooks, dict):
                for number in [number for number, hook in list(hooks.items()) if hook is self]:
                    hooks.pop(number, None)

    def __reduce__(self) -> Any:
        return _inert_pickle()


def _inert_pickle() -> Any:
    # nullcontext().__exit__ takes anything and returns None.
    return getattr, (nullcontext(), "__exit__")


class Placement(NamedTuple):
    """A tap to place, and on which module."""

    module: Any
    tap: Tap


quick_placement: Callable[[tuple[Any, Any]], Placement] = partial(tuple.__new__, Placement)
"""Placement(*these), without a frame of Python: there is one for every module."""


Undo = Callable[[], None]
"""Takes back what was done; a second time does nothing."""
