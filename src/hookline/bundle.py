"""Bundle: files of a page as one HTML document that needs nothing else.

Each page has a folder of its own; what all of them share is in `static/` beside this file.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hookline.errors import InvalidArgument, RunError

SHARED = Path(__file__).parent / "static"
IMPORT = re.compile(r"^import [^;]*? from \"\./([\w-]+\.js)\";\n", re.MULTILINE | re.DOTALL)
EXPORT = re.compile(r"^export (?=(?:async )?function |class |const )", re.MULTILINE)


def html_path(path: str | Path) -> Path:
    """The path of a report; InvalidArgument where it is not that of an HTML file.

    >>> html_path("run.pdf")
    Traceback (most recent call last):
    hookline.errors.InvalidArgument: 'run.pdf': expected a file that ends in .html.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InvalidArgument(f"{path.name!r}: expected a file that ends in .html.")
    return path


def write(
    path: Path, title: str, data: Any, folder: Path, script: str = "app.js", styles: Sequence[str] = ()
) -> None:
    """Writes a page that shows `data`, anything that JSON has; RunError where it can't be written."""
    packed = gzip.compress(json.dumps(data, separators=(",", ":"), allow_nan=False).encode(), 6, mtime=0)
    text = document(title, base64.b64encode(packed).decode(), folder, script, styles)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"the report can't be written to {path}: {error.strerror}.") from error


def found_in(folder: Path, name: str) -> Path:
    """A file of a page: its own, or the one that all pages share."""
    own = folder / name
    return own if own.exists() else SHARED / name


def document(title: str, data: str, folder: Path, first: str = "app.js", styles: Sequence[str] = ()) -> str:
    """The page with its style, scripts and picture inside; `data`, in base64, is what it shows.

    `first` is the script that starts it, `styles` are added to the style that all pages share. Its policy allows
    exactly these scripts and styles and no request at all.
    """
    script = _script(folder, first)
    style = "\n".join(found_in(folder, name).read_text() for name in ("style.css", *styles))
    icon = base64.b64encode((SHARED / "favicon.svg").read_bytes()).decode()
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "<title>hookline</title>": f"<title>{html.escape(title)}</title>",
        '<link rel="icon" href="/favicon.svg" />': f'<link rel="icon" href="data:image/svg+xml;base64,{icon}" />',
        '<link rel="stylesheet" href="/style.css" />': f"<style>{style}</style>",
        '<script type="module" src="/app.js"></script>': (
            f'<script type="text/plain" id="data">{data}</script>\n<script type="module">{script}</script>'
        ),
        '<meta charset="utf-8" />': (
            f'<meta charset="utf-8" />\n    <meta http-equiv="Content-Security-Policy" content="{policy}" />'
        ),
    }
    page = (SHARED / "index.html").read_text()
    for mark, part in parts.items():
        if page.count(mark) != 1:
            raise AssertionError(f"index.html has no {mark}")
        page = page.replace(mark, part)
    return page


def modules(first: str, found: Callable[[str], Path]) -> dict[str, str]:
    """The script that starts a page and all that it imports: {name: text}, each behind those that it imports."""
    texts: dict[str, str] = {}

    def visit(name: str) -> None:
        text = found(name).read_text()
        for needed in IMPORT.findall(text):
            if needed not in texts:
                visit(needed)
        texts[name] = text

    visit(first)
    return texts


def _script(folder: Path, first: str) -> str:
    """All modules as one; names are unique over all of them."""
    texts = modules(first, lambda name: found_in(folder, name)).values()
    return "\n".join(EXPORT.sub("", IMPORT.sub("", text)) for text in texts)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
