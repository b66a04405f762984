"""Taps: what a watch puts on the modules of a step that is recorded."""

from __future__ import annotations

import warnings
from functools import partial
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from hookline.backends.protocol import FunctionTap, Label, Needs, Tap, Wish
from hookline.backends.tap import GONE
from hookline.hooks.pending import Pending, call_number
from hookline.hooks.select import Place
from hookline.hooks.session import opened
from hookline.trees import leaves
from hookline.watching.steps import Key

if TYPE_CHECKING:
    from hookline.watching.watch import Watch


class OutputWatcher(Tap):
    """Reduces the outputs of one site and, where asked, the gradients of these."""

    kwargs = False

    def __init__(self, watch: Watch, place: Place, label: Label) -> None:
        self.watch, self.place, self.label = watch, place, label
        self.calls = 0
        self.broken = False
        self.needs = Needs(inputs=False, replaces=False, grads=watch.grads, statistics=watch.gathered.statistics)

    def wishes(self) -> list[Wish]:
        return [Wish(self.place.module, self)]

    def __call__(self, module: Any, args: Any, output: Any) -> Any:
        references = getrefcount(output)
        if not self.belongs_here():
            return None
        repeated = self.watch.backend.in_recompute()
        call = self.next_call(repeated)
        if not repeated:
            self.reduce(Key(self.place.name, "output", call, self.watch.mode), output)
        if not self.watch.grads:
            return None
        key = Key(self.place.name, "grad_output", call, self.watch.mode)
        new = self.watch.backend.heard(output, partial(self.hear, key), call_number(module, args), references)
        return None if new is output else new

    def belongs_here(self) -> bool:
        mine = opened()
        return not self.broken and (not mine or self.watch.session.number in mine)

    def next_call(self, repeated: bool) -> int:
        """The number of this call within the forward; a recomputation repeats earlier numbers."""
        if repeated:
            return max(self.calls - 1, 0)
        self.calls += 1
        return self.calls - 1

    def hear(self, key: Key, numbers: list[int], grad: Any) -> None:
        if self.watch.is_open:
            self.reduce(key, grad, scaled=True)

    def reduce(self, key: Key, tree: Any, *, scaled: bool = False) -> None:
        """Adds the statistics of every tensor in `tree`; a failure is reported once and ends this site's."""
        try:
            for leaf in leaves(tree, self.watch.backend.tensor):
                self.watch.gathered.add(key, self.watch.unscaled(leaf) if scaled else leaf)
        except Exception as error:  # whatever it is, training goes on
            self.broken = True
            warnings.warn(
                f"watching {key.site!r} ({key.kind}) failed and stops: {type(error).__name__}: {error}",
                stacklevel=2,
            )


class FullWatcher(OutputWatcher):
    """Reduces inputs as well, and the gradients of these."""

    kwargs = True

    def __init__(self, watch: Watch, place: Place, label: Label) -> None:
        super().__init__(watch, place, label)
        self.pending = Pending()
        self.memory = watch.backend.site_memory(place.module)
        self.needs = self.needs._replace(inputs=True)
        # One for all steps: taps that are known already need no new program where one is compiled.
        self.entrance = FunctionTap(self.before, label, after=False, needs=self.needs)

    def wishes(self) -> list[Wish]:
        return [Wish(self.place.module, self.entrance), Wish(self.place.module, self)]

    def before(self, module: Any, args: Any, kwargs: Any) -> Any:
        if not self.belongs_here():
            return None
        watch = self.watch
        repeated = watch.backend.in_recompute()
        call = self.next_call(repeated)
        key = Key(self.place.name, "input", call, watch.mode)
        if not repeated:
            self.reduce(key, (args, kwargs))
        listener, new_args, new_kwargs = None, args, kwargs
        if watch.grads:
            listener = watch.backend.listener(
                partial(self.hear, key._replace(kind="grad_input")),
                partial(self.hear, key._replace(kind="grad_output")),
                self.memory,
            )
            new_args, new_kwargs = listener.enter(args, kwargs)
        self.pending.put(new_kwargs, (None if repeated else key, listener))
        return None if new_args is args and new_kwargs is kwargs else (new_args, new_kwargs)

    whole_calls_only = False  # it looks itself: a wrapper would count as somebody who has the output

    def __call__(self, module: Any, args: Any, kwargs: Any, output: Any = GONE) -> Any:  # type: ignore[override]
        references = getrefcount(output)
        if output is GONE or (entry := self.pending.take(kwargs)) is None:
            return None
        key, listener = entry
        if key is not None:
            self.reduce(key._replace(kind="output"), output)
        if listener is None:
            return None
        new = listener.leave(output, call_number(module, args), references)
        return None if new is output else new
