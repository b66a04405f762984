"""Every exception hookline raises.

HooklineError
├── InvalidArgument     also TypeError and ValueError: an argument that can't be used
├── NoSuchSite          also LookupError: a selection that matches nothing
├── NotRecorded         also AttributeError: reading what the recording was not asked to keep
├── Unsupported         also NotImplementedError: this backend can't do that, and why
├── MissingExtra        also ImportError: an optional package is not installed
├── RecordingTooLarge   also MemoryError: `limit=` is reached
├── RunError            a stored run or recording that can't be read
├── ForwardError        also RuntimeError: a model failed while it was looked at, with the module
├── FindingRaised       also RuntimeError: `watch(diagnose=True, on_finding="raise")` found an error
│   └── TrainingStopped     the same for "stop"; the block of the watch ends it
└── HookError           also RuntimeError: an error inside a user's hook, with its site
    └── WrongReplacement    also ValueError: a hook returned what its site can't take

UntestedVersion is a UserWarning: a framework in a version that hookline was never tested with.

The second base lets ordinary code (`except LookupError`) go on working.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class HooklineError(Exception):
    """The base of everything raised on purpose."""


class InvalidArgument(HooklineError, TypeError, ValueError):
    """An argument that can't be used; the message says what would do."""


class NoSuchSite(HooklineError, LookupError):
    """A selection that matches no module of the model.

    >>> str(NoSuchSite("fc3", ["fc1", "fc2"]))
    "no site matches 'fc3'. Did you mean 'fc2' or 'fc1'? The model has 2 sites: 'fc1', 'fc2'."
    """

    def __init__(self, asked: object, known: Iterable[str], note: str = "") -> None:
        self.asked = asked
        self.known = tuple(known)
        message = f"no site matches {asked!r}.{near(asked, self.known)}"
        shown = ", ".join(map(repr, self.known[:8])) + (", ..." if len(self.known) > 8 else "")
        message += f" The model has {len(self.known)} sites: {shown}."
        super().__init__(f"{message} {note}".rstrip())


class NotRecorded(HooklineError, AttributeError):
    """What was asked of a recording was not kept by it."""


class Unsupported(HooklineError, NotImplementedError):
    """A backend can't do this; `why` it can't and what to do `instead` are part of the message."""

    def __init__(self, *, backend: str, feature: str, why: str, instead: str) -> None:
        self.backend, self.feature, self.why, self.instead = backend, feature, why, instead
        super().__init__(f"{feature} is not supported on {backend}: {why}. Instead: {instead}.")


class UntestedVersion(UserWarning):
    """The framework in use is of a version that hookline was never tested with."""


class MissingExtra(HooklineError, ImportError):
    """An optional package is needed and not installed."""


class RecordingTooLarge(HooklineError, MemoryError):
    """A recording reached its `limit`; what was recorded until then is in `recording`."""

    def __init__(self, site: str, limit: int, needed: int) -> None:
        self.site, self.limit, self.needed = site, limit, needed
        self.recording: Any = None
        super().__init__(
            f"recording {site!r} would take {needed:,} bytes in all, the limit is {limit:,}. "
            "What was recorded before it is kept. Record fewer sites (where=), reduce what is "
            "stored (reduce=, dtype=), raise limit=, or give spill=DIR to go on on disk."
        )


class RunError(HooklineError):
    """A stored run or recording that can't be read or written."""


class ForwardError(HooklineError, RuntimeError):
    """A model raised while it was summarised or traced; `__cause__` is what it raised.

    `site` is the module where it happened, `arguments` the shapes that reached it, `summary` what was
    seen up to there (None where nothing was).
    """

    def __init__(self, site: str, kind: str, arguments: str, error: Exception, shown: str = "") -> None:
        self.site, self.arguments = site, arguments
        self.summary: Any = None
        where = f"{site!r} ({kind})" if site else f"the model's own forward ({kind})"
        message = f"{where} raised {type(error).__name__}: {str(error).strip()}"
        message += f"\nWhat reached it: {arguments or 'nothing'}."
        super().__init__(f"{message}\n{shown}" if shown else message)


class FindingRaised(HooklineError, RuntimeError):
    """A rule found an error in a training that is watched with on_finding="raise"; `finding` is what it found."""

    def __init__(self, finding: Any) -> None:
        self.finding = finding
        super().__init__(str(finding))


class TrainingStopped(FindingRaised):
    """The same with on_finding="stop": the `with` block of the watch ends it, and what follows that goes on."""


class HookError(HooklineError, RuntimeError):
    """An exception inside a user's hook; `site` is where, `__cause__` is the exception."""

    def __init__(self, site: str, kind: str, reason: str) -> None:
        self.site, self.kind, self.reason = site, kind, reason
        super().__init__(f"the {kind} at site {site!r} {reason}")


class WrongReplacement(HookError, ValueError):
    """A hook returned something that can't stand in for the value it saw."""


def printable(thing: object, most: int = 300) -> str:
    """The text of something that a file may have made up: short, and without what steers a terminal."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in str(thing)[:most])


def near(asked: object, known: Iterable[str]) -> str:
    """A question that names what is like `asked`, or nothing where nothing is.

    >>> near("outputs", ["output", "param"])
    " Did you mean 'output'?"
    """
    found = difflib.get_close_matches(asked, list(known), n=3, cutoff=0.5) if isinstance(asked, str) else []
    return f" Did you mean {_either(found)}?" if found else ""


def _either(words: list[str]) -> str:
    quoted = [repr(word) for word in words]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " or " + quoted[-1]
