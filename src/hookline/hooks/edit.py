"""edit: replaces what crosses the sites of a model, and its weights, while a `with` block runs.

Upstream: select (where), a backend. Edits on one site apply in the order in which they were made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hookline.audit import Audit, AuditEntry
from hookline.backends import resolve
from hookline.backends.nouns import Model, Module
from hookline.backends.protocol import COUNTING, Backend, FunctionTap, HeldWeight, Label, Needs, Placement, Rank
from hookline.backends.undoing import Undoing
from hookline.errors import InvalidArgument, NoSuchSite, WrongReplacement
from hookline.globs import matcher
from hookline.hooks.entering import Enterable
from hookline.hooks.gradients import InputGradients, OutputGradients
from hookline.hooks.placing import callers_line, needs_callable
from hookline.hooks.reasons import why_silent
from hookline.hooks.replacing import as_arguments, call_hook, checked, checked_positional, not_taken
from hookline.hooks.select import ModuleTree, Target, select
from hookline.hooks.session import Session
from hookline.hooks.weights import Block
from hookline.site import KINDS, Recorded, Site
from hookline.trees import mismatch, zip_leaves


class Skip:
    """The edit that keeps a module from running; see `skip`."""

    def __init__(self, instead: Any = None) -> None:
        self.instead = instead

    def __call__(self, instead: Any) -> Skip:
        """A skip with this value as the output, or with what this function of the arguments gives."""
        return Skip(instead)


skip = Skip()
"""As an edit: the module does not run and hands on its first argument, or what `skip(...)` was given."""


def edit(model: Model, edits: Mapping[Any, Any]) -> Edits:
    """A context manager in which every edit of {site: change} is in force.

    A site is a name or glob, with a kind after a colon if it is not the output ("attn:input",
    "layer3:grad_output"), anything else that `where` may be, a pair (where, kind), or the name of a
    parameter or buffer. A change is a function of the value, a value to put there, a recorded site,
    or `skip`. A value of the wrong structure, shape or type is an error that names the site. A weight has its own
    numbers again after the block, whatever was done to it meanwhile; its edit is for all threads.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    >>> with edit(model, {"0": lambda out: out * 0 - 1, "0.bias": torch.zeros(2)}):
    ...     model(torch.ones(1, 2))
    tensor([[0., 0.]], grad_fn=<ReluBackward0>)
    """
    if not isinstance(edits, Mapping) or not edits:
        raise InvalidArgument(
            f"edit: expected a dict of {{site: change}}, such as {{'layer3': fn}}, got {edits!r}."
        )
    backend = resolve(model)
    tree = ModuleTree(backend.named_modules(model))
    tensors: dict[str, Any] = {}
    found: list[SiteEdit] = []
    for site, change in edits.items():
        found += _parsed(backend, model, tree, tensors, site, change)
    return Edits(backend, tree, _once(found), list(tensors.values())).made_by("hookline.edit")


class Edits(Enterable, Undoing):
    """An open or finished `edit` block.

    It is left as any ExitStack: what one step raises keeps no other from being done.
    """

    def __init__(self, backend: Backend, tree: ModuleTree, edits: list[SiteEdit], tensors: list[Any]) -> None:
        super().__init__()
        self._backend, self._tree, self._edits = backend, tree, edits
        self._session = Session()
        weights = [edit for edit in edits if isinstance(edit, WeightEdit)]
        self._weights = Block(backend.name, self._session, weights, tensors)

    def __enter__(self) -> Edits:
        self.is_used()
        line = callers_line()
        self._weights.refuse_twice()
        try:
            self._weights.begin()
            self.noted(self._session.close)
            self.noted(self._weights.leave)
            self._session.open()
            self._weights.enter(line)
            others = [edit for edit in self._edits if not isinstance(edit, WeightEdit)]
            for edit in others:
                edit.attach(self, self._backend, self._session, line)
            return self
        except BaseException:
            self.close()
            raise

    def audit(self) -> Audit:
        """For every edit: applied so many times, or never, and why; of a weight also what it went through."""
        fired = [edit.name for edit in self._edits if edit.fired]
        silent = {edit.name for edit in self._edits} - {*fired}
        return Audit(
            entry
            for edit in self._edits
            for entry in edit.entries(partial(why_silent, self._backend, self._tree, edit.name, fired, silent))
        )


class SiteEdit:
    """One change at one site; `fired` counts how often it was applied."""

    def __init__(self, target: Target, kind: str, change: Any) -> None:
        self.target_in_model, self.kind, self.change = target, kind, change
        self.name = target.name
        self.site = target.name if kind == "output" else str(Site(target.name, kind))
        self.fired = 0

    def entries(self, why_silent: Callable[[], str]) -> list[AuditEntry]:
        """Its lines of the audit."""
        return [AuditEntry(self.site, self.fired, None if self.fired else why_silent())]

    def attach(self, undoing: Undoing, backend: Backend, session: Session, line: str) -> None:
        label = Label("edit", f"edit of the {self.kind}", self.name, line)
        backend.attach(undoing, self._placements(backend, session, label))

    def _placements(self, backend: Backend, session: Session, label: Label) -> list[Placement]:
        module = self.target_in_model.module

        def output(module: Module, args: Any, output: Any) -> Any:
            return self._changed(backend, output) if session.sees_this_context() else None

        def arguments(module: Module, args: Any, kwargs: Any) -> Any:
            if not session.sees_this_context():
                return None
            if self.kind == "kwargs":
                return args, self._changed_kwargs(backend, module, args, kwargs)
            return self._changed_arguments(backend, module, args), kwargs

        def grad_output(module: Module, grad_output: Any) -> Any:
            self.fired += 1
            return self._asked(grad_output)

        def grad_input(module: Module, grad_input: Any, grad_output: Any) -> Any:
            self.fired += 1
            return self._asked(grad_input)

        if self.kind == "output":
            needs = Needs(inputs=False)
            return [Placement(module, FunctionTap(output, label, kwargs=False, rank=Rank.EDIT, needs=needs))]
        if self.kind in ("input", "kwargs"):
            return [Placement(module, FunctionTap(arguments, label, after=False, rank=Rank.EDIT))]
        if self.kind == "grad_output":
            taps = OutputGradients(backend, self.target_in_model, label, grad_output, session, wrap=False)
            return taps.placements()
        return InputGradients(backend, self.target_in_model, label, grad_input, session).placements()

    def _asked(self, value: Any) -> Any:
        """What the change makes of `value`: a function's result, or the value to put there."""
        if callable(self.change):
            return call_hook(self.site, "edit", self.change, value)
        return self.change

    def _changed(self, backend: Backend, old: Any) -> Any:
        new = self._asked(old)
        if new is None:
            return old
        self.fired += 1
        if callable(self.change):
            return checked(backend, new, old, self.site, "edit")
        return fitted(backend, new, old, self.site)

    def _changed_arguments(self, backend: Backend, module: Module, old: tuple[Any, ...]) -> Any:
        new = self._asked(old)
        if new is None:
            return old
        new = as_arguments(new)
        self.fired += 1
        if callable(self.change):
            return checked_positional(backend, module, new, old, self.site, "edit")
        return fitted(backend, new, old, self.site)

    def _changed_kwargs(self, backend: Backend, module: Module, args: Any, old: dict[str, Any]) -> dict[str, Any]:
        new = self._asked(old)
        if new is None:
            return old
        if not isinstance(new, Mapping):
            raise WrongReplacement(
                self.site, "edit", f"gave a {type(new).__name__}; expected a dict of keyword arguments"
            )
        self.fired += 1
        there = {key: new[key] for key in new if key in old}
        before = {key: old[key] for key in there}
        fit = partial(checked, kind="edit") if callable(self.change) else fitted
        result = {**old, **new, **fit(backend, there, before, site=self.site)}
        if len(result) > len(old) and (reason := not_taken(backend, module, args, result)):
            raise WrongReplacement(self.site, "edit", f"gave {[key for key in new if key not in old]}: {reason}")
        return result


