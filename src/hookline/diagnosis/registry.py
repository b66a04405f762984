"""Registry: the rules by name, and `@rule`, by which a user adds one.

A rule is a function of a `Training` that yields what it found, each by `found`:

>>> @rule("loud", severity="note", advice="Look at its weights.")
... def loud(training):
...     for curve in training.curves("output", mode="train"):
...         for place in (curve.stats["absmax"] > 1e3).nonzero()[0][:1]:
...             yield found(curve.site, curve.steps[place], "an output is larger than 1,000")
>>> import hookline, torch
>>> with hookline.watch(model := torch.nn.Linear(1, 1)) as w:
...     _ = model(torch.full((2, 1), 1e9))
>>> [str(finding) for finding in hookline.diagnose(w, rules=["loud"])]
['(model): loud from step 0: an output is larger than 1,000. Look at its weights.']
>>> forget("loud")
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, TypeVar

from hookline.diagnosis.finding import SEVERITIES, Finding
from hookline.diagnosis.training import Training
from hookline.errors import InvalidArgument, near

Fn = TypeVar("Fn", bound=Callable[[Any], Iterable[Finding]])


class Rule(NamedTuple):
    """A registered rule. One of `wiring` reads how a training hangs together and its scalars, and no series: it
    takes next to no time."""

    name: str
    fn: Callable[[Training], Iterable[Finding]]
    severity: str
    advice: str
    wiring: bool

    def findings(self, training: Training) -> Iterable[Finding]:
        """What it finds, with its name, severity and advice where the finding has none of its own."""
        for one in self.fn(training):
            severity, advice = one.severity or self.severity, one.advice or self.advice
            yield replace(one, rule=self.name, severity=severity, advice=advice)


_known: dict[str, Rule] = {}


def rule(name: str, *, severity: str = "warning", advice: str = "", wiring: bool = False) -> Callable[[Fn], Fn]:
    """A decorator that registers a function of a `Training` as the rule `name`.

    `severity` ("error", "warning" or "note") and `advice` are those of findings that have none of their own. A
    rule that reads no series but `training.wiring` and `training.scalars` may say so (`wiring`): it then runs at
    every recorded step of `watch(diagnose=True)`.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise InvalidArgument(f"rule({name!r}): expected a name such as 'dead_units': letters, digits and '_'.")
    if severity not in SEVERITIES:
        raise InvalidArgument(f"severity={severity!r}: expected one of {', '.join(map(repr, SEVERITIES))}.")

    def register(fn: Fn) -> Fn:
        if not callable(fn) or len(inspect.signature(fn).parameters) != 1:
            raise InvalidArgument(f"rule {name!r}: expected a function of one argument, a Training; got {fn!r}.")
        if fn.__module__.startswith(f"{__package__}.rules."):
            pass  # ours, which are being loaded
        elif name in known():
            raise InvalidArgument(f"a rule {name!r} exists already. Known: {', '.join(known())}.")
        _known[name] = Rule(name, fn, severity, advice, wiring)
        return fn

    return register


def found(
    site: str,
    step: Any,
    why: str,
    *,
    severity: str = "",
    advice: str = "",
    line: str = "",
    confidence: float = 1.0,
    rows: Sequence[tuple[str, str]] = (),
    **evidence: Any,
) -> Finding:
    """A Finding as a rule yields it; the rule's own name, severity and advice are filled in.

    `rows` are (site, kind) of the rows that it went by, `evidence` the numbers.
    """
    if severity and severity not in SEVERITIES:
        raise InvalidArgument(f"severity={severity!r}: expected one of {', '.join(map(repr, SEVERITIES))}.")
    told = {name: value.item() if hasattr(value, "item") else value for name, value in evidence.items()}
    if rows:
        told["rows"] = [list(one) for one in rows]
    return Finding("", severity, site, int(step), why, told, advice, line, float(confidence))


@cache
def _load() -> None:
    """Imports the files that have hookline's own rules: each registers its rules, in order of the files' names."""
    rules = importlib.import_module(f"{__package__}.rules")
    for file in sorted(pkgutil.iter_modules(rules.__path__), key=lambda one: one.name):
        importlib.import_module(f"{rules.__name__}.{file.name}")


def known() -> list[str]:
    """The names of all rules."""
    _load()
    return list(_known)


def find(name: Any) -> Rule:
    """The rule of that name; InvalidArgument names those that are like it."""
    if isinstance(name, str) and name in known():
        return _known[name]
    raise InvalidArgument(
        f"no rule is called {name!r}.{near(name, known())} Known: {', '.join(known())}. Add one with @rule."
    )


def chosen(names: Iterable[str] | str | None) -> list[Rule]:
    """The rules of these names, all where there are none."""
    names = known() if names is None else [names] if isinstance(names, str) else names
    try:
        names = list(names)
    except TypeError:
        raise InvalidArgument(f"rules={names!r}: expected a list of names of rules.") from None
    return [find(name) for name in names]


def forget(name: str) -> None:
    """Takes a rule out."""
    del _known[find(name).name]
