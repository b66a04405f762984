"""Bundle: the page's own files as one HTML document that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from pathlib import Path

STATIC = Path(__file__).parent / "static"
IMPORT = re.compile(r"^import [^;]*? from \"\./([\w-]+\.js)\";\n", re.MULTILINE | re.DOTALL)
EXPORT = re.compile(r"^export (?=(?:async )?function |class |const )", re.MULTILINE)


def document(title: str, data: str) -> str:
    """The page with its style, scripts and picture inside; `data`, in base64, is what it shows.

    Its policy allows exactly these scripts and styles and no request at all.
    """
    script, style = _script(), (STATIC / "style.css").read_text()
    icon = base64.b64encode((STATIC / "favicon.svg").read_bytes()).decode()
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
    page = (STATIC / "index.html").read_text()
    for mark, part in parts.items():
        if page.count(mark) != 1:
            raise AssertionError(f"index.html has no {mark}")
        page = page.replace(mark, part)
    return page


def _script(first: str = "app.js") -> str:
    """All modules as one, each behind those that it imports; names are unique over all of them."""
    order: list[str] = []

    def visit(name: str) -> None:
        for needed in IMPORT.findall((STATIC / name).read_text()):
            if needed not in order:
                visit(needed)
        order.append(name)

    visit(first)
    texts = [EXPORT.sub("", IMPORT.sub("", (STATIC / name).read_text())) for name in dict.fromkeys(order)]
    return "\n".join(texts)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
