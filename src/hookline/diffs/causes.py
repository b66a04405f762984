"""Causes: why two models part at a place, as far as it can be read from the modules and from the run.

Each question is a small function of `Where`; they are asked in order, the surest first. What none of them can tell
is "code": the module's own code differs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hookline.backends.capabilities import capabilities
from hookline.diffs.births import Birth
from hookline.diffs.found import Cause, SiteDiff
from hookline.diffs.live import Live
from hookline.diffs.measures import apart, over, same_bits, scale_of
from hookline.diffs.operators import FirstOperator
from hookline.diffs.pairs import Pair
from hookline.diffs.reading import FORWARD, PARAM_GRAD

SIMPLE = (bool, int, float, complex, str, bytes, type(None), type)
NOTHING = FirstOperator()
SHOWN = 3
"""So many names are told in a sentence."""


@dataclass
class Where:
    """The place whose cause is looked for: both models, their modules there, and what was seen."""

    a: Live
    b: Live
    pair: Pair
    first: SiteDiff
    birth: Birth | None = None
    operator: FirstOperator = NOTHING

    @property
    def site(self) -> str:
        """A's name of the module."""
        is_param = self.first.kind == PARAM_GRAD
        return self.first.site.rpartition(".")[0] if is_param else self.first.site

    @property
    def modules(self) -> tuple[Any, Any]:
        """The two modules."""
        return self.a.tree.modules.get(self.site), self.b.tree.modules.get(
            self.pair.others.get(self.site, self.site)
        )

    @property
    def own(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The weights of both modules themselves, with those of parts that neither side calls."""
        called = {*self.pair.a.sites, *self.pair.b.sites}
        other = self.pair.others.get(self.site, self.site)
        return _own(self.a, self.site, called), _own(self.b, other, called)

    @property
    def has_parts(self) -> bool:
        """Whether the module calls others."""
        prefix = f"{self.site}." if self.site else ""
        return any(site != self.site and site.startswith(prefix) for site in self.pair.others)

    def below(self, name: str) -> bool:
        """Whether the code of this module calls the site: nobody between the two was called in both."""
        while name:
            name = name.rpartition(".")[0]
            if name == self.site:
                return True
            if name in self.pair.others:
                return False
        return False

    def below_b(self, name: str) -> bool:
        """The same for a name of B."""
        back = {other: site for site, other in self.pair.others.items()}
        while name:
            name = name.rpartition(".")[0]
            if name in back:
                return back[name] == self.site
        return False


Question = Callable[[Where], Iterator[Cause]]


def causes_at(
    a: Live,
    b: Live,
    pair: Pair,
    first: SiteDiff,
    birth: Birth | None = None,
    operator: FirstOperator | None = None,
) -> list[Cause]:
    """The causes that can be told, the likeliest first; never an empty list."""
    where = Where(a, b, pair, first, birth, operator or NOTHING)
    causes = _once(cause for question in QUESTIONS for cause in question(where))
    modes = [] if causes and not _heeds_its_mode(where) else list(_modes(where))
    return [*modes, *causes] or [_code(where)]


def _once(causes: Iterable[Cause]) -> list[Cause]:
    """One cause of each name; how many more there are is said in its sentence."""
    found: dict[str, list[Cause]] = {}
    for cause in causes:
        found.setdefault(cause.name, []).append(cause)
    return [
        first if not more else replace(first, sentence=f"{first.sentence[:-1]}, and {len(more)} more are alike.")
        for first, *more in found.values()
    ]


def _types(where: Where) -> Iterator[Cause]:
    ours, theirs = map(type, where.modules)
    if ours is theirs or ours.__name__ == theirs.__name__:
        return
    builtin = is_of_framework(ours) or is_of_framework(theirs)
    is_plain = where.first.kind in FORWARD and not where.own[0] and not where.has_parts
    if builtin or is_plain:
        sentence = f"It is a {ours.__name__} in A and a {theirs.__name__} in B."
        yield Cause("type", where.site, sentence, {"a": ours.__name__, "b": theirs.__name__})


def _settings(where: Where) -> Iterator[Cause]:
    ours, theirs = (_simple(module) for module in where.modules)
    other = {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]}
    if not other:
        return
    names = sorted(other)
    told = "; ".join(f"{name} is {ours[name]!r} in A and {theirs[name]!r} in B" for name in names[:SHOWN])
    evidence = {name: [repr(ours[name]), repr(theirs[name])] for name in names}
    yield Cause("setting", where.site, f"{_upper(told)}.", evidence)


def _frozen(where: Where) -> Iterator[Cause]:
    """Parameters that need a gradient on one side only."""
    if where.first.kind in FORWARD:
        return
    ours, theirs = where.own
    needs = {
        name: [getattr(side[name], "requires_grad", None) for side in (ours, theirs)]
        for name in ours
        if name in theirs
    }
    names = [name for name, (one, two) in needs.items() if one != two]
    if names:
        sides = "A" if needs[names[0]][0] else "B"
        told = ", ".join(repr(name) for name in names[:SHOWN])
        yield Cause("setting", where.site, f"{told} needs a gradient in {sides} only.", {"requires_grad": names})


def _modes(where: Where) -> Iterator[Cause]:
    ours, theirs = where.modules
    one, two = where.a.backend.is_training(ours), where.b.backend.is_training(theirs)
    if one != two:
        words = {True: "training", False: "eval"}
        yield Cause("mode", where.site, f"It is in {words[one]} mode in A and in {words[two]} mode in B.")


def _weights(where: Where) -> Iterator[Cause]:
    """Weights of the module itself that differ, and what became of them."""
    ours, theirs = where.own
    missing = [name for name in ours if name not in theirs] + [name for name in theirs if name not in ours]
    if missing and (ours or theirs):
        sides = ", ".join(f"{name!r} (only in {'A' if name in ours else 'B'})" for name in missing[:SHOWN])
        yield Cause("weights", where.site, f"The two have not the same weights: {sides}.", {"names": missing})
    for name in ours:
        if name in theirs and (told := _weight(where, name, ours[name], theirs[name])) is not None:
            yield told


def _weight(where: Where, name: str, one: Any, two: Any) -> Cause | None:
    a, b = where.a.backend.host(one), where.b.backend.host(two)
    label = f"{where.site}.{name}" if where.site else name
    if a.shape != b.shape:
        return Cause("weights", where.site, f"{label} has the shape {a.shape} in A and {b.shape} in B.")
    dtypes = where.a.backend.dtype_of(one), where.b.backend.dtype_of(two)
    if same_bits(a, b) or (dtypes[0] != dtypes[1] and _rounds_to(where, one, two)):
        return None
    if a.ndim == 2 and a.shape[0] == a.shape[1] and same_bits(np.ascontiguousarray(a.T), b):
        return Cause("transposed weight", where.site, f"{label} of B is the transpose of A's.")
    if (other := _exchanged(where, label, a, b)) is not None:
        sentence = f"{label} of B is what {other} is in A: weights are exchanged, or loaded under another name."
        return Cause("exchanged weights", where.site, sentence, {"with": other})
    gap = apart(a, b)
    far = over(gap.largest, scale_of(a).largest)
    kind = "weights" if _is_parameter(where.a, label) else "buffers"
    at = f"they differ by up to {far:.2g} of the largest"
    return Cause(kind, where.site, f"{label} holds other numbers in B: {at}.", {"name": label, "error": far})


def _exchanged(where: Where, label: str, a: NDArray[Any], b: NDArray[Any]) -> str | None:
    if a.size < 2 or np.ptp(b) == 0:  # numbers that all are alike may be anybody's
        return None
    alike = {
        name: tensor
        for name, tensor in where.a.backend.tensors_of(where.a.model).items()
        if name != label and tuple(tensor.shape) == b.shape
    }
    return next((name for name, tensor in alike.items() if same_bits(where.a.backend.host(tensor), b)), None)


def _rounds_to(where: Where, one: Any, two: Any) -> bool:
    """Whether one weight is the other in another dtype."""
    same = where.a.backend is where.b.backend
    if not same:
        return False
    there, back = where.a.backend.fitted(one, two), where.a.backend.fitted(two, one)
    host = where.a.backend.host
    return same_bits(host(there), host(two)) or same_bits(host(back), host(one))


def _calls(where: Where) -> Iterator[Cause]:
    """Calls that only one side makes from this module's code."""
    alignment = where.pair.alignment
    missing = [name for name in alignment.missing if where.below(name)]
    extra = [name for name in alignment.extra if where.below_b(name)]
    if where.birth is not None and where.birth.extra:
        extra.append(where.birth.before)
    for site, other in alignment.pairs:
        if where.below(site):
            ours, theirs = len(where.pair.a.calls(site)), len(where.pair.b.calls(other))
            if ours != theirs:
                (missing if ours > theirs else extra).append(site)
    extra = list(dict.fromkeys(extra))
    if missing:
        names = ", ".join(map(repr, missing[:SHOWN]))
        yield Cause("missing call", where.site, f"B does not call {names}, which A calls.", {"sites": missing})
    if extra:
        names = ", ".join(map(repr, extra[:SHOWN]))
        yield Cause("additional call", where.site, f"B also calls {names}, which A does not.", {"sites": extra})


def _order(where: Where) -> Iterator[Cause]:
    moved = [site for site, _ in where.pair.alignment.reordered if where.below(site)]
    if moved:
        names = ", ".join(map(repr, moved[:SHOWN]))
        yield Cause("order", where.site, f"B calls {names} at another time than A.", {"sites": moved})


def _dtypes(where: Where) -> Iterator[Cause]:
    one, two = where.operator.dtypes
    if one != two:
        sentence = f"It computes in {two} in B and in {one} in A: {where.operator.told}."
        yield Cause("dtype", where.site, sentence, {"a": one, "b": two})
    elif where.first.dtypes[0] != where.first.dtypes[1] and where.first.kind in FORWARD:
        a, b = where.first.dtypes
        yield Cause("dtype", where.site, f"Its output is {a} in A and {b} in B.", {"a": a, "b": b})


def _not_finite(where: Where) -> Iterator[Cause]:
    numbers = where.first.measure
    if numbers.nan_mismatch or numbers.inf_mismatch:
        count = numbers.nan_mismatch + numbers.inf_mismatch
        sentence = f"{count:,} of {numbers.count:,} numbers are NaN or infinite on one side only."
        yield Cause("not finite", where.site, sentence)


def _shapes(where: Where) -> Iterator[Cause]:
    if where.birth is not None and "shape" in where.birth.misfit:
        yield Cause("shape", where.site, f"{_upper(where.birth.misfit)}.")


QUESTIONS: tuple[Question, ...] = (
    *(_types, _settings, _frozen, _weights, _dtypes, _calls, _order, _shapes, _not_finite),
)


def _heeds_its_mode(where: Where) -> bool:
    """Whether a module is of a kind that does something else in training."""
    names = [type(module).__name__ for module in where.modules]
    return any(word in name for name in names for word in ("Drop", "BatchNorm", "InstanceNorm"))


def _code(where: Where) -> Cause:
    if where.first.kind not in FORWARD:
        sentence = f"The forward is the same and the gradient is not: {where.first.why or 'see its code'}."
        return Cause("code", where.site, _upper(sentence))
    told = where.operator.told
    before = where.birth.before if where.birth is not None else ""
    at = f", before it calls {before!r}" if before else ""
    if where.birth is not None and where.birth.misfit:
        told = where.birth.misfit
    whose = repr(where.site) if where.site else "the model"
    sentence = f"The code of {whose} itself differs{at}{f': {told}' if told else ''}."
    evidence = {"a": where.operator.a, "b": where.operator.b, "line": where.operator.line}
    return Cause("code", where.site, sentence, evidence)


def _own(live: Live, site: str, called: Collection[str]) -> dict[str, Any]:
    """The parameters and buffers of a module itself and of parts that are never called, by name below it."""
    prefix = f"{site}." if site else ""
    found: dict[str, Any] = {}
    for name, tensor in live.backend.tensors_of(live.model).items():
        owner = name.rpartition(".")[0]
        if name.startswith(prefix) and (owner == site or not _is_called(owner, site, called)):
            found[name.removeprefix(prefix)] = tensor
    return found


def _is_called(owner: str, site: str, called: Collection[str]) -> bool:
    """Whether a module, or one between it and the site above it, is called."""
    while owner != site and owner:
        if owner in called:
            return True
        owner = owner.rpartition(".")[0]
    return False


def _is_parameter(live: Live, name: str) -> bool:
    site, _, own = name.rpartition(".")
    module = live.tree.modules.get(site)
    return module is None or own in live.backend.own_parameters(module)


def _simple(module: Any) -> dict[str, Any]:
    """The public attributes of a module that are plain values, or functions by their name."""
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        if name.startswith("_") or name == "training":
            continue
        if isinstance(value, SIMPLE):
            found[name] = value
        elif isinstance(value, (tuple, list)) and all(isinstance(one, SIMPLE) for one in value):
            found[name] = tuple(value)
        elif hasattr(value, "__name__") and callable(value):
            found[name] = value.__name__
    return found


def is_of_framework(kind: type) -> bool:
    """Whether a class of modules is a framework's own."""
    roots = [root for framework in capabilities().values() for root in framework.roots]
    return kind.__module__.split(".")[0] in roots


def _upper(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
