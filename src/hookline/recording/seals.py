"""Seals: checksums of the tensors in a safetensors file, so that damage is told and not handed on as numbers.

They are in the file's metadata, which is written before the tensors: a text of the right length holds their place
until the file is whole, and is then replaced. Files without it, of an older hookline, are read as they are.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from hookline.errors import RunError

FIELD = "hookline_crc"
MOST_HEADER = 100_000_000
"""As long as safetensors allows a header to be."""
PIECE = 1 << 20
"""So many bytes are read at a time."""
Span = tuple[int, int]
"""Where the bytes of a tensor begin in the file, and where they end."""


def placeholder(tensors: int) -> str:
    """The text that holds the place of the checksums: that of the header, then those of so many tensors."""
    return _text([0] * (1 + tensors))


def seal(path: Path) -> None:
    """Puts the checksums of a whole file in their place."""
    with path.open("r+b") as file:
        raw = _raw_header(file, path)
        spans = _spans(raw, path)
        numbers = [_checksum(file, span) for _, span in sorted(spans.items())]
        empty = placeholder(len(spans)).encode()
        at = raw.index(empty)
        sealed = raw.replace(empty, _text([0, *numbers]).encode(), 1)
        file.seek(8 + at)
        file.write(_text([zlib.crc32(sealed), *numbers]).encode())


def header_of(path: Path) -> dict[str, Any]:
    """The header of a safetensors file; RunError where it is damaged, or is none."""
    with path.open("rb") as file:
        raw = _raw_header(file, path)
    found: dict[str, Any] = json.loads(raw)
    if (text := _noted(found)) is not None:
        first = text.split(" ", 1)[0]
        if zlib.crc32(raw.replace(text.encode(), text.replace(first, "0" * 8, 1).encode(), 1)) != int(first, 16):
            raise RunError(f"{path} is damaged: the checksum of its header does not agree.")
    return found


def check(path: Path, names: Iterable[str] | None = None) -> None:
    """RunError where the bytes of these tensors, or of all, are not those that were written."""
    stat = path.stat()
    sealed = _sealed(path, (stat.st_ino, stat.st_size, stat.st_mtime_ns))
    with path.open("rb") as file:
        for name in sealed if names is None else names:
            if name in sealed and _checksum(file, sealed[name][0]) != sealed[name][1]:
                raise RunError(f"{path} is damaged: the checksum of its tensor {name!r} does not agree.")


@lru_cache(maxsize=16)
def _sealed(path: Path, stamp: tuple[int, ...]) -> dict[str, tuple[Span, int]]:
    """Where each tensor of a file is, and its checksum; none where the file has no checksums.

    Kept, since tensors are asked for one by one. `stamp` tells whether it is the same file still.
    """
    text = _noted(header_of(path))
    if text is None:
        return {}
    with path.open("rb") as file:
        spans = _spans(_raw_header(file, path), path)
    numbers = [int(number, 16) for number in text.split(" ")[1:]]
    return {name: (spans[name], number) for name, number in zip(sorted(spans), numbers, strict=True)}


def _noted(header: dict[str, Any]) -> str | None:
    text = header["__metadata__"].get(FIELD) if isinstance(header.get("__metadata__"), dict) else None
    if text is not None and not isinstance(text, str):
        raise ValueError("its checksums are no text")
    return text


def _text(numbers: list[int]) -> str:
    return " ".join(f"{number:08x}" for number in numbers)


def _raw_header(file: BinaryIO, path: Path) -> bytes:
    file.seek(0)
    size = int.from_bytes(file.read(8), "little")
    if size > min(path.stat().st_size, MOST_HEADER):
        raise RunError(f"{path} is not a safetensors file, or is cut off.")
    return file.read(size)


def _spans(raw: bytes, path: Path) -> dict[str, Span]:
    start, end = 8 + len(raw), path.stat().st_size
    found: dict[str, Span] = {}
    for name, one in json.loads(raw).items():
        if name != "__metadata__":
            first, last = one["data_offsets"]
            if type(first) is not int or type(last) is not int or not 0 <= first <= last <= end - start:
                raise ValueError(f"its tensor {name!r} lies outside of the file")
            found[name] = start + first, start + last
    return found


def _checksum(file: BinaryIO, span: Span) -> int:
    at, end = span
    file.seek(at)
    crc = 0
    while at < end:
        piece = file.read(min(PIECE, end - at))
        if not piece:
            raise ValueError("it is cut off")
        crc, at = zlib.crc32(piece, crc), at + len(piece)
    return crc
