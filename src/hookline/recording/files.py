"""Files: tensors in safetensors files, written whole or not at all, read without running code."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from hookline.backends import named
from hookline.backends.protocol import Backend
from hookline.errors import RunError, printable
from hookline.recording import seals

UNREADABLE = (
    OSError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    RuntimeError,
    ArithmeticError,
    MemoryError,
)
"""What reading a file that lies may end in."""


def write_tensors(path: Path, tensors: dict[str, Any], metadata: dict[str, str], framework: str) -> None:
    """Writes all tensors to `path`, with their checksums, by a temporary file that is renamed at the end."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sealed = {**metadata, seals.FIELD: seals.placeholder(len(tensors))}
        named(framework).write_safetensors(temporary, tensors, sealed)
        seals.seal(temporary)
        temporary.replace(path)
    except OSError as error:
        raise RunError(f"{path} can't be written: {error}") from error
    finally:
        with suppress(OSError):  # there is nothing to clean up where nothing could be written
            temporary.unlink(missing_ok=True)


def reader_of(framework: str) -> Backend:
    """The backend that reads a framework's tensors: its own, or numpy's where it is not installed."""
    try:
        return named(framework)
    except ImportError:
        return named("numpy")


def read_tensor(path: Path, key: str, framework: str) -> Any:
    """One tensor of a file; RunError where it is damaged."""
    try:
        seals.check(path, [key])
        return reader_of(framework).read_safetensors(path, [key])[key]
    except UNREADABLE as error:
        raise RunError(f"{path} can't be read: {printable(error)}") from error
