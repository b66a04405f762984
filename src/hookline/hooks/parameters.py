"""Parameters: a hook for the moment when a backward has added to a parameter's gradient.

Upstream: select (where), a backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from hookline.backends import resolve
from hookline.backends.nouns import Model, Tensor
from hookline.backends.protocol import Label
from hookline.backends.undoing import Undoing
from hookline.errors import InvalidArgument, NoSuchSite, WrongReplacement
from hookline.hooks.handles import Handle, attached
from hookline.hooks.placing import callers_line, needs_callable
from hookline.hooks.replacing import call_hook
from hookline.hooks.select import ModuleTree, select


def register_post_accumulate_grad_hook(model: Model, hook: Callable[[Any], None], where: Any = None) -> Handle:
    """A Handle; `hook(parameter)` runs as soon as a backward has added to `parameter.grad`.

    `where` means parameters: by their own names ("**.weight"), or with a module that holds them, as modules are
    chosen everywhere; None is all of the model's. A predicate gets (name, parameter). A parameter with several
    names has one hook, and frozen ones have none. The hook may change the parameter and its `grad` in place,
    or set `grad` to None.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.ReLU())
    >>> def step(parameter):
    ...     print("step", tuple(parameter.shape))
    ...     with torch.no_grad():
    ...         parameter -= 0.1 * parameter.grad
    ...     parameter.grad = None
    >>> with register_post_accumulate_grad_hook(model, step, "**.weight"):
    ...     model(torch.ones(1, 2)).sum().backward()
    step (1, 2)
    """
    name, kind = "register_post_accumulate_grad_hook", "post-accumulate-grad hook"
    needs_callable(name, "hook", hook, 1)
    backend = resolve(model)
    backend.framework.need("accumulated")
    modules = ModuleTree(backend.named_modules(model))
    parameters = ParameterTree(modules, backend.parameters_of(model).items())
    targets = select(parameters, "**" if where is None else where)
    trained = [target for target in targets if target.module.requires_grad]
    if not trained:
        which = f"where={where!r} means" if targets else "the model has"
        raise InvalidArgument(
            f"{name}: {which} {len(targets)} parameters, and none that needs a gradient. "
            "Call requires_grad_(True) on them first."
        )
    line = callers_line()

    def hear(undoing: Undoing) -> None:
        for target in trained:
            run, label = partial(_run, target.name, kind, hook), Label(name, kind, target.name, line)
            backend.hear_accumulated(undoing, target.module, run, label)

    return attached(hear)


def _run(site: str, kind: str, hook: Callable[[Any], Any], parameter: Tensor) -> None:
    result = call_hook(site, kind, hook, parameter)
    if result is not None and result is not parameter:  # as `parameter.add_(...)` returns it
        came = f"returned a {type(result).__name__}, which replaces nothing"
        raise WrongReplacement(site, kind, f"{came}; change parameter.grad in place, or set it, and return None")


class ParameterTree(ModuleTree):
    """All parameters of a model: each is meant by its own name, and with a module that holds it."""

    def __init__(self, modules: ModuleTree, parameters: Iterable[tuple[str, Any]]) -> None:
        super().__init__(parameters)
        self._holders = modules

    @property
    def known(self) -> list[str]:
        return [*self._holders.modules, *self.modules]

    @property
    def root(self) -> Any:
        return self._holders.root

    def named(self, name: str) -> set[str]:
        if name in self.modules:
            return {name}
        if name not in self._holders.modules:
            raise NoSuchSite(name, self.known)
        found = self._inside({name})
        if not found:
            raise NoSuchSite(name, self.modules, f"{name!r} is a module without parameters.")
        return found

    def matching(self, meant: Callable[[str, Any], bool]) -> set[str]:
        return super().matching(meant) | self._inside(self._holders.matching(meant))

    def names_of_object(self, thing: Any) -> set[str]:
        return super().names_of_object(thing) or self._inside(self._holders.names_of_object(thing))

    def _inside(self, modules: set[str]) -> set[str]:
        """The parameters of these modules and of their parts."""
        return {name for name in self.modules if any(holder in modules for holder in _holders(name))}


def _holders(name: str) -> list[str]:
    """The modules that hold what has this name, the model itself included.

    >>> _holders("encoder.0.weight")
    ['', 'encoder', 'encoder.0']
    """
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(len(parts))]