class SkippedModule(SiteEdit):
    """A module that does not run; its output is given or is its first argument."""

    def attach(self, undoing: Undoing, backend: Backend, session: Session, line: str) -> None:
        label = Label("edit", "skip of the module", self.name, line)
        module = self.target_in_model.module

        def count(module: Module, args: Any) -> None:
            self.fired += session.sees_this_context()

        own = label._replace(owner="")  # a part of the skip, not one more thing that sits on the model
        counting = FunctionTap(count, own, after=False, kwargs=False, needs=COUNTING)
        forward = SkippedForward(self.site, self.change.instead, session)
        backend.attach(undoing, [Placement(module, counting)])
        backend.replace_forward(undoing, module, forward, label)


class SkippedForward:
    """What runs in place of a skipped module's forward."""

    def __init__(self, site: str, instead: Any, session: Session) -> None:
        self._site, self._instead, self._session = site, instead, session

    def __call__(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self._session.sees_this_context():
            return original(*args, **kwargs)
        if callable(self._instead):
            return call_hook(self._site, "skip", self._instead, *args, **kwargs)
        return self.traced(original, *args, **kwargs)

    def traced(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What is left of it in compiled code, which belongs to this block alone."""
        if callable(self._instead):
            return self._instead(*args, **kwargs)
        if self._instead is not None:
            return self._instead
        if not args:
            raise WrongReplacement(
                self._site, "skip", "has no positional argument to hand on; use skip(value) or skip(function)"
            )
        return args[0]


class WeightEdit(SiteEdit):
    """Other numbers in a parameter or buffer; its own come back at the end.

    `names` are those it was asked for by, `aliases` the other ones of the same tensor.
    """

    def __init__(
        self, backend: Backend, names: list[str], aliases: list[str], weight: HeldWeight, change: Any
    ) -> None:
        super().__init__(Target(names[0], weight, tuple(aliases)), "output", change)
        self._backend, self.names, self.weight = backend, names, weight
        self._made: tuple[Any, Any] | None = None
        self._asking = False
        self._remark = ""

    def known(self, numbers: Any) -> tuple[Any] | None:
        made = self._made
        if made is not None and made[0] is numbers:
            return (made[1],)
        return (numbers,) if self._asking else None

    def made(self, numbers: Any) -> Any:
        if self._asking:  # the function opened or left a block itself: not in force yet
            return numbers
        if self._made is None or self._made[0] is not numbers:
            self._asking = True
            try:
                self._made = numbers, self._new(numbers)
            finally:
                self._asking = False
        return self._made[1]

    def ended(self, remark: str) -> None:
        self._made = None
        self._remark = remark or self._remark

    def _new(self, old: Any) -> Any:
        new = self._asked(self._backend.snapshot(old))
        if new is None:
            return old
        if callable(self.change):
            new = checked(self._backend, new, old, self.site, "edit")
        else:
            new = fitted(self._backend, new, old, self.site)
        if reason := self.weight.misfit(new):
            raise WrongReplacement(self.site, "edit", f"can't put this value here: {reason}")
        self.fired += 1
        return self._backend.snapshot(new)

    def entries(self, why_silent: Callable[[], str]) -> list[AuditEntry]:
        silent = "the block was not entered, or its function returned None, which leaves the weight as it is"
        said = [self._remark, "" if self.fired else silent]
        found = []
        for name in self.names:
            others = ", ".join(
                repr(other) for other in [*self.names, *self.target_in_model.aliases] if other != name
            )
            tied = f"it is one tensor with {others}" if others else ""
            found.append(AuditEntry(name, self.fired, "; ".join(filter(None, [tied, *said])) or None))
        return found


def fitted(backend: Backend, value: Any, old: Any, site: str) -> Any:
    """A given value on the device and in the dtype of what it replaces; its shapes must agree."""

    def shapes(new: Any, old: Any) -> str:
        return "" if new.shape == old.shape else f"expected shape {tuple(old.shape)}, got {tuple(new.shape)}"

    if reason := mismatch(value, old, backend.tensor, shapes):
        raise WrongReplacement(site, "edit", f"can't put this value here: {reason}")
    return zip_leaves(backend.fitted, value, old, backend.tensor)


def _once(edits: list[SiteEdit]) -> list[SiteEdit]:
    """The edits, where one change of a tied weight that came under several names of it is one edit."""
    kept: dict[tuple[int, int], SiteEdit] = {}
    for number, edit in enumerate(edits):
        key = (id(edit.weight.objects()[-1]), id(edit.change)) if isinstance(edit, WeightEdit) else (-1, number)
        first = kept.setdefault(key, edit)
        if first is not edit and isinstance(first, WeightEdit) and isinstance(edit, WeightEdit):
            first.names = list(dict.fromkeys([*first.names, *edit.names]))
    return list(kept.values())


def _weight_edits(
    backend: Backend, model: Model, tensors: dict[str, Any], wanted: list[str], change: Any
) -> list[SiteEdit]:
    """For each tensor among the `wanted` names an edit, under all those of its names."""
    names: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        names.setdefault(id(tensor), []).append(name)
    found: list[SiteEdit] = []
    for weight in backend.held_weights(model, {name: tensors[name] for name in wanted}):
        all_names = names[id(weight.objects()[-1])]
        asked = [name for name in all_names if name in wanted]
        found.append(WeightEdit(backend, asked, [name for name in all_names if name not in asked], weight, change))
    return found


def _parsed(
    backend: Backend, model: Model, tree: ModuleTree, tensors: dict[str, Any], key: Any, change: Any
) -> list[SiteEdit]:
    """The edits that one entry of the dict means; `tensors` is filled where weights are looked for."""
    if change is None:
        raise InvalidArgument(f"the edit of {key!r} is None; give a function, a value or hookline.skip.")
    if isinstance(key, tuple) and len(key) == 2 and key[1] in KINDS:
        where, kind = key
    elif isinstance(key, str):
        site = Site.parse(key)
        where, kind = site.name, site.kind
    else:
        where, kind = key, "output"
    if isinstance(change, Recorded):
        change = getattr(change, kind)
    if callable(change) and not isinstance(change, Skip):
        needs_callable("edit", f"the edit of {key!r}", change, 1)
    if kind == "grad_kwargs":
        raise InvalidArgument(f"{key!r}: the gradients of keyword arguments can be recorded, not edited.")
    try:
        targets = select(tree, where)
    except NoSuchSite:
        if isinstance(where, str) and kind == "output" and not tensors:
            tensors |= backend.tensors_of(model)
        names = [name for name in tensors if kind == "output" and isinstance(where, str) and matcher(where)(name)]
        if not names:
            raise NoSuchSite(where, [*tree.modules, *tensors]) from None
        backend.framework.need("edit_weights")
        return _weight_edits(backend, model, tensors, names, change)
    if isinstance(change, Skip):
        backend.framework.need("skip")
        return [SkippedModule(target, "output", change) for target in targets]
    backend.framework.need("edit_grads" if kind.startswith("grad") else "kwargs" if kind == "kwargs" else "edit")
    return [SiteEdit(target, kind, change) for target in targets]
