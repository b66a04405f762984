"""Replacing: a hook's result is checked before it takes the place of what the hook saw."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from hookline.backends.nouns import Module, Tree
from hookline.backends.protocol import Backend, Label
from hookline.errors import HookError, HooklineError, WrongReplacement
from hookline.trees import ONE, filled, mismatch, slotted, unfilled


def call_hook(site: str, kind: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """fn(*args, **kwargs); an exception in it is raised as a HookError that names the site."""
    try:
        return fn(*args, **kwargs)
    except HooklineError:
        raise  # it has its site already
    except Exception as error:
        raise hook_error(site, kind, fn, error) from error


def hook_error(site: str, kind: str, fn: Callable[..., Any], error: Exception) -> HookError:
    """The HookError for an exception in `fn`."""
    name = getattr(fn, "__qualname__", type(fn).__name__)
    return HookError(site, kind, f"({name}) raised {type(error).__name__}: {error}")


def checked(backend: Backend, new: Any, old: Any, site: str, kind: str) -> Any:
    """`new`, if it can stand in for `old`; WrongReplacement if not."""
    if new is not old and (reason := mismatch(new, old, backend.tensor, backend.unlike)):
        raise _irreplaceable(site, kind, reason)
    return new


def _irreplaceable(site: str, kind: str, reason: str) -> WrongReplacement:
    return WrongReplacement(site, kind, f"returned a value that can't replace what was there: {reason}")


def checked_arguments(
    backend: Backend, module: Module, new: tuple[Any, Any], old: tuple[Any, Any], site: str, kind: str
) -> tuple[Any, Any]:
    """`new`, a pair (args, kwargs), if the module can be called with it in place of `old`.

    An argument that stays must fit as anywhere. Others may come and go, as far as the forward takes that.
    """
    if not mismatch(new, old, backend.tensor, backend.unlike):
        return new
    if not (isinstance(new, tuple) and len(new) == 2 and type(new[0]) is tuple and isinstance(new[1], dict)):
        reason = f"expected a pair (args, kwargs) of a tuple and a dict, got {_described(new)}"
    else:
        places, names = min(len(new[0]), len(old[0])), [name for name in old[1] if name in new[1]]
        there, before = ((args[:places], {name: kwargs[name] for name in names}) for args, kwargs in (new, old))
        reason = mismatch(there, before, backend.tensor, backend.unlike) or not_taken(backend, module, *new)
    if reason:
        raise _irreplaceable(site, kind, reason)
    return new


def checked_positional(
    backend: Backend, module: Module, new: tuple[Any, ...], old: tuple[Any, ...], site: str, kind: str
) -> tuple[Any, ...]:
    """The arguments `new` if they can stand in for `old`; there may be more of them, if the forward takes that.

    Not fewer: a hook that returns one of several has most likely forgotten the others.
    """
    if len(new) <= len(old) or type(new) is not tuple:
        return checked(backend, new, old, site, kind)  # type: ignore[no-any-return]
    checked(backend, new[: len(old)], old, site, kind)
    if reason := not_taken(backend, module, new):
        raise _irreplaceable(site, kind, reason)
    return new


def not_taken(backend: Backend, module: Module, args: Tree, kwargs: Any = None) -> str:
    """Why the module's forward can't be called with these arguments; empty if it can.

    Where `kwargs` is None, they are not known.
    """
    callee = backend.callee(module)
    try:
        # Not that of what it wraps: a wrapper may take more, and it is the one that is called.
        signature = inspect.signature(callee, follow_wrapped=False)
    except (ValueError, TypeError):  # some C functions tell nothing about themselves
        return ""
    try:
        signature.bind_partial(*args) if kwargs is None else signature.bind(*args, **kwargs)
    except TypeError as error:
        name = f"{type(module).__name__}.{backend.forward_name}{signature}"
        return f"{name} can't be called like that: {error}"
    return ""


def _described(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {', '.join(type(part).__name__ for part in value) or 'nothing'}"
    return f"a {type(value).__name__}"


def as_arguments(new: Any) -> tuple[Any, ...]:
    """What a pre-hook returned, as a tuple of arguments: a single value stands for one argument."""
    return new if isinstance(new, tuple) else (new,)


class GradientStructure:
    """The gradients of one structure, shown to a hook in that structure and taken back from it."""

    __slots__ = ("_backend", "_kind", "_single", "_site", "_template", "_tuple", "places")

    def __init__(self, backend: Backend, tree: Tree, site: str, kind: str, *, wrap: bool) -> None:
        self._backend = backend
        self._site = site
        self._kind = kind
        inner = tree[0] if type(tree) is tuple and len(tree) == 1 else tree
        self._single = type(inner) is backend.tensor  # most calls of most models
        self._template: Any
        self._template, self.places = (ONE, 1) if self._single else slotted(tree, backend.tensor)
        self._tuple = inner is not tree if self._single else False
        if wrap and not isinstance(tree, tuple):
            self._template, self._tuple = (self._template,), self._single
        elif self._tuple:
            self._template = (ONE,)

    def shown(self, grads: list[Any] | dict[int, Any]) -> Any:
        """The gradients in the structure; a tuple of one where the module returned no tuple."""
        if self._single:
            only = grads.get(0) if isinstance(grads, dict) else grads[0]
            return (only,) if self._tuple else only
        values = grads if isinstance(grads, dict) else dict(enumerate(grads))
        return filled(self._template, values)

    def taken(self, new: Any, grads: list[Any]) -> list[Any] | None:
        """The gradients to go on with, given what a hook returned; None where nothing changes."""
        if new is None:
            return None
        if isinstance(self._template, tuple) and len(self._template) == 1 and not isinstance(new, tuple):
            new = (new,)
        try:
            values = unfilled(self._template, new)
        except ValueError as error:
            raise WrongReplacement(self._site, self._kind, f"returned a wrong structure: {error}") from None
        result = list(grads)
        for number, value in values.items():
            if value is None or value is grads[number]:
                continue
            if grads[number] is None:
                reason = "there is no gradient at this place"
            elif not isinstance(value, self._backend.tensor):
                reason = f"expected a gradient, got a {type(value).__name__}"
            else:
                reason = self._backend.unlike(value, grads[number])
            if reason:
                raise WrongReplacement(self._site, self._kind, f"returned a gradient that can't be used: {reason}")
            result[number] = value
        return result


class StructureCache:
    """Makes the GradientStructure of a site's calls; those of a single tensor are the same for every call."""

    def __init__(self, backend: Backend, label: Label, *, wrap: bool) -> None:
        self._make = partial(GradientStructure, backend, site=label.site, kind=label.kind, wrap=wrap)
        self._tensor = backend.tensor
        self._bare: GradientStructure | None = None
        self._in_tuple: GradientStructure | None = None

    def of(self, tree: Tree) -> GradientStructure:
        """The GradientStructure for a structure like `tree`."""
        if type(tree) is self._tensor:
            if self._bare is None:
                self._bare = self._make(tree)
            return self._bare
        if type(tree) is tuple and len(tree) == 1 and type(tree[0]) is self._tensor:
            if self._in_tuple is None:
                self._in_tuple = self._make(tree)
            return self._in_tuple
        return self._make(tree)
