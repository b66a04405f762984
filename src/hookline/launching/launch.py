"""Launch: a script runs as without us, is watched meanwhile, and its verdict comes after its end."""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from hookline.diagnosis.finding import SEVERITIES, Finding
from hookline.errors import InvalidArgument
from hookline.launching import program as program_file
from hookline.launching.folders import folder_for
from hookline.launching.following import Following
from hookline.launching.frames import cleaned
from hookline.launching.models import Model
from hookline.launching.program import Program
from hookline.launching.reasons import why_nothing
from hookline.reporting import Held, hold_warnings
from hookline.watching.budget import parse_share

FOUND_BAD = 3
"""The exit code of a script that succeeded, in which something as bad as `fail_on` was found."""
BAD_INPUT = 2


class Script:
    """A script, or with `is_module` a module, that is run as `python script args` would, and watched meanwhile.

    What was found is written to standard error when the process ends: in each model that trained, which layer,
    since when, why; and where its run was kept (`to`, by default a new folder in `runs/`). `json_to` is a file for
    the findings. With `fail_on` ("error" or "warning"), a script that succeeds in spite of such a finding ends
    with exit code 3. `every`, `where`, `budget` and `fingerprint` are those of `watch`; `page` shows the live
    page. InvalidArgument where there is no such script, or the folder holds a run already.
    """

    def __init__(
        self,
        script: str,
        args: Sequence[str] = (),
        *,
        is_module: bool = False,
        to: str | Path | None = None,
        every: int = 1,
        where: str | Sequence[str] = "**",
        budget: str | float | None = None,
        fingerprint: bool = False,
        json_to: str | Path | None = None,
        fail_on: str | None = None,
        verdict: bool = True,
        page: bool = False,
    ) -> None:
        if fail_on not in (None, *SEVERITIES):
            raise InvalidArgument(f"fail_on={fail_on!r}: expected one of {', '.join(SEVERITIES)}, or None.")
        options = {"every": every, "where": where, **({} if budget is None else {"budget": parse_share(budget)})}
        options |= {"fingerprint": True} if fingerprint else {}
        self._program = Program(script, args, is_module=is_module)
        self._page = page
        self._launch = Launch(Following(folder_for(to, self._program.label), options), json_to, fail_on, verdict)

    def run(self) -> None:
        """Runs it, once. It has the process for itself from now on: `__main__`, `sys.argv`, the exit code."""
        self._launch.begin(page=self._page)
        try:
            self._program.run()
        except BaseException as error:
            self._launch.raised(error)
            raise
        self._launch.succeeded()


