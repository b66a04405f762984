"""RecordingTarget: a recording that goes to a run when its block ends."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hookline.backends.capabilities import capabilities
from hookline.backends.protocol import Backend
from hookline.errors import InvalidArgument
from hookline.hooks.select import Target
from hookline.recording.recording import Recording
from hookline.reporting import warn


def facts_of(backend: Backend, targets: Iterable[Target]) -> dict[str, Any]:
    """What a run is told of the model that is recorded or watched."""
    return {
        "backend": backend.name,
        "package": capabilities()[backend.name].package,
        "rank": backend.rank(),
        "sites": [[target.name, type(target.module).__name__] for target in targets],
    }


class RecordingTarget:
    """Where `record(..., to=...)` keeps its recording: the folder of a run, a RunStore or a Watch."""

    def __init__(self, to: Any) -> None:
        if not isinstance(to, (str, Path)) and not callable(getattr(to, "keep", None)):
            raise InvalidArgument(f"record(to={to!r}): expected the folder of a run, a RunStore or a Watch.")
        self._own: Any = None  # the store of a folder that was named, open during the block
        if isinstance(to, (str, Path)):
            from hookline.runfiles.store import RunStore

            to = self._own = RunStore(to)
        self._to = to

    def open(self, meta: dict[str, Any]) -> None:
        """Makes ready before the model runs; RunError where the folder can't be used."""
        if self._own is not None:
            self._own.open({**meta, "by": "record"})

    def take(self, recording: Recording) -> None:
        """Keeps the recording. Where that fails it says so, and the recording is still in memory."""
        try:
            self._to.keep(recording)
        except Exception as error:  # what the model was run for must not be lost for it
            message = f"a recording could not be kept, and is in memory only: {type(error).__name__}: {error}"
            warn(message, stacklevel=3)

    def close(self) -> None:
        if self._own is not None:
            self._own.close()
