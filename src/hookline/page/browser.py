"""Browser: the page opened in one. Every user of the machine can read its command line, so no token is there."""

from __future__ import annotations

import html
import os
import shutil
import tempfile
import webbrowser
from pathlib import Path

SNAPS = Path("/snap/bin")
"""Browsers that come as snaps see no temporary files, and of the home folder what is not hidden."""


class Door:
    """A file that leads to an address; only this user can read it, and it is removed when it was used."""

    def __init__(self, url: str) -> None:
        where = Path.home() if SNAPS.is_dir() else None
        self._folder = Path(tempfile.mkdtemp(prefix="hookline-page-", dir=where))  # mode 0700
        self.file = self._folder / "open.html"
        address = html.escape(url)
        text = (
            f'<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0; url={address}"><title>hookline</title>'
            f'<a href="{address}">The page</a>'
        )
        with os.fdopen(os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(text)

    def open(self) -> bool:
        """Whether a browser was found."""
        return webbrowser.open(self.file.as_uri())

    def remove(self) -> None:
        """A second time does nothing."""
        shutil.rmtree(self._folder, ignore_errors=True)