class Launch:
    """One run of a script: what is done before it, when it ends, and after all that it has done at its end."""

    def __init__(
        self, following: Following, json_to: str | Path | None, fail_on: str | None, verdict: bool
    ) -> None:
        self.following = following
        self._json = None if json_to is None else Path(json_to).expanduser().absolute()
        self._fail_on, self._verdict = fail_on, verdict
        self._crashes: dict[Model | None, Finding] = {}
        self._held: Held | None = None
        self._code = 0
        self._is_told = False
        self._page: Any = None
        self._leave_at_once = os._exit

    def begin(self, *, page: bool) -> None:
        """To be called before the script runs: what it registers with atexit then comes before ours."""
        self._held = hold_warnings()
        atexit.register(self.tell)
        os._exit = self._exit  # type: ignore[assignment]
        if page:
            self.following.on_framework = self._show_page
        self.following.begin()

    def raised(self, error: BaseException) -> None:
        """The script has raised something that nobody caught; Python prints it, without frames of ours."""
        if isinstance(error, SystemExit):
            if error.code in (None, 0):
                self.succeeded()
            elif error.__context__ is not None:  # it was caught, told by the script, and ends it
                self._note_crash(error.__context__)
            return
        self._note_crash(error)
        sys.excepthook = _Excepthook(sys.excepthook)

    def _note_crash(self, error: BaseException) -> None:
        if not isinstance(error, Exception):
            return  # somebody pressed Ctrl-C
        try:
            from hookline.launching.crash import crash_of

            model, finding = crash_of(error, self.following.models)
            self._crashes[model] = finding
        except Exception as failed:
            self.following.problems.append(f"the place of the exception could not be told: {failed!r}")

    def succeeded(self) -> None:
        """The script is at its end. Where the exit code hangs on what was found, its last things are done now."""
        if self._fail_on is None and self.following.options["where"] == "**":
            return
        threading._shutdown()  # type: ignore[attr-defined]  # what Python does next: threads that outlive the script,
        atexit._run_exitfuncs()  # and then these, of which ours is the last
        if self._code:
            sys.exit(self._code)

    def tell(self) -> None:
        """Leaves what is watched, and tells the verdict; once."""
        if self._is_told or not self.following.is_here:
            return
        self._is_told = True
        with suppress(OSError, ValueError, AttributeError):  # what the script printed comes first
            sys.stdout.flush()
        try:
            self._tell()
        except KeyboardInterrupt:
            _say("the verdict was interrupted.")
        except Exception as error:
            _say(f"the verdict could not be told: {error!r}")

    def _tell(self) -> None:
        following = self.following
        following.end()
        os._exit = self._leave_at_once
        told = []
        if following.models:
            from hookline.launching.judging import judged

            told = judged(following, self._crashes)
        if following.bad_sites is not None and not following.models:
            self._code = BAD_INPUT
        if self._fail_on is not None and told:
            from hookline.launching.telling import is_as_bad

            self._code = FOUND_BAD if is_as_bad(told, self._fail_on) else self._code
        if int(os.environ.get("RANK", "0")):
            return
        self._write_json(told)
        for line in self._lines(told):
            _say(line)

    def _lines(self, told: Sequence[Any]) -> list[str]:
        following = self.following
        lines: list[str] = []
        if self._verdict and told:
            from hookline.launching.telling import lines_of

            lines += lines_of(told)
        if not told:
            lines.append(why_nothing(following, self._crashes.get(None)))
        budgets = [(one.name, one.watch.budget) for one in following.models if one.watch is not None]
        lines += [f"{name}: {budget}" for name, budget in budgets if budget is not None and self._verdict]
        for problem in [*following.problems, *(self._held.told() if self._held is not None else ())]:
            lines.append(f"a problem of hookline's own, and none of the script's: {problem}")
        if any(one.path is not None for one in told):
            where = _shortest(following.to)
            lines.append(f"kept in {where}; to look at it: hookline view {where}")
        return lines

    def _write_json(self, told: Sequence[Any]) -> None:
        if self._json is None:
            return
        from hookline.launching.telling import as_json

        found = [*as_json(told), *(self._crashes[None].to_json() for _ in range(None in self._crashes))]
        try:
            self._json.write_text(json.dumps(found, indent=1, default=str) + "\n")
        except OSError as error:
            self.following.problems.append(f"the findings could not be written: {error}")

    def _exit(self, status: int) -> None:
        """os._exit, after the verdict: nothing else is called by it."""
        self.tell()
        self._leave_at_once(status)

    def _show_page(self) -> None:
        from hookline.page.serve import serve

        assert self.following.to is not None
        self._page = serve(self.following.to, lasting=True)
        _say(f"the page of this run is at {self._page.url}")


class _Excepthook:
    """Calls the script's own excepthook once, with a traceback as it would be without us."""

    def __init__(self, inner: Callable[..., Any]) -> None:
        self._inner = inner

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.excepthook = self._inner
        with suppress(Exception):
            cleaned(error, after=program_file.__file__)
            sys.last_traceback = error.__traceback__
        self._inner(kind, error, error.__traceback__)


def _say(line: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # a closed standard error
        print(f"hookline: {line}", file=sys.stderr, flush=True)


def _shortest(path: Path | None) -> str:
    """A path as people would write it here."""
    assert path is not None
    with suppress(ValueError, OSError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
