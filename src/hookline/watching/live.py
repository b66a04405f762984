"""Live: the rules run while the training does, and each finding is told once.

Wiring hardly changes and series grow, so rules are asked at growing intervals: at the first recorded steps, then
when a quarter more is recorded, and at once when a value is NaN or Inf or the wiring has changed. All the time
that this takes stays below SHARE of the time that has passed, save for the first look and for NaN. The last look
is when the block ends. A look asks what `diagnose` would say of the run as it is then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from hookline.diagnosis.diagnose import findings_in
from hookline.diagnosis.finding import Finding
from hookline.diagnosis.registry import chosen
from hookline.diagnosis.training import Training
from hookline.errors import FindingRaised, InvalidArgument, TrainingStopped, near
from hookline.reporting import report, warn
from hookline.rows import Rows
from hookline.wiring import Wiring

SHARE = 0.02
"""Of the time that has passed."""
FIRST = 3
"""So many recorded steps are looked at one by one."""
GROWTH = 1.25
WAYS = ("warn", "raise", "stop")
OPTIONS = ("rules", "ignore", "baseline")

OnFinding = str | Callable[[Finding], Any]


class Watched(Protocol):
    """What is asked of a watch."""

    def training_so_far(self) -> Training:
        """The training as rules see it, without waiting for the step under way."""


def live(diagnose: bool | Mapping[str, Any], on_finding: OnFinding) -> Live | None:
    """What `watch(diagnose=..., on_finding=...)` asks for; InvalidArgument where it can't be had."""
    if not callable(on_finding) and on_finding not in WAYS:
        hint = near(on_finding, WAYS)
        raise InvalidArgument(
            f"on_finding={on_finding!r}: expected 'warn', 'raise', 'stop' or a function of a Finding.{hint}"
        )
    if diagnose is False:
        if on_finding != "warn":
            raise InvalidArgument("on_finding is told of findings, and none are looked for: give diagnose=True.")
        return None
    options = {} if diagnose is True else diagnose
    if not isinstance(options, Mapping) or not {*options} <= {*OPTIONS}:
        raise InvalidArgument(f"diagnose={diagnose!r}: expected True, or a dict with any of {', '.join(OPTIONS)}.")
    chosen(options.get("rules"))
    return Live(dict(options), on_finding)


class Live:
    """Asks the rules and tells what they found, each finding once."""

    def __init__(self, options: dict[str, Any], on_finding: OnFinding) -> None:
        self._options, self._on_finding = options, on_finding
        self._told: dict[tuple[str, str], Finding] = {}
        self._began = time.monotonic()
        self._spent = 0.0
        self._records = 0
        self._next = 0
        self._bad: set[int] = set()
        self._noted: tuple[int, ...] = ()
        self._looking = False
        self._failed = False
        self._broken: set[str] = set()
        self._held: FindingRaised | None = None

    @property
    def findings(self) -> list[Finding]:
        """What was told so far."""
        return list(self._told.values())

    def begin(self) -> None:
        """The block is entered: time counts from here."""
        self._began, self._spent = time.monotonic(), 0.0

    def ended(self, watch: Watched, rows: Rows | None, raises: bool) -> None:
        """A step has ended, with these rows if it was recorded. FindingRaised where a finding is an error and that
        is wanted; for somebody who only reads (not `raises`) it waits for the next forward."""
        self._records += rows is not None
        if rows is not None and self._is_due(rows, getattr(watch, "wiring", None)):
            try:
                self.look(watch, raises=True)
            except FindingRaised as error:
                if raises:
                    raise
                self._held = error

    def raise_held(self) -> None:
        """Raises what was found while somebody read."""
        held, self._held = self._held, None
        if held is not None:
            raise held

    def look(self, watch: Watched, *, raises: bool) -> None:
        """Asks the rules, and tells what is new. What goes wrong in it is told once: the training goes on."""
        if self._looking or self._failed:
            return
        self._looking, began = True, time.monotonic()
        try:
            with watch.training_so_far() as seen:
                found = findings_in(seen, **self._options, broken=self._broken)
        except Exception as error:
            self._failed = True
            warn(f"diagnosing failed and stops: {type(error).__name__}: {error}", stacklevel=2)
            return
        finally:
            self._looking = False
            self._spent += time.monotonic() - began
        self._next = max(self._records + 1, int(self._records * GROWTH)) if self._records >= FIRST else 0
        new = [one for one in found if (one.rule, one.site) not in self._told]
        for one in new:
            self._told.update({(below.rule, below.site): below for below in one.all})
        for one in new:
            self._tell(one, raises)

    def _is_due(self, rows: Rows, wiring: Wiring | None) -> bool:
        bad = set((rows.column("nan") + rows.column("inf")).nonzero()[0].tolist())
        is_new, self._bad = not bad <= self._bad, self._bad | bad
        if is_new:
            return True
        noted = self._noted
        if wiring is not None:
            places = len(wiring.nonfinite) + len(wiring.dropout_in_eval)
            self._noted = len(wiring.changes), len(wiring.looks), len(wiring.optimizers), places
        if self._records > 1 and self._spent > SHARE * (time.monotonic() - self._began):
            return False
        return self._noted != noted or self._records >= self._next

    def _tell(self, one: Finding, raises: bool) -> None:
        if callable(self._on_finding):
            try:
                self._on_finding(one)
            except FindingRaised:
                raise
            except Exception as error:  # a user's function: the training goes on
                function, self._on_finding = self._on_finding, _nobody
                report("on_finding", function, error, "it is told of no further finding")
        elif raises and one.severity == "error" and self._on_finding in ("raise", "stop"):
            raise (FindingRaised if self._on_finding == "raise" else TrainingStopped)(one)
        elif one.severity != "note":
            warn(f"hookline: {one.severity}: {one}", stacklevel=2)


def _nobody(finding: Finding) -> None:
    """Takes what nobody wants."""
