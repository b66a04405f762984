"""Run file: the one file that this process writes in a run's folder, shared by all who write there.

A watch writes rows to it, and recordings of any thread are noted in it. It stays where it is: one that somebody
deletes or replaces meanwhile is put back, or goes on in another folder, and that is told.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from hookline.alone import Alone, one_at_a_time
from hookline.errors import RunError
from hookline.rows import Row, Rows
from hookline.runfiles.clock import not_before, now
from hookline.runfiles.journal import SUFFIXES
from hookline.runfiles.places import (
    FILES,
    file_of,
    is_being_written,
    is_blank,
    is_empty,
    is_left_blank,
    last_step,
    meta_of,
    taken_by,
)
from hookline.runfiles.reader import Reader
from hookline.runfiles.schema import VERSION, StoredRecording
from hookline.runfiles.writer import Writer

_alone = Alone()
_files: dict[tuple[int, Path, int], RunFile] = {}
"""(process, folder, rank) -> the file that this process has begun there, open or not."""


class RunFile:
    """The file of this process in a run's folder; open as long as somebody uses it."""

    def __init__(self, path: Path, meta: dict[str, Any], writer: Writer) -> None:
        self.path, self.meta = path, meta
        self.first_step = 0
        self.has_rows = meta.get("by") != "record"
        """Whether it is, or was, a watch's: rows of a second one would mix with its own."""
        self.notice = ""
        """What there is to tell of the file; once, by whoever writes next."""
        self._process = os.getpid()
        self._writer: Writer | None = writer
        self._users = 0
        self._alone = Alone(lasting=False)
        self._recordings = _next_recording(path)
        self._stamps = self._seen()

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is the file of another process, from which this one was forked."""
        return os.getpid() != self._process

    def is_of_use(self) -> bool:
        """Whether somebody writes to it, or has written more than facts."""
        return bool(self._users) or not is_blank(self.path)

    @one_at_a_time
    def enter(self) -> None:
        """Somebody more uses it."""
        if self._writer is None:
            self._writer = Writer(self.path, None)
            self._stamps = self._seen()
        self._users += 1

    def leave(self, facts: dict[str, Any]) -> None:
        """Somebody is done with it, and notes how it went; the last one closes it."""
        if not self.is_elsewhere:  # else its lock may be held by a thread that this process does not have
            self._leave(facts)

    @one_at_a_time
    def _leave(self, facts: dict[str, Any]) -> None:
        self._users -= 1
        writer = self._writer
        try:
            if writer is not None and facts:
                self._stand()
                self.meta |= facts
                writer.meta(facts)
        finally:
            if not self._users and writer is not None:
                self._writer = None
                writer.close()

    @one_at_a_time
    def write(self, rows: Rows | list[Row]) -> None:
        """Writes rows: all are there afterwards, or none is."""
        writer = self._stand()
        writer.write(rows)
        self._stamps = self._seen()

    def keep(self, recording: Any, step: int | None) -> None:
        """Writes the tensors of a recording to a file of their own, and notes it once that is whole."""
        file = self._next_name()
        recording.save(self.path.parent / file)  # without the lock: threads write theirs at once
        self._add(StoredRecording(file, step, now("milliseconds"), recording.names))

    @one_at_a_time
    def _next_name(self) -> str:
        self._stand()
        number, self._recordings = self._recordings, self._recordings + 1
        return f"{self.path.stem}.{number:05d}.safetensors"

    @one_at_a_time
    def _add(self, kept: StoredRecording) -> None:
        self._stand().add_recording(kept)
        self._stamps = self._seen()

    @one_at_a_time
    def note(self, facts: dict[str, Any], *forgotten: str) -> None:
        """Sets facts of the run, and takes those away that hold no longer."""
        self.meta = {name: value for name, value in self.meta.items() if name not in forgotten} | facts
        writer = self._stand()
        writer.forget(*forgotten)
        writer.meta(facts)
        self._stamps = self._seen()

    def _seen(self) -> list[tuple[int, int] | None]:
        """Which file lies at the path, and which log beside it."""
        return [_stamp(Path(f"{self.path}{suffix}")) for suffix in ("", "-wal")]

    def _stand(self) -> Writer:
        """What writes to the file, which is where it was; else it is put there again, or in another folder."""
        assert self._writer is not None
        (file, log), (file_now, log_now) = self._stamps, self._seen()
        if file == file_now and (log is None or log == log_now):
            return self._writer
        what = f"{self.path} was {'replaced' if file_now else 'deleted'}"
        if file == file_now:
            what = f"the log of {self.path} was taken away"
        elif file_now is not None or taken_by(self.path.parent, self.meta["rank"]) is not None:
            self.path = _beside(self.path.parent) / self.path.name  # what is there now is somebody else's
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._writer.move(self.path)
        self.notice = f"{what} while it was written. All rows so far are in {self.path} now, and more go there."
        self._stamps = self._seen()
        return self._writer


@_alone
def opened(folder: Path, meta: dict[str, Any], *, resume: bool) -> RunFile:
    """The file of this process in a run's folder, which the caller uses from now on and has to `leave`.

    A new run, one that this process has begun and that has place for this (recordings go to any), or with
    `resume` the one that is there. RunError where it can't be.
    """
    key = (os.getpid(), folder, meta["rank"])
    mine = _files.get(key)
    if mine is not None and (not mine.path.exists() or not mine.is_of_use()):
        mine = None  # it was deleted when nobody used it, or nothing came of it
    recording = meta.get("by") == "record"
    if mine is None:
        mine = _resumed(folder, meta) if resume else None
        _files[key] = mine = mine or _begun(folder, meta, joining=resume)
        mine.enter()
    elif recording or not mine.has_rows:
        mine.enter()
        if not recording:
            mine.has_rows = True
            mine.note(meta, "by", "end", "ended")
    elif resume and "end" in mine.meta:
        mine.enter()
        _continue(mine, meta)
    else:
        raise _refusal(folder, "a run that this process has written" + _unended(mine))
    return mine


@_alone
def again(file: RunFile, meta: dict[str, Any]) -> None:
    """Goes on in the file of a run that its own writer had ended."""
    file.enter()
    _continue(file, meta)


def _begun(folder: Path, meta: dict[str, Any], *, joining: bool) -> RunFile:
    folder.mkdir(parents=True, exist_ok=True)
    if (blank := file_of(folder, meta["rank"])) is not None and is_left_blank(blank):
        for suffix in SUFFIXES:
            Path(f"{blank}{suffix}").unlink(missing_ok=True)
    if not joining and (there := taken_by(folder, meta["rank"])) is not None:
        raise _refusal(folder, there)
    file = folder / f"rank{meta['rank']}-0000.sqlite"
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL))  # of two processes at once, one gets it
    except FileExistsError:
        raise _refusal(folder, "a run that another process begins this moment") from None
    try:
        return RunFile(file, meta, Writer(file, {**meta, "began": [0]}))
    except BaseException:
        with suppress(OSError):
            if not file.stat().st_size:
                file.unlink()
        raise


def _resumed(folder: Path, meta: dict[str, Any]) -> RunFile | None:
    """The file of a run that goes on; None where there is none."""
    file = file_of(folder, meta["rank"])
    if file is not None and is_empty(file):
        if file.exists() and not is_left_blank(file):
            what = "a run that is just beginning, or whose process died then; try again in a minute"
            raise RunError(f"{folder} can't be resumed: it holds {what}.")
        file.unlink(missing_ok=True)
        file = None
    if file is None:
        return None
    with closing(Reader(file)) as reader:
        there = reader.meta
        times = [there.get("started"), there.get("ended"), *(kept.made for kept in reader.recordings()[-1:])]
    if is_being_written(there):
        raise RunError(f"{folder} can't be resumed: process {there['process']} is writing to it.")
    if there.get("version") != VERSION:
        raise RunError(f"{folder} can't be resumed: it has the format of another version of hookline.")
    for time in filter(None, times):
        not_before(str(time))
    mine = RunFile(file, there, Writer(file, None))
    _continue(mine, meta)
    return mine


def _continue(file: RunFile, meta: dict[str, Any]) -> None:
    """Notes that the run goes on, and where: after the last step of all its processes."""
    began = file.meta.get("began", [0])
    files = [one for one in file.path.parent.glob(FILES) if one.stat().st_size]
    others = [there for one in files if len(there := meta_of(one).get("began", [])) > len(began)]
    # Another process of the same training may have resumed already, and written more by now.
    file.first_step = others[0][len(began)] if others else 1 + max(map(last_step, files), default=-1)
    if meta.get("by") == "record":
        return
    file.has_rows = True
    kept = {"started": file.meta.get("started", meta["started"]), "since": now()}
    file.note({**meta, **kept, "began": [*began, file.first_step]}, "by", "end", "ended", "error")


def _refusal(folder: Path, there: str) -> RunError:
    return RunError(
        f"{folder} holds {there}. Two runs are not mixed in one folder: give another one; or "
        f"{str(folder.with_name(folder.name + '-*'))!r}, which gives each run the next number; or resume=True "
        "(of watch and RunStore), which goes on after the last step of the run that is there."
    )


def _unended(file: RunFile) -> str:
    return "" if "end" in file.meta else ", and that is not ended"


def _beside(folder: Path) -> Path:
    """The first of folder-2, folder-3, ... that is not there; it is now."""
    number = 2
    while True:
        try:
            (found := folder.with_name(f"{folder.name}-{number}")).mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return found


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _next_recording(path: Path) -> int:
    """The first number that no file of a recording has."""
    names = [one.name.split(".")[-2] for one in path.parent.glob(f"{path.stem}.*.safetensors")]
    return 1 + max((int(name) for name in names if name.isdecimal()), default=-1)
