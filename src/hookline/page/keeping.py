"""Keeping: a port and a token that are a folder's own, so that bookmarks live when its page is served again.

The tokens of all folders are made of one key, which this user alone can read. A token that leaks opens one
folder on one port, and no other.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

PORTS = range(20_000, 30_000)
"""Below the ports that systems hand out by themselves, so that a folder's own is seldom taken."""
KEY_BYTES = 32


def port_of(folder: Path) -> int:
    """The folder's own port."""
    number = int.from_bytes(hashlib.sha256(str(folder).encode("utf-8", "surrogateescape")).digest()[:8], "big")
    return PORTS[number % len(PORTS)]


def token_of(folder: Path, port: int) -> str:
    """The folder's own token on that port; OSError where no key can be kept."""
    about = f"{folder} {port}".encode("utf-8", "surrogateescape")
    return base64.urlsafe_b64encode(hmac.digest(_key(), about, "sha256")[:24]).decode()


def state_folder() -> Path:
    """Where hookline keeps what is this user's own."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state") / "hookline"


def _key() -> bytes:
    """The key of this user, made at first; OSError where somebody else could have read or written it."""
    file = state_folder() / "page-key"
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = file.with_name(f"{file.name}-{secrets.token_hex(8)}")
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
                opened.write(secrets.token_bytes(KEY_BYTES))
            with suppress(FileExistsError):  # another process was first: its key is taken
                os.link(new, file)  # whole from the first moment
        finally:
            new.unlink(missing_ok=True)
    return _read(file)


def _read(file: Path) -> bytes:
    opened = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(opened, "rb") as stored:
        about = os.fstat(opened)
        if hasattr(os, "getuid") and (about.st_uid != os.getuid() or about.st_mode & 0o077):
            raise PermissionError(f"{file} is not readable by you alone; remove it, and a new one is made")
        key = stored.read()
    if len(key) != KEY_BYTES:
        raise OSError(f"{file} is damaged; remove it, and a new one is made")
    return key
