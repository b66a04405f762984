"""The scripts of the page and of its reports: each page names what it needs, and no name is used twice."""

import re

import pytest

import hookline
from hookline.bundle import found_in, modules
from tests.support.pages import Client, layers
from tests.support.paths import SOURCE


@pytest.fixture
def served(tmp_path):
    layers(tmp_path / "a")
    with hookline.serve(tmp_path) as server:
        yield Client(server.url)


@pytest.mark.parametrize(
    ("target", "first"), [("/", "app.js"), ("/?run=a", "app.js"), ("/?diff=a", "comparing.js")]
)
def test_a_page_names_all_scripts_that_it_needs(served, target, first):
    """A browser would find them one by one, each after the one that imports it."""
    status, _, page = served.send("GET", target)
    needed, left = set(), [first]
    while left:
        name = left.pop()
        needed.add(name)
        text = served.send("GET", f"/{name}")[2].decode()
        left += set(re.findall(r'from "\./([\w.]+)"', text)) - needed
    assert status == 200 and set(re.findall(r'modulepreload" href="/([\w.]+)"', page.decode())) == needed
    assert re.findall(r'<script type="module" src="/([\w.]+)"', page.decode()) == [first]


@pytest.mark.parametrize(("folder", "first"), [("page", "app.js"), ("diffs", "diff.js")])
def test_names_are_unique_over_the_scripts_of_a_report(folder, first):
    """All are put into one: a second `function draw` would take the place of the first."""
    texts = modules(first, lambda name: found_in(SOURCE / folder / "static", name))
    names = [
        name
        for text in texts.values()
        for name in re.findall(
            r"^(?:export )?(?:async )?(?:const|let|function|class) [{\[]?\s*(\w+)", text, re.MULTILINE
        )
    ]
    assert len(names) > 50 and [name for name in set(names) if names.count(name) > 1] == []


def test_every_script_of_the_page_is_used():
    folders = [SOURCE / "static", SOURCE / "diffs" / "static", SOURCE / "page" / "static"]
    paths = {path.name: path for folder in folders for path in folder.glob("*.js")}
    assert len(paths) == sum(len(list(folder.glob("*.js"))) for folder in folders), "the page serves all by name"
    used = {name for first in ("app.js", "comparing.js", "diff.js") for name in modules(first, paths.__getitem__)}
    assert used == set(paths)
