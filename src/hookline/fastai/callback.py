"""HookCallback: fastai's, in a fastai Learner and in any other loop.

Same name, arguments and results as fastai's. It needs no fastai: a Learner takes any object that has a
`name` and an `order` and is called with the names of events. In a plain loop a stand-in for the Learner
calls it, so that a subclass works in both.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self

from hookline.backends import resolve
from hookline.backends.nouns import Model
from hookline.backends.undoing import Undoing
from hookline.errors import InvalidArgument
from hookline.fastai.hooks import Hooks
from hookline.fastai.learner import signals
from hookline.fastai.loop import Loop
from hookline.guard import ErrorGuard
from hookline.schedule import every as every_so_many


class HookCallback:
    """Has `hook(module, input, output)` called on `modules` during training; `hooks.stored` are its results.

    `hook` comes by a subclass or as an argument. `modules` are by default those that have parameters of
    their own; with `include_paramless` also those without parts, such as activations. With `every`, they are
    hooked in one training batch out of so many only. `is_forward`, `detach` and `cpu` are those of `Hooks`.
    Hooks go when training ends, unless `remove_end` is False, and when it raises.

    In fastai: `Learner(..., cbs=HookCallback(hook=f))`. Anywhere else, where a batch is what happens up to
    an optimizer step:

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with HookCallback(hook=lambda module, input, output: output.shape).attach(model) as callback:
    ...     model(torch.ones(5, 3)).sum().backward()
    ...     _ = optimizer.step()
    >>> callback.hooks.stored
    [torch.Size([5, 2])]
    """

    order = -20
    """Before fastai's TrainEvalCallback (-10), which counts `train_iter` on when a batch ends."""
    run = True
    """fastai's switch: False until the end of a fit leaves a callback out of it."""
    learn: Any = None
    hooks: Hooks | None = None
    _reduces = False  # whether what the hook returns is small, so that moving it beats moving its input

    def __init__(
        self,
        modules: Iterable[Any] | None = None,
        every: int | None = None,
        remove_end: bool = True,
        is_forward: bool = True,
        detach: bool = True,
        cpu: bool = True,
        include_paramless: bool = False,
        hook: Callable[[Any, Any, Any], Any] | None = None,
    ) -> None:
        if every is not None:
            every_so_many(every)  # raises where it is no number of batches
        self.modules = None if modules is None else list(modules)
        self.every, self.remove_end = every, remove_end
        self.is_forward, self.detach, self.cpu = is_forward, detach, cpu
        self.include_paramless = include_paramless
        if hook is not None:
            self.hook = hook  # type: ignore[assignment, method-assign]
        elif type(self).hook is HookCallback.hook:
            raise InvalidArgument(
                f"{type(self).__name__} has no hook: give hook=function, or define hook(self, m, i, o) "
                "in a subclass."
            )
        self._guard: ErrorGuard | None = None
        self._block = Undoing()

    def hook(self, m: Any, i: Any, o: Any) -> Any:
        """What to keep of a call of module `m` with input `i` and output `o`, or of their gradients."""
        raise NotImplementedError

    # The events of a fit

    def before_fit(self) -> None:
        """Hooks the modules."""
        if self.modules is None:
            self.modules = layers_of(self.model, include_paramless=self.include_paramless)
        self._remove()
        if self.every is None:
            self._register()

    def before_batch(self) -> None:
        """Hooks the modules for this batch, if it is one of `every` so many."""
        if self.every is not None and self._wanted():
            self._register()

    def after_batch(self) -> None:
        """Takes the hooks of this batch off again."""
        if self.every is not None and self._wanted():
            self._remove()

    def after_fit(self) -> None:
        """Takes the hooks off."""
        if self.remove_end or self.every is not None:
            self._remove()

    def _wanted(self) -> bool:
        return bool(self.training) and (self.every is None or self.train_iter % self.every == 0)

    def _register(self) -> None:
        self._remove()
        cpu = self.cpu and not self._reduces
        self.hooks = Hooks(self.modules or [], self._hook(), self.is_forward, self.detach, cpu)

    def _hook(self) -> Callable[[Any, Any, Any], Any]:
        """A function that calls `hook` and does not hold this callback, which holds the hooks."""
        held = weakref.ref(self)

        def hook(m: Any, i: Any, o: Any) -> Any:
            return None if (callback := held()) is None else callback.hook(m, i, o)

        return hook

    def _remove(self) -> None:
        if self.hooks is not None:
            self.hooks.remove()

    # In a plain loop

    def attach(self, model: Model) -> Self:
        """This callback, to be used in a `with` statement around a loop that trains `model`."""
        self.learn = Loop(model, self)
        return self

    def __enter__(self) -> Self:
        if not isinstance(self.learn, Loop):
            raise InvalidArgument(
                f"{type(self).__name__} is not attached: expected `with callback.attach(model):`, "
                "or `Learner(..., cbs=callback)` in fastai."
            )
        try:
            self._block.push(self._leave)
            self._block.push(self._leave)
            self.learn.begin()
            return self
        except BaseException:
            self._block.pop_all()
            self.learn.stop()
            self._remove()
            raise

    if TYPE_CHECKING:

        def __exit__(self, *error: Any) -> None: ...

    else:  # the stack's own: no line of ours that an interrupt could cut short comes before it
        __exit__ = property(attrgetter("_block.__exit__"))

    def _leave(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.learn.end(failed=error is not None)
        if error is not None:
            self._remove()

    # What a Learner wants of a callback

    def __call__(self, event: str) -> None:
        """Runs the method of that event, if there is one."""
        if event == "before_fit" and not isinstance(self.learn, Loop):
            self._guarded()
        if self.run and (method := getattr(type(self), event, None)) is not None:
            method(self)
        if event == "after_fit":
            self.run = True
            if self._guard is not None:
                self._guard.remove()
                self._guard = None

    @property
    def name(self) -> str:
        """What it is called in a Learner: `activation_stats` for ActivationStats."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__.removesuffix("Callback")).lower() or "callback"

    def _guarded(self) -> None:
        # A Learner tells its callbacks of its own Cancel...Exceptions and of no other.
        if self._guard is not None:
            self._guard.remove()
        self._guard = ErrorGuard(self.learn, "_with_events", self._failed, signals())

    def _failed(self) -> None:
        self._remove()
        if self._guard is not None:
            self._guard.remove()
            self._guard = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.learn is None:
            raise AttributeError(
                f"{type(self).__name__} has no {name!r}; outside of a training there is no learner to ask."
            )
        return getattr(self.learn, name)

    def __getstate__(self) -> dict[str, Any]:
        # A copy, or a Learner that is exported, has neither live hooks nor a guard.
        return vars(self) | {"hooks": None, "_guard": None, "_block": Undoing()}

    def __repr__(self) -> str:
        return type(self).__name__


def layers_of(model: Model, *, include_paramless: bool = False) -> list[Any]:
    """The modules of a model that have parameters of their own, each once, in order of definition.

    With `include_paramless` also those that have no parts.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.BatchNorm1d(2))
    >>> layers_of(model)
    [Linear(in_features=2, out_features=2, bias=True), BatchNorm1d(2, ...)]
    >>> len(layers_of(model, include_paramless=True))
    3
    """
    backend = resolve(model)
    each = {id(module): module for _, module in backend.named_modules(model)}
    return [
        module
        for module in each.values()
        if backend.own_parameters(module)
        or getattr(module, "weight", None) is not None
        or (include_paramless and not backend.children(module))
    ]
