"""register: the five primitives, each with one Handle for everything it attached.

Upstream: select (where), a backend. The hooks' signatures are those of PyTorch and MindSpore.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hookline.backends import resolve
from hookline.backends.protocol import Backend, Label, Rank, Wish
from hookline.hooks.gradients import InputGradients, OutputGradients
from hookline.hooks.handles import Handle, all_or_nothing
from hookline.hooks.placing import callers_line, needs_callable
from hookline.hooks.replacing import as_arguments, checked, hook_error
from hookline.hooks.select import Place, Tree, select

Hook = Callable[..., Any]


def register_forward_pre_hook(model: Any, hook: Hook, where: Any = None, *, with_kwargs: bool = False) -> Handle:
    """A Handle; `hook(module, args)` runs before each forward and may return other arguments.

    With `with_kwargs` it is `hook(module, args, kwargs)` and returns (args, kwargs).

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> with register_forward_pre_hook(model, lambda module, args: (args[0] * 0,)):
    ...     model(torch.ones(1, 2)).item()
    0.0
    """
    name = "register_forward_pre_hook"
    needs_callable(name, "hook", hook, 3 if with_kwargs else 2)
    run = _pre_with_kwargs if with_kwargs else _pre
    return _attach(model, where, name, "forward pre-hook", False, partial(run, hook), kwargs=with_kwargs)


def register_forward_hook(model: Any, hook: Hook, where: Any = None, *, with_kwargs: bool = False) -> Handle:
    """A Handle; `hook(module, args, output)` runs after each forward and may return another output.

    With `with_kwargs` it is `hook(module, args, kwargs, output)`.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    >>> handle = register_forward_hook(model, lambda m, args, out: print(tuple(out.shape)), where="*")
    >>> _ = model(torch.ones(1, 2)); handle.remove()
    (1, 3)
    (1, 3)
    """
    name = "register_forward_hook"
    needs_callable(name, "hook", hook, 4 if with_kwargs else 3)
    run = _post_with_kwargs if with_kwargs else _post
    return _attach(model, where, name, "forward hook", True, partial(run, hook), kwargs=with_kwargs)


def register_backward_pre_hook(model: Any, hook: Hook, where: Any = None) -> Handle:
    """A Handle; `hook(module, grad_output)` runs before the module's backward and may return another.

    `grad_output` is a tuple: along the output if that is one, else with the output's gradient in it.
    """
    name = "register_backward_pre_hook"
    needs_callable(name, "hook", hook, 2)

    def wishes(backend: Backend, place: Place, label: Label) -> list[Wish]:
        return OutputGradients(backend, place, label, hook).wishes()

    return _place(model, where, name, "backward pre-hook", wishes)


def register_backward_hook(model: Any, hook: Hook, where: Any = None, *, original: bool = False) -> Handle:
    """A Handle; `hook(module, grad_input, grad_output)` runs after the module's backward.

    `grad_input` is a tuple along the positional arguments; the hook may return another one.
    `grad_output` belongs to the value that leaves the module, after all forward hooks; with
    `original`, to the value that the module itself returned, before them.
    """
    name = "register_backward_hook"
    needs_callable(name, "hook", hook, 3)

    def wishes(backend: Backend, place: Place, label: Label) -> list[Wish]:
        return InputGradients(backend, place, label, hook).wishes(original=original)

    return _place(model, where, name, "backward hook", wishes)


def installed(model: Any) -> list[Label]:
    """Everything of hookline that sits on this model: owner, kind, site and where it was placed.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.ReLU())
    >>> with register_forward_hook(model, lambda m, a, o: None, "0"):
    ...     [(label.owner, label.kind, label.site) for label in installed(model)]
    [('register_forward_hook', 'forward hook', '0')]
    """
    return resolve(model).placed(model)


def _attach(
    model: Any, where: Any, owner: str, kind: str, after: bool, run: Callable[..., Any], *, kwargs: bool
) -> Handle:
    def wishes(backend: Backend, place: Place, label: Label) -> list[Wish]:
        fn = partial(run, backend, label.site)
        return [Wish(place.module, after, fn, label, Rank.EDIT, kwargs=kwargs)]

    return _place(model, where, owner, kind, wishes)


def _place(
    model: Any, where: Any, owner: str, kind: str, wishes: Callable[[Backend, Place, Label], list[Wish]]
) -> Handle:
    backend = resolve(model)
    places = select(Tree(backend.named_modules(model)), where)
    line = callers_line()
    all_wishes = [
        wish for place in places for wish in wishes(backend, place, Label(owner, kind, place.name, line))
    ]
    return all_or_nothing([partial(backend.place, all_wishes)])


# The four below run on every call of every hooked module: nothing is called that can be written out.


def _pre(hook: Hook, backend: Backend, site: str, module: Any, args: Any) -> Any:
    try:
        new = hook(module, args)
    except Exception as error:
        raise hook_error(site, "forward pre-hook", hook, error) from error
    return None if new is None else checked(backend, as_arguments(new), args, site, "forward pre-hook")


def _pre_with_kwargs(hook: Hook, backend: Backend, site: str, module: Any, args: Any, kwargs: Any) -> Any:
    try:
        new = hook(module, args, kwargs)
    except Exception as error:
        raise hook_error(site, "forward pre-hook", hook, error) from error
    return None if new is None else checked(backend, new, (args, kwargs), site, "forward pre-hook")


def _post(hook: Hook, backend: Backend, site: str, module: Any, args: Any, output: Any) -> Any:
    try:
        new = hook(module, args, output)
    except Exception as error:
        raise hook_error(site, "forward hook", hook, error) from error
    return None if new is None else checked(backend, new, output, site, "forward hook")


def _post_with_kwargs(
    hook: Hook, backend: Backend, site: str, module: Any, args: Any, kwargs: Any, output: Any
) -> Any:
    try:
        new = hook(module, args, kwargs, output)
    except Exception as error:
        raise hook_error(site, "forward hook", hook, error) from error
    return None if new is None else checked(backend, new, output, site, "forward hook")
