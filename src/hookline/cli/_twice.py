"""twice: a script that runs two times, each in a process of its own, with fingerprints of all that trains."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import click

import hookline

OURS = re.compile(rb"(?m)^hookline: kept in .*(\n|\Z)")
"""The line that says where a run is, which may not be there for long."""
LAST_LINES = 20
FAILED = 2


class Script(NamedTuple):
    """A script or module with its arguments, and how it is watched."""

    name: str
    args: Sequence[str]
    is_module: bool
    options: Sequence[str]

    def command(self, folder: Path) -> list[str]:
        """What runs it, and keeps its runs in a folder."""
        how = ["--fingerprint", "--no-verdict", "--to", str(folder), *self.options]
        return [sys.executable, "-m", "hookline", "run", *how, *["-m"] * self.is_module, self.name, *self.args]


def run_twice(script: Script, folders: tuple[Path, Path]) -> dict[str, Any]:
    """The diff of each model that trained, by its name; what is no mistake of the script's ends with a sentence.

    What the first run prints goes to standard error, and so does what the second says if it fails. Both get the
    same standard input.
    """
    typed = Typed()
    code = _Process(script.command(folders[0]), typed, shows=True).wait()
    if code:
        raise Failed(f"{script.name} {_how(code)} in its first run: nothing was compared.")
    if not _runs(folders[0]):
        raise Failed(f"nothing was watched in the first run of {script.name}: nothing was compared.")
    second = _Process(script.command(folders[1]), typed, shows=False)
    code = second.wait()
    if code:
        click.echo(second.last_words(), err=True)
        click.echo(f"{script.name} succeeded in its first run, and {_how(code)} in its second.", err=True)
    return dict(_compared(script, folders))


def _how(code: int) -> str:
    return f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"


class Failed(click.ClickException):
    """The script could not be run twice."""

    exit_code = FAILED


class Typed:
    """Standard input, handed on to one process while it comes, and to the next as it came."""

    def __init__(self) -> None:
        self._kept = b""
        self._reader: threading.Thread | None = None
        self._to: IO[bytes] | None = None

    def hand(self, to: IO[bytes]) -> None:
        """Has a process get what was typed so far, and what comes from now on if it is the first."""
        if self._reader is None:
            self._to = to
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()
            return
        with suppress(OSError), to:
            to.write(self._kept)

    def _read(self) -> None:
        with suppress(OSError, ValueError, AttributeError):  # none is there, or the process has ended
            while part := os.read(sys.stdin.fileno(), 1 << 16):
                self._kept += part
                assert self._to is not None
                self._to.write(part)
                self._to.flush()
        with suppress(OSError):
            if self._to is not None:
                self._to.close()


class _Process:
    """A run of the script; what it prints is shown, or kept in case that it fails."""

    def __init__(self, command: list[str], typed: Typed, *, shows: bool) -> None:
        self._shows, self._said = shows, b""
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
        streams = (self._process.stdout, self._process.stderr)
        self._readers = [threading.Thread(target=self._show, args=(stream,), daemon=True) for stream in streams]
        for reader in self._readers:
            reader.start()
        assert self._process.stdin is not None
        typed.hand(self._process.stdin)

    def wait(self) -> int:
        """Its exit code, once all that it printed is here; it is ended if that is interrupted."""
        try:
            code = self._process.wait()
            for reader in self._readers:
                reader.join()
            return code
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()

    def last_words(self) -> str:
        """The end of what it printed."""
        return "\n".join(self._said.decode(errors="replace").splitlines()[-LAST_LINES:])

    def _show(self, stream: IO[bytes]) -> None:
        is_cut = False  # the end of our line is still to come
        while part := stream.read(1 << 16):
            text = OURS.sub(b"", part.removeprefix(b"\n") if is_cut else part)
            is_cut = text != part and not part.endswith(b"\n")
            if not self._shows:
                self._said += text
            elif sys.stderr is not None:
                with suppress(OSError, ValueError):
                    sys.stderr.write(text.decode(errors="replace"))
                    sys.stderr.flush()


def _runs(folder: Path) -> dict[str, Path]:
    """The runs that a script left: that of its first model, and one in a folder of its name for each further."""
    found = {path.parent for path in folder.rglob("rank*-*.sqlite")}
    return {"" if path == folder else path.relative_to(folder).as_posix(): path for path in sorted(found)}


def _compared(script: Script, folders: tuple[Path, Path]) -> Iterator[tuple[str, hookline.Diff]]:
    first, second = (_runs(folder) for folder in folders)
    if first.keys() != second.keys():
        only = sorted(first.keys() ^ second.keys())
        click.echo(f"only one of the two runs trained {', '.join(name or 'a model' for name in only)}.", err=True)
    if not first.keys() & second.keys():
        raise Failed(f"no model trained in both runs of {script.name}: nothing was compared.")
    for name in sorted(first.keys() & second.keys()):
        diff = hookline.diff(first[name], second[name])
        of = f", {name}" if name else ""
        diff.a, diff.b = f"{script.name}, first run{of}", f"{script.name}, second run{of}"
        yield name, diff
