"""Comparing: the diff of two runs, or of a recording of each, found out aside; the latest are kept.

Who asks is told at once how far it is, and asks again. What nobody asks for any more is given up, so that no diff
goes on for a page that was closed.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

from hookline.diffs.compare import diff_recordings
from hookline.diffs.report import MOST_PLACES, shown
from hookline.diffs.result import Diff
from hookline.diffs.runs import diff_runs
from hookline.errors import HooklineError, InvalidArgument, RunError, printable
from hookline.page.viewed import ViewedRun
from hookline.reporting import quiet
from hookline.runs.folder import RunFolder
from hookline.runs.recordings import Recordings
from hookline.runs.run import Run, open_run

PATIENCE = 0.25
"""Seconds for which an answer is waited for; most diffs are there by then."""
GIVEN_UP = 10.0
"""A diff for which nobody has asked for so many seconds is given up."""
A_MOMENT, GIVE_WAY = 0.02, 0.002
"""After so many seconds of work others have so many: who looks at a page goes first."""
MOST_WAITING = 16
MOST_KEPT = 6
"""So many diffs are kept as they were told."""
MOST_BYTES = 12 << 20
"""No answer is longer; what would be has fewer places."""
PLACES = (MOST_PLACES, MOST_PLACES // 4, MOST_PLACES // 16)
MOST_RECORDINGS = 200
"""So many pairs of recordings are offered."""
MOST_TEXT = 2000

Tell = Callable[[float], None]


class Asked(NamedTuple):
    """What is to be compared: two runs by name or, with `kept`, the recordings with these numbers."""

    a: str
    b: str
    kept: tuple[int, int] | None

    @property
    def names(self) -> tuple[str, str]:
        return self.a, self.b


class GivenUp(Exception):
    """Raised inside of a diff that nobody asks for any more."""


class Job:
    """One diff: of which version of the runs, what is told of them, how far it is, and at last the answer."""

    def __init__(self, asked: Asked, of: str, sides: list[dict[str, Any]]) -> None:
        self.asked, self.of, self.sides = asked, of, sides
        self.share = 0.0
        self.is_begun = False
        self.wanted = time.monotonic()
        self.done = threading.Event()
        self.answer: bytes | None = None

    def is_wanted(self) -> bool:
        return time.monotonic() - self.wanted < GIVEN_UP


class Comparisons:
    """The diffs of the runs of a folder; one thread works on them, one after the other."""

    def __init__(self, shelf: RunFolder[ViewedRun]) -> None:
        self._shelf = shelf
        self._jobs: OrderedDict[tuple[Asked, str], Job] = OrderedDict()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_over = False

    def answer(self, asked: Asked, of: str | None = None, *, seen: bool = False) -> bytes:
        """JSON: the diff, or how far it is, or why there is none.

        `of` is the version of the data that a diff was begun with; without it, or where it is no longer kept, that
        of now is taken. Who has `seen` it is told whether the runs have changed since.
        """
        _check(asked)
        stamps, sides = [], []
        for name in asked.names:
            stamp, told = self._shelf.now(name)
            stamps.append(stamp)
            sides.append({field: told.get(field) for field in ("name", "last", "state")})
        now = hashlib.sha256(repr((stamps, asked.kept)).encode()).hexdigest()[:16]
        if seen:
            return as_bytes({"state": "seen", "is_new": now != of, "sides": sides})
        job = self._job(asked, of, now, sides)
        job.done.wait(PATIENCE)
        if job.answer is not None:
            return job.answer
        return as_bytes(
            {"state": "working", "of": job.of, "share": round(job.share, 3), "waits": not job.is_begun}
        )

    def _job(self, asked: Asked, of: str | None, now: str, sides: list[dict[str, Any]]) -> Job:
        with self._lock:
            job = self._jobs.get((asked, of or now)) or self._jobs.get((asked, now))
            if job is None:
                self._forget()
                if sum(one.answer is None for one in self._jobs.values()) >= MOST_WAITING:
                    raise RunError(
                        f"{MOST_WAITING} other diffs are waited for. Close some pages, and reload this."
                    )
                job = self._jobs[asked, now] = Job(asked, now, sides)
            self._jobs.move_to_end((asked, job.of))
            job.wanted = time.monotonic()
            if job.answer is None and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._work, name="hookline-diffs", daemon=True)
                self._thread.start()
            return job

    def _forget(self) -> None:
        """Leaves the latest of what is done, and what is waited for."""
        done = [key for key, job in self._jobs.items() if job.answer is not None]
        idle = [key for key, job in self._jobs.items() if not job.is_begun and not job.is_wanted()]
        for key in [*done[: max(0, len(done) - MOST_KEPT + 1)], *idle]:
            del self._jobs[key]

    def stop(self) -> None:
        """Has the thread end soon, and waits for that."""
        self._is_over = True
        if (thread := self._thread) is not None:
            thread.join(5.0)

    def _work(self) -> None:
        while True:
            with self._lock:
                self._forget()
                job = next((one for one in self._jobs.values() if not one.is_begun), None)
                if job is None or self._is_over:
                    self._thread = None
                    return
                job.is_begun = True
            try:
                with quiet():
                    job.answer = self._found(job)
            except GivenUp:
                with self._lock:
                    del self._jobs[job.asked, job.of]
            job.done.set()

    def _found(self, job: Job) -> bytes:
        """The answer; all that can go wrong is told as a sentence, since nobody waits for this thread."""

        rested = time.monotonic()

        def tell(share: float) -> None:
            nonlocal rested
            job.share = share
            if self._is_over or not job.is_wanted():
                raise GivenUp
            if time.monotonic() - rested > A_MOMENT:
                time.sleep(GIVE_WAY)
                rested = time.monotonic()

        told: dict[str, Any] = {"of": job.of, "sides": job.sides, "recordings": []}
        try:
            with ExitStack() as opened:
                one, two = (opened.enter_context(open_run(self._shelf.path(name))) for name in job.asked.names)
                told["recordings"] = in_step(one.recordings, two.recordings)
                diff = compared(job.asked, one, two, tell)
            return _within_limits(diff, told)
        except HooklineError as error:
            text = printable(error, MOST_TEXT)
        except GivenUp:
            raise
        except Exception as error:
            text = printable(f"the two could not be compared: {type(error).__name__}: {error}", MOST_TEXT)
        return as_bytes({"state": "failed", **told, "error": text})


def asked_in(question: dict[str, Any]) -> tuple[Asked, str | None, bool]:
    """(what, of which version, whether it is on the screen already) of a question of the browser's."""
    kept, of = question.get("kept"), question.get("of")
    if kept is not None and not (
        isinstance(kept, list) and len(kept) == 2 and all(type(one) is int and one >= 0 for one in kept)
    ):
        raise InvalidArgument("kept: expected the numbers of two recordings.")
    if of is not None and not (isinstance(of, str) and len(of) <= 64):
        raise InvalidArgument("of: expected the version of a diff.")
    numbers = None if kept is None else (kept[0], kept[1])
    return Asked(question["a"], question["b"], numbers), of, question.get("seen") is True


