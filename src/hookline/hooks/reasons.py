"""Reasons: why a site stayed silent, or why no gradient came, as the audit of any block tells it."""

from __future__ import annotations

from collections.abc import Collection

from hookline.backends.protocol import Backend
from hookline.hooks.select import ModuleTree


def joined(*remarks: str | None) -> str | None:
    """All that there is to say; None where that is nothing."""
    return "; ".join(filter(None, remarks)) or None


def why_silent(backend: Backend, tree: ModuleTree, name: str, fired: list[str], silent: Collection[str]) -> str:
    """Why the module of that name was not called, while those in `fired` were and those in `silent` were not."""
    by_code = backend.why_silent(tree.modules, name, silent) if name in tree.modules else None
    return by_code or (_not_called(name, fired) if fired else backend.not_called)


def describe_error(error: BaseException | None) -> str:
    return "the call is still under way" if error is None else f"{type(error).__name__}: {error}"


def _not_called(name: str, fired: list[str]) -> str:
    below = f"{name}." if name else ""
    if any(other.startswith(below) for other in fired if other != name):
        return (
            "its parts ran but the module itself was not called: its .forward(...) or another method of it was, "
            "or its parts were by somebody else; hooks can't tell which"
        )
    parent = name.rpartition(".")[0]
    if parent in fired:
        return f"it was never called, though {parent or 'the model'!r} ran"
    return "it was never called in this block"


def no_gradient(without: int, calls: int, backward_ran: bool) -> str | None:
    """Why so many of a site's calls have no gradient of their output; None where all have one."""
    if not without:
        return None
    if not backward_ran:
        return "no gradients: no backward ran in this block"
    some = "" if without == calls else f" in {without} of {calls} calls"
    return (
        f"no gradient of its output{some}: it needs none, was made under no_grad, or is not on the way "
        "to what backward was called on"
    )
