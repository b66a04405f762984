"""Attaching: a watch on a model that was found. What this imports is imported when there is one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hookline.runfiles.opening import run_files
from hookline.runfiles.places import is_blank
from hookline.watching.block import Watch
from hookline.watching.watch import watch


def watched(model: Any, folder: Path | None, options: Mapping[str, Any]) -> Watch:
    """The model, watched from now on; its rows go to the folder, if there is one."""
    to = () if folder is None else folder
    block = watch(model, to=to, progress=False, **options)
    block.search_origins()
    started: Watch = block.start()
    return started


def remove_run(folder: Path) -> None:
    """Removes what this process wrote of a run, and the folder if nothing else is in it."""
    for file in folder.glob(f"rank{os.environ.get('RANK', '0')}-*.sqlite*"):
        file.unlink(missing_ok=True)
    with suppress(OSError):  # something else is in there
        folder.rmdir()


def is_empty(folder: Path) -> bool:
    """Whether there is no row in the run of a folder."""
    return all(is_blank(file) for file in run_files(folder))