def _check(asked: Asked) -> None:
    if asked.a == asked.b:
        raise InvalidArgument(f"A and B are the same run, {printable(repr(asked.a))}. Choose two different runs.")


def compared(asked: Asked, one: Run, two: Run, tell: Tell) -> Diff:
    """The diff of two runs, or of a recording of each."""
    if asked.kept is None:
        diff = diff_runs(one, two, tell=tell)
        diff.a, diff.b = asked.names
        return diff
    sides = [
        _recording(name, run.recordings, number)
        for name, run, number in zip(asked.names, (one, two), asked.kept, strict=True)
    ]
    (first, a), (second, b) = sides
    return diff_recordings(first, second, a, b, tell=tell)


def _recording(name: str, kept: Recordings, number: int) -> tuple[Any, str]:
    """A recording of a run, and what it is called."""
    if number >= len(kept):
        many = f"{len(kept)} recordings, from 0 to {len(kept) - 1}" if len(kept) else "no recordings"
        raise RunError(f"the run {name!r} has no recording {number}: it has {many}.")
    step = kept.steps[number]
    return kept[number], f"{name}, recording {number}{'' if step is None else f' at step {step:,}'}"


def in_step(a: Recordings, b: Recordings) -> list[dict[str, Any]]:
    """Which recordings of two runs may be compared: those of the same step, else those of the same number."""
    places = [_by_step(kept.steps) for kept in (a, b)]
    common = [key for key in places[0] if key in places[1]]
    found = [{"kept": [places[0][key], places[1][key]], "step": key[0]} for key in common]
    found = found or [{"kept": [at, at], "step": None} for at in range(min(len(a), len(b)))]
    return found[:MOST_RECORDINGS]


def _by_step(steps: list[int | None]) -> dict[tuple[int, int], int]:
    """{(step, how many of that step came before): number}, of the recordings that have a step."""
    found: dict[tuple[int, int], int] = {}
    before: Counter[int] = Counter()
    for number, step in enumerate(steps):
        if step is not None:
            found[step, before[step]] = number
            before[step] += 1
    return found


def _within_limits(diff: Diff, told: dict[str, Any]) -> bytes:
    for most in PLACES:
        answer = as_bytes({"state": "ready", **told, "data": shown(diff, most)})
        if len(answer) <= MOST_BYTES:
            return answer
    raise RunError(
        f"what differs takes more than {MOST_BYTES >> 20} MB, which is too much for a page: names in the runs are "
        "very long. In Python, hookline.diff(a, b) has all of it."
    )


def as_bytes(answer: Any) -> bytes:
    """JSON as it is sent."""
    return json.dumps(answer, separators=(",", ":"), allow_nan=False).encode()
