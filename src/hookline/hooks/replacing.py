"""Replacing: a hook's result is checked before it takes the place of what the hook saw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hookline.backends.protocol import Backend
from hookline.errors import HookError, HooklineError, WrongReplacement
from hookline.trees import filled, mismatch, slotted, unfilled


def called(site: str, kind: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """fn(*args, **kwargs); an exception in it is raised as a HookError that names the site."""
    try:
        return fn(*args, **kwargs)
    except Exception as error:
        raise hook_error(site, kind, fn, error) from error


def hook_error(site: str, kind: str, fn: Callable[..., Any], error: Exception) -> Exception:
    """The HookError for an exception in `fn`; an error of hookline's own passes as it is."""
    if isinstance(error, HooklineError):
        return error
    name = getattr(fn, "__qualname__", type(fn).__name__)
    return HookError(site, kind, f"({name}) raised {type(error).__name__}: {error}")


def checked(backend: Backend, new: Any, old: Any, site: str, kind: str) -> Any:
    """`new`, if it can stand in for `old`; WrongReplacement if not."""
    if new is not old and (reason := mismatch(new, old, backend.tensor, backend.unlike)):
        raise WrongReplacement(site, kind, f"returned a value that can't replace what was there: {reason}")
    return new


def as_arguments(new: Any) -> tuple[Any, ...]:
    """What a pre-hook returned, as a tuple of arguments: a single value stands for one argument."""
    return new if isinstance(new, tuple) else (new,)


class Gradients:
    """The gradients of one structure, shown to a hook in that structure and taken back from it."""

    __slots__ = ("_backend", "_kind", "_site", "_template", "wrapped")

    def __init__(self, backend: Backend, tree: Any, site: str, kind: str, *, wrap: bool) -> None:
        self._backend = backend
        self._site = site
        self._kind = kind
        self._template = slotted(tree, backend.tensor)[0]
        self.wrapped = wrap and not isinstance(tree, tuple)

    def shown(self, grads: list[Any] | dict[int, Any]) -> Any:
        """The gradients in the structure; a tuple of one where the module returned no tuple."""
        values = grads if isinstance(grads, dict) else dict(enumerate(grads))
        tree = filled(self._template, values)
        return (tree,) if self.wrapped else tree

    def taken(self, new: Any, grads: list[Any]) -> list[Any] | None:
        """The gradients to go on with, given what a hook returned; None where nothing changes."""
        if new is None:
            return None
        if self.wrapped:
            new = new[0] if isinstance(new, tuple) and len(new) == 1 else new
        elif isinstance(self._template, tuple) and not isinstance(new, tuple) and len(self._template) == 1:
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
                reason = f"a gradient is wanted, a {type(value).__name__} came"
            else:
                reason = self._backend.unlike(value, grads[number])
            if reason:
                raise WrongReplacement(self._site, self._kind, f"returned a gradient that can't be used: {reason}")
            result[number] = value
        return result
