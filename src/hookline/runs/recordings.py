"""Recordings: the tensors that `record(..., to=run)` kept in a run, read when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import overload

from hookline.recording.loading import open_recording
from hookline.recording.recording import Recording
from hookline.runfiles.opening import check_plain
from hookline.runfiles.schema import StoredRecording


class Recordings(Sequence[Recording]):
    """The recordings of a run, in the order in which they were made; `steps` has the step of each.

    Getting one reads names and shapes of structures only; a tensor is read from its file when it is
    looked at, and only that one.
    """

    def __init__(self, folder: Path, kept: list[StoredRecording]) -> None:
        self._folder, self._kept = folder, kept

    @property
    def steps(self) -> list[int | None]:
        """The step of each recording; None where it was made outside of a watch."""
        return [one.step for one in self._kept]

    @property
    def sites(self) -> list[list[str]]:
        """The names of the sites that fired, for each recording, in order of execution."""
        return [one.sites for one in self._kept]

    def at(self, step: int) -> Recordings:
        """The recordings of one step."""
        return Recordings(self._folder, [one for one in self._kept if one.step == step])

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, index: int) -> Recording: ...
    @overload
    def __getitem__(self, index: slice) -> Recordings: ...
    def __getitem__(self, index: int | slice) -> Recording | Recordings:
        if isinstance(index, slice):
            return Recordings(self._folder, self._kept[index])
        path = self._folder / Path(self._kept[index].file).name
        check_plain(path)
        return open_recording(path)

    def __repr__(self) -> str:
        return f"<{len(self)} recordings in {str(self._folder)!r}>"
