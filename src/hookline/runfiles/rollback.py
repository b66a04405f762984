"""Rollback: what a killed process left half-written is undone in a copy of its file, without SQLite.

A rollback journal has the pages as they were before the transaction. SQLite would play it back as well, but it
also follows a name at the journal's end, a super-journal, and removes the file of that name, wherever it lies.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from hookline.errors import RunError

MAGIC = bytes.fromhex("d9d505f920a163d7")
HEADER = struct.Struct(">8sIIIII")
"""Magic, how many pages follow, the checksums' start, pages of the file before, sector size, page size."""
TO_THE_END = 0xFFFFFFFF
TAIL = 16
"""A journal with a super-journal ends with the length of its name, a checksum, and the magic once more."""
PAGE_SIZES = {1 << power for power in range(9, 17)}
SECTOR_SIZES = {1 << power for power in range(5, 17)}


def check_journal(path: Path) -> None:
    """RunError where the journal `path` names a super-journal; hookline writes no such journal."""
    with path.open("rb") as journal:
        size = journal.seek(0, 2)
        if size < TAIL:
            return
        journal.seek(-TAIL, 2)
        tail = journal.read(TAIL)
    if tail.endswith(MAGIC) and any(tail[:4]):
        raise RunError(
            f"{path} names a file elsewhere that SQLite would remove (a super-journal). hookline writes no such "
            "journal: the run was made or changed by somebody else, and is not opened."
        )


def undo(journal_path: Path, file: BinaryIO) -> None:
    """Writes the pages of a journal back into `file`, and cuts off what it had not before.

    A journal that begins otherwise has been played back already, or was never finished: nothing is changed.
    """
    with journal_path.open("rb") as journal:
        end, at = journal.seek(0, 2), 0
        pages_before, page_size = None, 0
        while (header := _header(journal, at, end)) is not None:
            count, start, before, sector, size = header
            if pages_before is None:
                pages_before, page_size = before, size
            elif size != page_size:
                break
            at += max(sector, HEADER.size)
            room = (end - at) // (page_size + 8)
            for _ in range(room if count == TO_THE_END else min(count, room)):
                if not _undo_page(journal, at, page_size, start, pages_before, file):
                    at = end
                    break
                at += page_size + 8
            at += -at % sector
    if pages_before is not None and pages_before * page_size < file.seek(0, 2):
        file.truncate(pages_before * page_size)


def _header(journal: BinaryIO, at: int, end: int) -> tuple[int, int, int, int, int] | None:
    if at + HEADER.size > end:
        return None
    journal.seek(at)
    magic, count, start, before, sector, size = HEADER.unpack(journal.read(HEADER.size))
    if magic != MAGIC or sector not in SECTOR_SIZES or size not in PAGE_SIZES:
        return None
    return count, start, before, sector, size


def _undo_page(journal: BinaryIO, at: int, size: int, start: int, pages: int, file: BinaryIO) -> bool:
    """Whether the page was whole; one that is new in the transaction is not needed."""
    journal.seek(at)
    record = journal.read(size + 8)
    (number,) = struct.unpack_from(">I", record)
    page = record[4 : 4 + size]
    (expected,) = struct.unpack_from(">I", record, 4 + size)
    if (start + sum(page[place] for place in range(size - 200, 0, -200))) & 0xFFFFFFFF != expected:
        return False
    if 1 <= number <= pages:
        file.seek((number - 1) * size)
        file.write(page)
    return True
