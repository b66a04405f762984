"""register: the five primitives, each with one Handle for everything it attached.

Upstream: select (where), a backend. The hooks' signatures are those of PyTorch and MindSpore.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from hookline.backends import resolve
from hookline.backends.nouns import Model
from hookline.backends.protocol import Backend, Label, Placement, Rank, Tap
from hookline.backends.quick import Called, quickly_called
from hookline.errors import HooklineError
from hookline.hooks.gradients import InputGradients, OutputGradients
from hookline.hooks.handles import Handle, attached
from hookline.hooks.placing import callers_line, needs_callable
from hookline.hooks.replacing import as_arguments, checked, checked_arguments, checked_positional, hook_error
from hookline.hooks.select import ModuleTree, Target, select

Hook = Callable[..., Any]


def register_forward_pre_hook(
    model: Model, hook: Hook, where: Any = None, *, prepend: bool = False, with_kwargs: bool = False
) -> Handle:
    """A Handle; `hook(module, args)` runs before each forward and may return other arguments.

    With `with_kwargs` it is `hook(module, args, kwargs)` and returns (args, kwargs). Arguments that stay keep
    their structure, shape and type. Further ones may be added where the forward takes them, and with
    `with_kwargs` some may be left out. With `prepend` it runs before the hooks that are there already.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> with register_forward_pre_hook(model, lambda module, args: (args[0] * 0,)):
    ...     model(torch.ones(1, 2)).item()
    0.0
    """
    name = "register_forward_pre_hook"
    needs_callable(name, "hook", hook, 3 if with_kwargs else 2)
    kind = PreHookWithKwargs if with_kwargs else PreHook
    needs = ["forward_pre", *["kwargs"] * with_kwargs]
    return _place(model, where, name, "forward pre-hook", needs, partial(_one_tap, kind, hook), prepend)


def register_forward_hook(
    model: Model,
    hook: Hook,
    where: Any = None,
    *,
    prepend: bool = False,
    with_kwargs: bool = False,
    always_call: bool = False,
) -> Handle:
    """A Handle; `hook(module, args, output)` runs after each forward and may return another output.

    With `with_kwargs` it is `hook(module, args, kwargs, output)`. With `prepend` it runs before the hooks that
    are there already. With `always_call` it runs also where the call raises, a hook of it included: `output` is
    then None, or as far as it got. What the hook returns then is dropped, and what it raises becomes a warning.
    Compiled code does not run it then.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    >>> handle = register_forward_hook(model, lambda m, args, out: print(tuple(out.shape)), where="*")
    >>> _ = model(torch.ones(1, 2)); handle.remove()
    (1, 3)
    (1, 3)
    """
    name = "register_forward_hook"
    needs_callable(name, "hook", hook, 4 if with_kwargs else 3)
    kind = PostHookWithKwargs if with_kwargs else PostHook
    needs = ["forward", *["kwargs"] * with_kwargs, *["always_call"] * always_call]
    placements = partial(_one_tap, kind, hook, always_call=always_call)
    return _place(model, where, name, "forward hook", needs, placements, prepend)


def register_backward_pre_hook(model: Model, hook: Hook, where: Any = None, *, prepend: bool = False) -> Handle:
    """A Handle; `hook(module, grad_output)` runs before the module's backward and may return another.

    `grad_output` is a tuple: along the output if that is one, else with the output's gradient in it.
    With `prepend` it runs before hookline's backward pre-hooks that are there already.
    """
    name = "register_backward_pre_hook"
    needs_callable(name, "hook", hook, 2)

    def placements(backend: Backend, target: Target, label: Label) -> list[Placement]:
        return OutputGradients(backend, target, label, hook).placements()

    return _place(model, where, name, "backward pre-hook", ["backward_pre"], placements, prepend)


def register_backward_hook(
    model: Model, hook: Hook, where: Any = None, *, prepend: bool = False, original: bool = False
) -> Handle:
    """A Handle; `hook(module, grad_input, grad_output)` runs after the module's backward.

    `grad_input` is a tuple along the positional arguments; the hook may return another one.
    `grad_output` belongs to the value that leaves the module, after all forward hooks; with
    `original`, to the value that the module itself returned, before them. With `prepend` it runs before
    hookline's backward hooks that are there already.
    """
    name = "register_backward_hook"
    needs_callable(name, "hook", hook, 3)

    def placements(backend: Backend, target: Target, label: Label) -> list[Placement]:
        return InputGradients(backend, target, label, hook).placements(original=original)

    needs = ["backward", *["original"] * original]
    return _place(model, where, name, "backward hook", needs, placements, prepend)


def installed(model: Model) -> list[Label]:
    """Everything of hookline that sits on this model: owner, kind, site and where it was placed.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.ReLU())
    >>> with register_forward_hook(model, lambda m, a, o: None, "0"):
    ...     [(label.owner, label.kind, label.site) for label in installed(model)]
    [('register_forward_hook', 'forward hook', '0')]
    """
    return [label for label in resolve(model).placed(model) if label.owner]


def _one_tap(
    kind: type[HookTap], hook: Hook, backend: Backend, target: Target, label: Label, *, always_call: bool = False
) -> list[Placement]:
    tap = kind(hook, backend, label)
    tap.always_called = always_call
    return [Placement(target.module, tap)]


def _place(
    model: Model,
    where: Any,
    owner: str,
    kind: str,
    needs: list[str],
    placements: Callable[[Backend, Target, Label], list[Placement]],
    prepend: bool,
) -> Handle:
    backend = resolve(model)
    for feature in needs:
        backend.framework.need(feature)
    targets = select(ModuleTree(backend.named_modules(model)), where)
    line = callers_line()
    all_of_them = [
        placement
        for target in targets
        for placement in placements(backend, target, Label(owner, kind, target.name, line))
    ]
    for placement in all_of_them:
        placement.tap.prepended = prepend
    return attached(backend.attach, all_of_them)


class HookTap(Called, Tap):
    """A user's hook on a module; its errors carry the site, its results are checked.

    `Called` calls the hook, and comes here with what it raises and with what it returns other than None.
    """

    rank = Rank.EDIT
    whole_calls_only = False  # `count` tells

    def __init__(self, hook: Hook, backend: Backend, label: Label) -> None:
        self.hook, self.backend, self.label = backend.hooked(hook, label), backend, label
        self.count = 2 + self.kwargs + self.after

    def call_anyhow(self, *told: Any) -> Any:
        """What a call of the tap gives."""
        if len(told) < self.count:
            return None  # see `whole_calls_only`
        try:
            new = self.hook(*told)
        except Exception as error:
            return self.call_failed(error)
        return None if new is None else self.call_replaced(new, told)

    def call_failed(self, error: Exception) -> NoReturn:
        """The hook has raised `error`."""
        if isinstance(error, HooklineError):
            raise error
        raise hook_error(self.label.site, self.label.kind, self.hook, error) from error

    def call_replaced(self, new: Any, told: tuple[Any, ...]) -> Any:
        """What goes on in place of what the tap was `told`: `new`, if it can stand for it."""
        raise NotImplementedError


@quickly_called
class PreHook(HookTap):
    after = False
    kwargs = False

    def call_replaced(self, new: Any, told: tuple[Any, ...]) -> Any:
        module, args = told
        return checked_positional(self.backend, module, as_arguments(new), args, self.label.site, self.label.kind)


@quickly_called
class PreHookWithKwargs(HookTap):
    after = False

    def call_replaced(self, new: Any, told: tuple[Any, ...]) -> Any:
        module, *both = told
        return checked_arguments(self.backend, module, new, tuple(both), self.label.site, self.label.kind)


class _PostHookTap(HookTap):
    def call_replaced(self, new: Any, told: tuple[Any, ...]) -> Any:
        output = told[-1]
        if output is None and self.always_called:
            return new  # the forward has raised, and there is nothing to replace
        return checked(self.backend, new, output, self.label.site, self.label.kind)


@quickly_called
class PostHook(_PostHookTap):
    kwargs = False


@quickly_called
class PostHookWithKwargs(_PostHookTap):
    """The same for a hook that takes kwargs."""
