"""App: the addresses of the page: its files, its questions (JSON) and its stream of news."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from hookline.bundle import SHARED, modules
from hookline.diffs import report as diff_report
from hookline.errors import HooklineError, InvalidArgument
from hookline.page import queries
from hookline.page.comparing import Comparisons, as_bytes, asked_in
from hookline.page.verdicts import Verdicts
from hookline.page.viewed import ViewedRun
from hookline.runs.folder import RunFolder

STATIC = Path(__file__).parent / "static"
COMPARING = "comparing.js"
"""The script that shows the diff of two runs."""
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
LONGEST_QUESTION = 64 << 10
LONGEST_NAME = 1000
FIRST_READ, READ = 0.25, 0.15
"""Seconds that one answer, and one turn of the stream, spend on reading a run that is new to the server."""
BREATH, PAUSE, LIST_PAUSE = 0.05, 0.4, 2.0
"""Seconds between turns of a stream: while a run is read (others want the run as well), later, and of the list."""
MOST_STREAMS = 32

Ask = Callable[[ViewedRun, dict[str, Any]], dict[str, Any]]


class Json(JSONResponse):
    """JSON in ASCII: a sentence may name a path that is no text, which UTF-8 could not carry."""

    def render(self, content: Any) -> bytes:
        return as_bytes(content)


class Pages:
    """The handlers; `closing` ends the streams, which would otherwise go on for ever."""

    def __init__(self, shelf: RunFolder[ViewedRun]) -> None:
        self.shelf = shelf
        self.verdicts = Verdicts(shelf)
        self.comparisons = Comparisons(shelf)
        self.closing = False
        self._streams = 0

    def app(self) -> Starlette:
        questions = {"curves": queries.curves, "heat": queries.heat, "at": queries.at}
        return Starlette(
            routes=[
                Route("/", _index),
                *(Route(f"/{name}", _file(path)) for name, path in _files().items()),
                Route("/api/runs", self._runs),
                Route("/api/run", self._run),
                *(Route(f"/api/{name}", self._asked(ask), methods=["POST"]) for name, ask in questions.items()),
                Route("/api/diff", self._diff, methods=["POST"]),
                Route("/api/events", self._events),
            ],
            exception_handlers={HooklineError: _refused},
        )

    async def _runs(self, request: Request) -> Response:
        brief = "brief" in request.query_params  # who wants names only has nobody look at all runs
        return Json(await run_in_threadpool(self._list, not brief))

    async def _run(self, request: Request) -> Response:
        def answer() -> dict[str, Any]:
            return queries.describe(self.shelf.run(_name(request.query_params.get("run"))), FIRST_READ)

        return Json(await run_in_threadpool(answer))

    def _asked(self, ask: Ask) -> Callable[[Request], Awaitable[Response]]:
        async def handler(request: Request) -> Response:
            question = await _question(request)

            def answer() -> dict[str, Any]:
                run = self.shelf.run(_name(question.get("run")))
                if not run.series:  # its numbers are asked for by a page that another server sent
                    run.catch_up(FIRST_READ)
                return ask(run, question)

            return Json(await run_in_threadpool(answer))

        return handler

    async def _diff(self, request: Request) -> Response:
        question = await _question(request)
        sides = {side: _name(question.get(side)) for side in ("a", "b")}
        asked, of, seen = asked_in({**question, **sides})
        answer = await run_in_threadpool(lambda: self.comparisons.answer(asked, of, seen=seen))
        return Response(answer, media_type="application/json")

    async def _events(self, request: Request) -> Response:
        names = [_name(name) for name in request.query_params.getlist("run")]
        if len(names) > 2:
            raise InvalidArgument("a stream tells of two runs at most.")
        if self._streams >= MOST_STREAMS:
            return Json({"error": "too many pages are open"}, 429)
        runs = [await run_in_threadpool(self.shelf.run, name) for name in names]
        return StreamingResponse(self._stream(runs), media_type="text/event-stream")

    async def _stream(self, runs: list[ViewedRun]) -> AsyncIterator[str]:
        """News as long as the page listens: of these runs, or of the list of all of them."""
        self._streams += 1
        told: Any = None
        quiet = 0.0
        try:
            yield "retry: 2000\n\n"
            await asyncio.sleep(PAUSE)  # whoever listens has just been told all, and draws: that goes first
            while not self.closing:
                news = await run_in_threadpool(self._news, runs)
                pause = PAUSE if runs else LIST_PAUSE
                if news != told:
                    yield f"data: {json.dumps(news)}\n\n"
                    told, quiet = news, 0.0
                    if runs and any(one.get("progress", 1) < 1 for one in news):
                        pause = BREATH
                elif quiet > 15:  # tells apart a quiet run from a server that is gone
                    yield ": still here\n\n"
                    quiet = 0.0
                await asyncio.sleep(pause)
                quiet += pause
        finally:
            self._streams -= 1

    def _list(self, judged: bool = True) -> dict[str, Any]:
        """The runs with their verdicts, and the folder where it is waited for."""
        runs = self.shelf.overview()
        runs = self.verdicts.added(runs) if judged else runs
        return {"runs": runs, "waiting": None if self.shelf.is_there else str(self.shelf.folder)}

    def _news(self, runs: list[ViewedRun]) -> Any:
        if not runs:
            return self._list()
        try:
            return [_news_of(run) for run in runs]
        except HooklineError as error:
            return [{"error": str(error)}]


def _news_of(run: ViewedRun) -> dict[str, Any]:
    progress = run.catch_up(READ)
    return {
        "name": run.name,
        "revision": run.revision,
        "looked": run.health().revision,
        "series": len(run.series),
        "progress": progress,
        "state": {name: value for name, value in run.state().items() if name != "written"},
    }


async def _index(request: Request) -> Response:
    """The page of runs, or of a diff; it names all its scripts, or a browser would find them one by one."""
    files = _files()
    script, styles = (COMPARING, [diff_report.STYLE]) if "diff" in request.query_params else ("app.js", [])
    links = [f'<link rel="stylesheet" href="/{name}" />' for name in styles]
    links += [
        f'<link rel="modulepreload" href="/{name}" />' for name in sorted(modules(script, files.__getitem__))
    ]
    page = (SHARED / "index.html").read_text().replace('src="/app.js"', f'src="/{script}"')
    return HTMLResponse(page.replace("</head>", "\n".join([*links, "</head>"])))


def _files() -> dict[str, Path]:
    """The files of the page by name: its own, those of diffs, and those that all pages share."""
    folders = (SHARED, diff_report.STATIC, STATIC)
    return {path.name: path for folder in folders for path in folder.iterdir() if path.suffix in TYPES}


def _file(path: Path) -> Callable[[Request], Awaitable[Response]]:
    async def handler(request: Request) -> Response:
        return FileResponse(path, media_type=TYPES[path.suffix])

    return handler


def _name(name: Any) -> str:
    if not isinstance(name, str) or len(name) > LONGEST_NAME:
        raise InvalidArgument("run: expected the name of a run.")
    return name


async def _question(request: Request) -> dict[str, Any]:
    """The JSON of a request, read no further than LONGEST_QUESTION."""
    if request.headers.get("content-type") != "application/json":
        raise InvalidArgument("expected JSON.")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LONGEST_QUESTION:
            raise InvalidArgument(f"the question is longer than {LONGEST_QUESTION:,} bytes.")
    try:
        question = json.loads(body)
    except (ValueError, RecursionError):
        question = None
    if not isinstance(question, dict):
        raise InvalidArgument("expected a JSON object.")
    return question


async def _refused(request: Request, error: Exception) -> Response:
    return Json({"error": str(error)}, 400 if isinstance(error, InvalidArgument) else 404)
