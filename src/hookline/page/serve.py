"""serve: the live page, in a thread of this process."""

from __future__ import annotations

import importlib
import secrets
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hookline.errors import HooklineError, MissingExtra
from hookline.page import keeping
from hookline.page.browser import Door
from hookline.page.viewed import ViewedRun
from hookline.runs.folder import RunFolder

MONTH = 30 * 24 * 3600
"""Seconds for which a browser keeps the cookie of a lasting page."""


def serve(folder: str | Path, *, host: str = "127.0.0.1", port: int = 0, lasting: bool = False) -> Server:
    """A Server that shows the runs in `folder` (or the one that it is) until `close`; `url` is where.

    A folder that is not there yet is waited for. Port 0 takes a free one. Only this machine can reach it,
    unless another `host` is given, and only who has the token in `url`. A page that is `lasting` has the
    folder's own port, unless one is given, and a token that stays: bookmarks live when it is served again.
    """
    try:
        app, guard, uvicorn = (
            importlib.import_module(name) for name in ("hookline.page.app", "hookline.page.guard", "uvicorn")
        )
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise MissingExtra("the page needs starlette and uvicorn. Run: pip install 'hookline[page]'") from error
    shelf = RunFolder(folder, ViewedRun)
    here = shelf.folder.resolve()
    listening, token, note = _lasting(here, host, port) if lasting else (_listening(host, port), "", None)
    port = listening.getsockname()[1]
    pages = app.Pages(shelf)
    guarded = guard.RequestGuard(
        pages.app(),
        token=token or secrets.token_urlsafe(24),
        host=host,
        port=port,
        seconds=MONTH if token else None,
    )
    config = uvicorn.Config(
        guarded,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=3,
    )
    return Server(shelf, pages, guarded, uvicorn.Server(config), listening, _shown(host), note)


def _lasting(folder: Path, host: str, port: int) -> tuple[socket.socket, str, str | None]:
    """(socket, token, why bookmarks don't live); the token is empty where none can be kept."""
    note = None
    try:
        listening = _listening(host, port or keeping.port_of(folder))
    except HooklineError:
        if port:
            raise
        own = keeping.port_of(folder)
        note = f"port {own}, where bookmarks of this folder lead, is taken; is its page open already?"
        listening = _listening(host, 0)
    try:
        return listening, keeping.token_of(folder, listening.getsockname()[1]), note
    except (OSError, RuntimeError) as error:  # RuntimeError: this user has no home
        return listening, "", f"bookmarks end with this page: {error}"


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        instead = "Port 0 takes a free one." if port else "Is that an address of this machine?"
        raise HooklineError(f"can't listen on {host}, port {port}: {error.strerror}. {instead}") from error


class Server:
    """A running page; as a context manager it closes at the end of the block."""

    def __init__(
        self,
        shelf: RunFolder[ViewedRun],
        pages: Any,
        guard: Any,
        server: Any,
        listening: socket.socket,
        host: str,
        note: str | None,
    ) -> None:
        self.url = f"http://{host}:{listening.getsockname()[1]}/?token={guard.token}"
        """The address to open, with the token."""
        self.note = note
        """Why bookmarks of a lasting page don't live, if that is so."""
        self._shelf, self._pages, self._guard, self._server = shelf, pages, guard, server
        self._door: Door | None = None
        self._thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listening]}, name="hookline-page", daemon=True
        )
        self._thread.start()

    def address(self, run: str) -> str:
        """The address that leads to one run at once, with the token."""
        return f"{self.url}&run={quote(run, safe='')}"

    def open(self, run: str | None = None) -> bool:
        """Opens the page in a browser, at one run or the list of all; whether there is a browser.

        Its command line does not show the token.
        """
        self._door = door = Door(self.url if run is None else self.address(run))
        self._guard.entered = door.remove
        return door.open()

    def wait(self) -> None:
        """Comes back when Ctrl-C is pressed, or another thread has closed the server."""
        try:
            while self._thread.is_alive():
                self._thread.join(0.5)
        except KeyboardInterrupt:
            pass

    def close(self) -> None:
        """Ends the server; a second time does nothing."""
        self._pages.closing = True
        self._server.should_exit = True
        self._shelf.stop()
        self._thread.join()
        self._pages.verdicts.stop()
        self._pages.comparisons.stop()
        self._shelf.close()
        if self._door is not None:
            self._door.remove()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<hookline page of {str(self._shelf.folder)!r} at {self.url}>"


def _shown(host: str) -> str:
    """How a host is written in an address."""
    if host in ("0.0.0.0", "::", ""):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
