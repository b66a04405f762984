"""Budget: which steps may be recorded, with how many sites, so that watching stays below a share of the time.

What recording costs. A step that is not recorded costs next to nothing; one that is takes longer, and attaching
the taps, making rows of what they saw and writing these take time of other steps. All of it is wall time that a
user waits for, so that is what is counted, in two parts:

- *Metered*: the time in hookline's own functions, taken by a clock around each (`enter`, `leave`). It is exact,
  also where a step is unusual: one with a validation in it has more to reduce, and that is counted.
- *Hidden*: what a recorded step takes besides: torch's way through hooks, caches that are cold, operators that a
  compiler no longer fuses. Steps without their metered time are compared for that: the median of the latest
  recorded ones, less that of the latest others. Medians, since some steps are slow for other reasons: the first,
  those with a validation or a checkpoint, those that wait for data. As long as steps differ too much to tell, it
  is taken to be as much as what is metered.

The account. A step is recorded if all that was spent, with what this step is expected to take, is within the share
of the time that the training itself took so far. The first step is recorded on credit, and paid off before the
next one: entering the block, which opens files, and leaving it, which is taken to cost as much again, are in it
too. So is compiling: with taps a model is another program than without. Of the first two steps one would be slow
anyway (it compiles, or allocates), so the faster one of them tells how much was ours. What a thread writes counts
with its CPU time. On a device that works behind Python's back, making rows waits for it, which counts as well:
there too little is recorded rather than too much.

What is lowered. First the steps: the account has so many of them recorded as are paid for, at even distances.
Where that would be less than one in MOST_APART, the sites are parted into groups that take turns, so that each is
still seen now and then. Where code is compiled they are not: each choice of sites would be another program.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any

from hookline.errors import InvalidArgument

MOST_APART = 100
"""Steps between two that are recorded, before the number of sites is lowered."""
MOST_GROUPS = 16
"""Into so many groups sites are parted at most."""
ENOUGH = 5
"""Steps that are not recorded, before anything is known of how long they take."""
IN_A_ROW = 50
"""After so many recorded steps one is left out, to compare with."""
LONGEST = 1000
"""A step counts as at most so many usual ones: where a user pauses, no time is earned."""
LATEST = 32
"""So many steps that are not recorded are compared with, the latest, and twice as many recorded ones."""
SURE = 2 * 1.4826 * 1.2533
"""Times the median deviation and one over the root of the number: two standard errors of a median."""
FORGETTING = 0.9
"""What the work of earlier recorded steps counts, with each one that comes."""
SLEEPING = 3e-6
"""Seconds of ours in a step that is slept through: hooks that look away, too short to be metered each time."""
AT_LEAST = 0.25
"""The part of the budget that is for recording, however much of it hearing of steps takes."""


def parse_share(given: Any) -> float:
    """The share that a budget is: "2%" or 0.02; InvalidArgument for anything else.

    >>> parse_share("2%"), parse_share("0.5 %"), parse_share(0.02)
    (0.02, 0.005, 0.02)
    >>> parse_share(2)
    Traceback (most recent call last):
    hookline.errors.InvalidArgument: budget=2: expected a share of the time, "2%" or 0.02, above 0 and up to 1.
    """
    share = math.nan
    if isinstance(given, str) and given.strip().endswith("%"):
        try:
            share = float(given.strip()[:-1]) / 100
        except ValueError:
            share = math.nan
    elif isinstance(given, (int, float)) and not isinstance(given, bool):
        share = float(given)
    if not 0 < share <= 1:
        raise InvalidArgument(
            f'budget={given!r}: expected a share of the time, "2%" or 0.02, above 0 and up to 1.'
        )
    return share


class Budget:
    """What watching took so far, and what it may take.

    >>> now = [0.0]
    >>> budget = Budget(0.02, sites=4, clock=lambda: now[0])
    >>> recorded = []
    >>> for step in range(400):
    ...     budget.lap(step)
    ...     if budget.allows(step):
    ...         recorded.append(step)
    ...         budget.record(step)
    ...         _ = budget.enter(); now[0] += 1.0; budget.leave()  # our own work
    ...     now[0] += 1.0  # the training's
    >>> recorded, budget.interval
    ([0, 201, 226, 251, 276, 301, 350], 50)
    >>> print(budget)
    Budget 2%: hookline took 1.75% of the time. 7 of 399 steps were recorded, the last ones 1 in 50.
    """

    def __init__(
        self,
        limit: float,
        *,
        sites: int = 1,
        rotates: Callable[[], bool] = lambda: True,
        elsewhere: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.limit = limit
        self.interval = 1
        """About every so many steps one is recorded, as it is now."""
        self.groups = 1
        """Into how many groups the sites are parted, which take turns."""
        self.turn = 0
        """Whose turn it is, or was at the latest recorded step."""
        self.steps = self.recorded = 0
        """How many steps there were, and how many of them were recorded."""
        self._sites = max(min(sites, MOST_GROUPS), 1)
        self._rotates, self._elsewhere, self._clock = rotates, elsewhere, clock
        self._inside: float | None = None  # since when a function of ours has been running
        self._own = self._own_before = 0.0  # metered, and how much of it was before this step
        self._reserve = self._others = 0.0  # for leaving the block; of other threads
        self._time = 0.0  # of all steps, without what is metered
        self._step: int | None = None
        self._began = 0.0
        self._on: int | None = None  # the step that was chosen latest
        self._since = self._in_a_row = 0
        self._is_after = False  # the step before was recorded
        self._plain: deque[float] = deque(maxlen=LATEST)
        self._extra: deque[float] = deque(maxlen=2 * LATEST)  # for all sites, what recorded ones took besides
        self._usual = self._hidden = 0.0
        self._longest, self._enough = (
            math.inf,
            0.0,
        )  # what a step counts at most; the time at which one is paid for
        self._first: list[
            float
        ] = []  # how long the first recorded step took and, if nothing else is known, the next
        self._first_hidden = 0.0
        self._units = 0.0  # recorded steps besides the first; one with half of the sites counts half
        self._work = self._worked = 0.0  # metered for recorded steps, the latest count most; their units
        self._floor = 0.0  # metered at steps that have nothing to do with recording

    # Own time

    def enter(self) -> bool:
        """A function of ours begins; whether it is the outermost, which is the one that is metered."""
        if self._inside is not None:
            return False
        self._inside = self._clock()
        return True

    def leave(self) -> None:
        """The outermost function of ours ends."""
        if self._inside is not None:
            self._own += self._clock() - self._inside
        self._inside = None

    # Steps

    def lap(self, step: int) -> None:
        """The step under way ends and this one begins; nothing, if it has begun already."""
        now = self._clock()
        if self._inside is not None:
            self._own += now - self._inside
            self._inside = now
        if step == self._step:
            return
        if self._step is None:
            self._reserve = self._own
        else:
            own = self._own - self._own_before
            self._ended(now - self._began - own, own, self._step == self._on)
        self._step, self._began, self._own_before = step, now, self._own

    def sleeps_through(self, step: int) -> bool:
        """`lap` for steps that nobody listens to, which has to be quick; whether this one may be recorded."""
        now = self._clock()
        seconds, self._began, self._step = now - self._began, now, step
        self.steps += 1
        self._since += 1
        self._time += seconds if seconds < self._longest else self._longest
        self._own_before = self._own = self._own + SLEEPING
        self._floor += SLEEPING
        self._plain.append(seconds)
        if self.steps % LATEST == 0 or (not self._usual and len(self._plain) == ENOUGH):
            self._estimate()
        return self._time >= self._enough and self.allows(step)

    def allows(self, step: int) -> bool:
        """Whether this step, which begins, is paid for."""
        if step == self._on or not self.recorded:
            return True
        if not self._usual or self._since + 1 < self.interval / 2 or self._in_a_row >= IN_A_ROW:
            return False
        return self._spent - self._floor + self._expected / self.groups <= self._allowed

    def record(self, step: int) -> None:
        """This step is recorded; it is the turn of the next group of sites."""
        if step != self._on:
            self._on = step
            self.recorded += 1
            self.turn = (self.turn + 1) % self.groups

    def chooses(self, place: int) -> bool:
        """Whether it is the turn of the site at this place."""
        return self.groups == 1 or place % self.groups == self.turn

    def _ended(self, seconds: float, own: float, recorded: bool) -> None:
        self.steps += 1
        self._time += min(seconds, self._longest)
        if recorded:
            self._since, self._in_a_row = 0, self._in_a_row + 1
            self._note_recorded(seconds, own)
        else:
            self._since, self._in_a_row = self._since + 1, 0
            if len(self._first) == 1 and not self._usual and self.recorded:
                self._first.append(seconds)
            if self._is_after:
                self._work += own
            else:
                self._floor += own
            self._plain.append(seconds)
        if recorded or self._is_after or self.steps % LATEST == 0 or len(self._plain) == ENOUGH:
            self._estimate()
        self._is_after = recorded

    def _note_recorded(self, seconds: float, own: float) -> None:
        if not self._first:
            self._first.append(seconds)
        else:
            if not self._units:  # the first one made what the others use
                self._work = self._worked = 0.0
            self._units += 1 / self.groups
            self._extra.append((seconds - self._usual) * self.groups)
        self._work = FORGETTING * self._work + own
        self._worked = FORGETTING * self._worked + 1 / self.groups

    def _estimate(self) -> None:
        """What a step takes, what a recorded one takes besides, and how far apart these may be."""
        self._others = self._elsewhere()
        if len(self._plain) < ENOUGH:
            return
        self._usual = median(self._plain)
        self._longest = LONGEST * self._usual
        self._hidden = self._surely_hidden()
        if self._first:
            self._first_hidden = max(min(self._first) - self._usual, self._hidden)
        if not self._worked:
            return
        expected, earned = self._expected, self._rate * self._usual
        apart = expected / earned if earned > 0 else math.inf
        wanted = 1
        if self._units and MOST_APART < apart < math.inf and self._rotates():
            wanted = min(math.ceil(apart / MOST_APART), self._sites)
        if wanted >= 1.5 * self.groups or wanted <= self.groups / 2:  # not back and forth
            self.groups = wanted
        self.interval = max(math.ceil(min(apart / self.groups, 1e9) - 1e-6), 1)
        spent = self._spent - self._floor + expected / self.groups
        self._enough = self._time - self._training + spent / self._rate

    def _surely_hidden(self) -> float:
        """What a recorded step takes besides what is metered: as much again, unless the steps tell otherwise."""
        if not self._extra:
            return self._metered
        found = median(self._extra)
        spread = median(abs(one - self._usual) for one in self._plain)
        unsure = SURE * spread * self.groups * math.sqrt(1 / len(self._extra) + 1 / len(self._plain))
        return max(min(max(self._metered, found - unsure), found + unsure), 0.0)

    # The account

    @property
    def _metered(self) -> float:
        """What is metered of recording all sites of a step."""
        return self._work / self._worked if self._worked else 0.0

    @property
    def _expected(self) -> float:
        """What recording all sites of a step takes."""
        return self._metered + self._hidden

    @property
    def _training(self) -> float:
        """The time that the training itself took."""
        return max(self._time - self._units * self._hidden - self._first_hidden, 0.0)

    @property
    def _spent(self) -> float:
        own = self._own + self._reserve + self._others
        return own + self._units * self._hidden + self._first_hidden

    @property
    def _rate(self) -> float:
        """The share that is left for recording."""
        floor = self._floor / self._training if self._training else 0.0
        return max(self.limit - floor, AT_LEAST * self.limit)

    @property
    def _allowed(self) -> float:
        """What may have been spent on recording."""
        return self._rate * self._training

    # What is told

    @property
    def share(self) -> float:
        """What hookline took so far, relative to the time that the training takes without it."""
        return self._spent / self._training if self._training else 0.0

    @property
    def sites(self) -> float:
        """The share of the sites that each recorded step has."""
        return 1 / self.groups

    @property
    def text(self) -> str:
        """What it did, in words."""
        return str(self)

    def to_json(self) -> dict[str, Any]:
        """What a run keeps of it."""
        return {
            "limit": self.limit,
            "share": self.share,
            "interval": self.interval,
            "sites": self.sites,
            "steps": self.steps,
            "recorded": self.recorded,
            "text": self.text,
        }

    def turns(self, times: int) -> str:
        """What to say of a site that was never seen and had so many turns."""
        return f"the budget of {_percent(self.limit)} had it measured at {times} of {self.recorded} recorded steps"

    def __str__(self) -> str:
        parts = [f"Budget {_percent(self.limit)}: hookline took {_percent(self.share)} of the time."]
        if self.steps:
            often = f", the last ones 1 in {self.interval:,}" if self.interval > 1 and self._units else ""
            parts.append(f"{self.recorded:,} of {self.steps:,} steps were recorded{often}.")
        if self.groups > 1:
            parts.append(f"Sites took turns: 1 in {self.groups} at each recorded step.")
        if self._floor > (1 - AT_LEAST) * self.limit * self._training > 0:
            taken = _percent(self._floor / self._training)
            parts.append(f"To hear which step it is takes {taken} by itself, whatever is recorded.")
        elif self.share > self.limit:
            parts.append("What the first recorded step cost is not paid off yet." if not self._units else "")
        return " ".join(filter(None, parts))


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
