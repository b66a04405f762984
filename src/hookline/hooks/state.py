"""State: hooks on what a model saves and loads, through the same `where` and Handle."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hookline.backends import resolve
from hookline.backends.nouns import Model
from hookline.backends.protocol import Label
from hookline.backends.undoing import Undoing
from hookline.errors import WrongReplacement
from hookline.hooks.handles import Handle, attached
from hookline.hooks.placing import callers_line, needs_callable
from hookline.hooks.replacing import call_hook
from hookline.hooks.select import ModuleTree, select


def register_state_dict_pre_hook(model: Model, hook: Callable[..., Any], where: Any = None) -> Handle:
    """A Handle; `hook(module, prefix, keep_vars)` runs before the module writes its state dict."""
    return _register(model, hook, where, ("save", "pre"), 3)


def register_state_dict_post_hook(model: Model, hook: Callable[..., Any], where: Any = None) -> Handle:
    """A Handle; `hook(module, state_dict, prefix, local_metadata)` may change `state_dict` in place."""
    return _register(model, hook, where, ("save", "post"), 4)


def register_load_state_dict_pre_hook(model: Model, hook: Callable[..., Any], where: Any = None) -> Handle:
    """A Handle; the hook may change `state_dict` in place before the module reads it.

    It is called as hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
    unexpected_keys, error_msgs).
    """
    return _register(model, hook, where, ("load", "pre"), 8)


def register_load_state_dict_post_hook(model: Model, hook: Callable[..., Any], where: Any = None) -> Handle:
    """A Handle; `hook(module, incompatible_keys)` runs after loading and may change those lists."""
    return _register(model, hook, where, ("load", "post"), 2)


def _register(model: Model, hook: Callable[..., Any], where: Any, when: tuple[str, str], count: int) -> Handle:
    kind = f"state-dict hook ({when[1]}-{when[0]})"
    needs_callable(f"a {kind}", "hook", hook, count)
    backend = resolve(model)
    backend.framework.need("state_hooks")
    line = callers_line()
    targets = select(ModuleTree(backend.named_modules(model)), where)

    def put(undoing: Undoing) -> None:
        for target in targets:
            label = Label("register_state_dict_hook", kind, target.name, line)
            run = partial(_run, target.name, kind, hook)
            backend.place_state_hook(undoing, target.module, when, run, label)

    return attached(put)


def _run(site: str, kind: str, hook: Callable[..., Any], *args: Any) -> None:
    if (result := call_hook(site, kind, hook, *args)) is not None:
        raise WrongReplacement(
            site, kind, f"returned a {type(result).__name__}; it must change what it is given in place"
        )
