"""Events: what compiled code sends while it runs, and how taps are told of it.

A value in compiled code exists only when the code runs, long after its `__call__` was traced. So the code sends
what taps asked for by `jax.debug.callback`, and the taps are told later, on the thread of whoever waits
(`settled`), as if the call happened then. Callbacks come in no certain order; each carries the
number of its place in the code.
"""

from __future__ import annotations

import contextvars
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from hookline.alone import Alone
from hookline.backends.nnx.compat import outermost_trace, tracing
from hookline.backends.tap import Label
from hookline.backends.undoing import Filled, filled
from hookline.errors import HookError

_counting, _telling = Alone(), Alone()
numbers = itertools.count()
"""Numbers the places in traced code that send something."""


class _Programs(threading.local):
    """The program that this thread traced last."""

    number = -1
    trace: Callable[[], Any] = staticmethod(lambda: None)


_programs = _Programs()


def program() -> int:
    """The number of the program that is being traced now."""
    trace = outermost_trace()
    if _programs.trace() is not trace:
        _programs.trace, _programs.number = weakref.ref(trace), next(numbers)
    return _programs.number


@dataclass(slots=True)
class Event:
    """One sending: `mark` is its place in the code, `program` the code. A light one holds numbers only."""

    mark: int
    program: int
    tell: Callable[[list[Any]], None]
    values: list[Any] = field(default_factory=list)
    light: bool = False


class Queue:
    """Events on their way; callbacks put them in on threads of their own."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._heavy = 0  # how many of them are not light

    def put(self, event: Event) -> None:
        self._add(event)
        if len(self._events) > MANY and not self._heavy:
            with thread.in_callback():  # nobody waits in a compiled loop, and memory has an end
                self.tell(leaving=MANY // 2)

    @_counting
    def _add(self, event: Event) -> None:
        self._events.append(event)
        self._heavy += not event.light

    @_counting
    def _take(self, leaving: int) -> list[Event]:
        found = [self._events.popleft() for _ in range(len(self._events) - leaving)]
        self._heavy -= sum(not event.light for event in found)
        return found

    def __len__(self) -> int:
        return len(self._events)

    @_telling
    def tell(self, leaving: int = 0) -> None:
        """Tells the taps of every event that has come, but for the last ones if some are to be left.

        The first error of a tap is raised at the end.
        """
        with thread.busy():
            error: BaseException | None = None
            for event in in_order(self._take(leaving)):
                try:
                    # A context in which no block was opened: its events are for every open block.
                    contextvars.Context().run(event.tell, event.values)
                except BaseException as raised:
                    error = error or raised
            if error is not None:
                raise error


def in_order(events: Iterable[Event]) -> list[Event]:
    """Events in the order of the code that sent them.

    They come nearly in that order. Within a stretch of one program in which no place sends twice, that is one run
    of the code or of the body of a loop, they are sorted.
    """
    result: list[Event] = []
    stretch: dict[int, Event] = {}
    latest = -1
    for event in events:
        if event.mark in stretch or event.program != latest:
            result += [stretch[mark] for mark in sorted(stretch)]
            stretch = {}
            latest = event.program
        stretch[event.mark] = event
    return result + [stretch[mark] for mark in sorted(stretch)]


class Failures:
    """What users' hooks raised in callbacks. JAX reports that as an error of its own and forgets the type."""

    def __init__(self) -> None:
        self._errors: deque[tuple[Label, HookError]] = deque(maxlen=100)

    def add(self, label: Label, error: HookError) -> None:
        self._errors.append((label, error))

    def raised(self, labels: Iterable[Label] | None = None) -> None:
        """Raises the first error of the hooks with these labels, or of any; none of them is raised again."""
        mine = None if labels is None else set(map(id, labels))
        found = [error for label, error in self._errors if mine is None or id(label) in mine]
        kept = [one for one in self._errors if one[1] not in found]
        self._errors.clear()
        self._errors.extend(kept)
        if found:
            raise found[0]


MANY = 4096
"""Events that wait to be told before they are told from a callback."""


class _Thread(threading.local):
    """What this thread is doing."""

    telling = False
    running = False

    def busy(self) -> Filled:
        """A block in which taps are told; these can't wait for events themselves."""
        return self._with("telling")

    def in_callback(self) -> Filled:
        """A block that a running program has called: nobody may wait in it, and no module may change its class."""
        return self._with("running")

    def _with(self, name: str) -> Filled:
        def fill(stack: ExitStack) -> None:
            stack.callback(setattr, self, name, getattr(self, name))
            setattr(self, name, True)

        return filled(fill)


thread = _Thread()
queue = Queue()
failures = Failures()
later: deque[Callable[[], None]] = deque()
"""What could not be done in a callback."""


def send(
    mark: int,
    program: int,
    tell: Callable[[list[Any]], None],
    arrays: list[Any],
    reducers: list[Callable[[Any], Any] | None] | None = None,
    *,
    light: bool = False,
) -> None:
    """Has the code that is traced now put an event into the queue whenever it runs.

    `reducers` are for the first of the arrays: what makes something smaller of it when it arrives, if not None.
    """
    made = [*(reducers or ()), *[None] * (len(arrays) - len(reducers or ()))]

    def put(*values: Any) -> None:
        # Copies: the memory belongs to the program that runs.
        kept = [
            np.array(value) if reduce is None else reduce(np.asarray(value))
            for reduce, value in zip(made, values, strict=True)
        ]
        queue.put(Event(mark, program, tell, kept, light))

    call_back(put, arrays)


def call_back(fn: Callable[..., None], arrays: list[Any]) -> None:
    """Has the code that is traced now call `fn` with these arrays whenever it runs; under vmap, once an example.

    JAX's own callback sends the examples of a batch one by one, in no certain order, and sends again where a
    forward is repeated for its backward. Here a batch comes as one, and a repetition sends nothing: what sends is
    no part of any derivative.
    """
    _sender(fn, ())(*(lax.stop_gradient(jnp.asarray(array)) for array in arrays))


def _sender(fn: Callable[..., None], sizes: tuple[int, ...]) -> Callable[..., Any]:
    """What sends arrays that have these batch dimensions in front, the innermost vmap first."""

    def each(*values: Any) -> None:
        if not sizes:
            fn(*values)
            return
        rows = [np.asarray(value).reshape(-1, *np.shape(value)[len(sizes) :]) for value in values]
        for example in zip(*rows, strict=True):
            fn(*example)

    @custom_vmap  # type: ignore[untyped-decorator]
    def sender(*arrays: Any) -> Any:
        jax.debug.callback(each, *arrays)
        return jnp.int32(0)

    @sender.def_vmap  # type: ignore[untyped-decorator]
    def batch(size: int, batched: list[bool], *arrays: Any) -> Any:
        whole = [
            array if has else jnp.broadcast_to(array, (size, *array.shape))
            for array, has in zip(arrays, batched, strict=True)
        ]
        _sender(fn, (*sizes, size))(*whole)
        return jnp.zeros(size, jnp.int32), True

    return sender  # type: ignore[no-any-return]


def settled() -> None:
    """Waits for everything that compiled code sends, and tells the taps."""
    if tracing() or thread.telling or thread.running:
        return
    try:
        jax.effects_barrier()
    except Exception:
        failures.raised()  # the hook's own error, in place of JAX's report of it
        raise
    queue.tell()
    while later:
        later.popleft()()
