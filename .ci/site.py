"""What mkdocs does beside showing docs/: documents of the root become pages, and public names a reference.

The reference is made of what `hookline/__init__.py` and its public modules import, by the room that it comes from,
so a name that is made public is on the site without being written down again.
"""

import ast
import re
from pathlib import Path
from typing import Any

from griffe import Extension, Object
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
DOCUMENTS = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "bench/RESULTS.md": "bench.md",
}
TITLES = {"backends": "capabilities", "integrations": "callbacks", "runfiles": "storing runs"}
"""What a room is called on the site, where its own name tells a user little."""
WITHOUT_MEMBERS = "\n    options:\n      show_root_heading: false\n      members: false"


def exported(module: str) -> list[str]:
    """The full names of what a module makes public: what its __init__.py imports from hookline."""
    init = ROOT / "src" / module.replace(".", "/") / "__init__.py"
    if not init.exists():
        return []
    return [
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(init.read_text()))
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "hookline"
        for alias in node.names
        if not alias.name.startswith("_")
    ]


def public_names() -> dict[str, set[str]]:
    """Room to the full names of what it makes public."""
    rooms: dict[str, set[str]] = {}
    for name in exported("hookline"):
        rooms.setdefault(name.split(".")[1], set()).update([name, *exported(name)])
    return rooms


def pages() -> dict[str, str]:
    """Path to text of the pages of the reference."""
    made = {}
    for room, names in public_names().items():
        title = TITLES.get(room, room)
        parts = [f"# {title.capitalize()}"]
        for name in sorted(names, key=lambda name: (name.count(".") > 1, name.rpartition(".")[2].lower())):
            parts.append(f"::: {name}" + (WITHOUT_MEMBERS if exported(name) else ""))
        made[f"reference/{title}.md"] = "\n\n".join(parts) + "\n"
    return made


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The pages of the reference get their place in the navigation."""
    (entry,) = [entry for entry in config.nav or [] if "Reference" in entry]
    entry["Reference"] = sorted(pages())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages that are made are pages as those of docs/."""
    made = pages() | {page: (ROOT / name).read_text() for name, page in DOCUMENTS.items()}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links between documents lead to pages of the site; sessions of Python are shown as such."""
    markdown = re.sub(r"\]\(([\w./-]+\.(?:md|png))(?=[)#])", lambda link: f"]({_target(link[1], page)}", markdown)
    markdown = re.sub(r"^```python(?=\n>>>)", "```pycon", markdown, flags=re.MULTILINE)
    return re.sub(r"\n\n```$", "\n```", markdown, flags=re.MULTILINE)


def on_post_build(config: MkDocsConfig) -> None:
    """A public name that the site does not have is an error."""
    text = "".join(path.read_text() for path in Path(config.site_dir, "reference").rglob("*.html"))
    wanted = {name for names in public_names().values() for name in names if not exported(name)}
    if missing := sorted(name for name in wanted if f'id="{name}"' not in text):
        raise PluginError(f"expected every public name in the reference, got none of {', '.join(missing)}")


class Sessions(Extension):
    """Examples in docstrings become blocks of code; else their output would be read as Markdown."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^>>> .*(?:\n(?!\n).*)*", r"```pycon\n\g<0>\n```", obj.docstring.value, flags=re.MULTILINE
            )


def _target(link: str, page: Page) -> str:
    """Where a link leads on the site, from a document of the root or a page of docs/."""
    name = link.removeprefix("../")
    if name in DOCUMENTS and page.file.src_uri.count("/") == 0:
        return DOCUMENTS[name]
    return link.removeprefix("docs/") if page.file.src_uri in DOCUMENTS.values() else link
