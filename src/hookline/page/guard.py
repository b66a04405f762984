"""RequestGuard: who may speak to the page. Runs are private, and any web page can send requests to this machine.

1. The Host header must name this server: a foreign name that was pointed at this machine is refused (403).
2. Where only this machine is listened to, its other users are refused (403), if the system tells who they are.
3. What another site causes the browser to send is refused (403), unless it opens a page with the right token.
4. The token must be in a cookie (401); the address that is printed has it once, and hands it over.
"""

from __future__ import annotations

import hmac
import html
import ipaddress
import socket
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hookline.page.neighbours import is_stranger

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
LOOPBACK = {"127.0.0.1", "localhost", "[::1]"}
OURS = {"same-origin", "none"}
"""Sec-Fetch-Site of what the page itself sends, and of an address that a person opened."""


class RequestGuard:
    """Lets a request through to the app or answers it; adds HEADERS to every answer."""

    def __init__(self, app: ASGIApp, *, token: str, host: str, port: int, seconds: int | None = None) -> None:
        """The cookie lives for so many seconds, or as long as the browser does."""
        self._app, self.token, self._host, self._port, self._seconds = app, token, host, port, seconds
        self._cookie = f"hookline-{port}"
        self._alone = host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
        self.entered: Callable[[], None] = lambda: None
        """Called when the token was handed over."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(name.lower().encode(), text.encode()) for name, text in HEADERS.items()]
            await send(message)

        answer = self._refusal(Request(scope)) or self._app
        await answer(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        headers = request.headers
        if not self._names_us(headers.get("host", "")):
            return PlainTextResponse("This server is not known by that name.", 403)
        if self._alone and _is_strange(request):
            return PlainTextResponse("This page is served to another user of this machine.", 403)
        given = request.query_params.get("token")
        knows = given is not None and request.method == "GET" and self._is_token(given)
        origin = headers.get("origin")
        elsewhere = headers.get("sec-fetch-site", "none") not in OURS
        if (elsewhere and not (knows and _opens_a_page(request))) or (
            origin is not None and origin != f"http://{headers['host']}"
        ):
            return PlainTextResponse("Another site may not ask. Paste the address that was printed instead.", 403)
        if knows:
            self.entered()
            return self._handed_over(request, elsewhere)
        if given is not None or not self._is_token(request.cookies.get(self._cookie, "")):
            text = "The token is missing or wrong. Open the address that `hookline view` printed."
            return PlainTextResponse(text, 401)
        return None

    def _handed_over(self, request: Request, elsewhere: bool) -> Response:
        """The page without the token in its address, which is in a cookie from now on."""
        query = request.url.remove_query_params("token").query
        target = f"/?{query}" if query else "/"  # never a path of the request's: //host
        # A browser keeps a strict cookie back while it follows what another page began, so this one begins anew.
        # Its icon is named: else a browser may ask for /favicon.ico, which is not there.
        icon = '<!doctype html><link rel="icon" href="/favicon.svg">'
        begin = f'{icon}<meta http-equiv="refresh" content="0; url={html.escape(target)}">'
        answer = HTMLResponse(begin) if elsewhere else RedirectResponse(target, 303)
        answer.set_cookie(self._cookie, self.token, max_age=self._seconds, httponly=True, samesite="strict")
        return answer

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())

    def _names_us(self, host: str) -> bool:
        name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        if not name or port != str(self._port):
            return False
        name = name.lower()
        if name in LOOPBACK or name.strip("[]") == self._host.lower():
            return True
        if self._host not in ("0.0.0.0", "::", ""):
            return False
        return name == socket.gethostname().lower() or _is_address(name.strip("[]"))


def _opens_a_page(request: Request) -> bool:
    """Whether a person goes to an address, rather than another page fetching or framing it."""
    headers = request.headers
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


def _is_strange(request: Request) -> bool:
    client, server = request.scope.get("client"), request.scope.get("server")
    return bool(client and server and server[1] and is_stranger(tuple(client), tuple(server)))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
