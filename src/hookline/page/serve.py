"""serve: the live page, in a thread of this process."""

from __future__ import annotations

import importlib
import secrets
import socket
import threading
from pathlib import Path
from typing import Any

from hookline.errors import HooklineError, MissingExtra
from hookline.page.shelf import Shelf


def serve(folder: str | Path, *, host: str = "127.0.0.1", port: int = 0) -> Server:
    """A Server that shows the runs in `folder` (or the one that it is) until `close`; `url` is where.

    Port 0 takes a free one. Only this machine can reach it, unless another `host` is given, and only who
    has the token in `url`.
    """
    try:
        app, guard, uvicorn = (
            importlib.import_module(name) for name in ("hookline.page.app", "hookline.page.guard", "uvicorn")
        )
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise MissingExtra("the page needs starlette and uvicorn. Run: pip install 'hookline[page]'") from error
    shelf = Shelf(folder)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        instead = "Port 0 takes a free one." if port else "Is that an address of this machine?"
        raise HooklineError(f"can't listen on {host}, port {port}: {error.strerror}. {instead}") from error
    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    pages = app.Pages(shelf)
    guarded = guard.Guard(pages.app(), token=token, host=host, port=port)
    config = uvicorn.Config(
        guarded,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=3,
    )
    return Server(shelf, pages, uvicorn.Server(config), listening, f"{_shown(host)}:{port}/?token={token}")


class Server:
    """A running page; as a context manager it closes at the end of the block."""

    def __init__(self, shelf: Shelf, pages: Any, server: Any, listening: socket.socket, address: str) -> None:
        self.url = f"http://{address}"
        """The address to open, with the token."""
        self._shelf, self._pages, self._server = shelf, pages, server
        self._thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listening]}, name="hookline-page", daemon=True
        )
        self._thread.start()

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
        self._thread.join()
        self._shelf.close()

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
