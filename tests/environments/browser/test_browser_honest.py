"""The page in a real browser: what is not known, not there or not all is shown as that."""

import re
import threading
import webbrowser
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

import hookline
from hookline.page import judging, viewed
from tests.environments.browser.drawn import COLOURS, at, drawn
from tests.support.pages import NAN, layers, store
from tests.support.rows import row

expect.set_options(timeout=15_000)


@pytest.fixture(autouse=True)
def _own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_a_run_is_not_called_healthy_before_somebody_has_looked(tmp_path, serve, visit, monkeypatch):
    rows = [row("bad", step, values=(NAN, 1.0)) for step in range(6)] + [row("good", step) for step in range(6)]
    store(tmp_path / "a", rows, [("", "Net"), ("bad", "Linear"), ("good", "Linear")])
    layers(tmp_path / "b")
    go = threading.Event()
    monkeypatch.setattr(viewed, "judge", lambda *args: go.wait(60) and judging.judge(*args))
    page = visit(at(serve(tmp_path), run="a", **{"with": "b"}))
    expect(page.locator("#verdict")).to_contain_text("whether they are healthy is not known yet")
    drawn(page.locator("#heat canvas").first)
    assert page.locator(".badge.healthy").count() == 0, (
        "nowhere: not above, in the tree, on a card or of the other run"
    )
    expect(page.locator(".chip")).to_have_text(re.compile("not known yet"))
    go.set()
    expect(page.locator("#verdict h2")).to_contain_text("bad puts out 50.00% NaN")
    expect(page.locator("#heat article", has_text="bad").locator(".badge")).to_have_text(re.compile("NaN"))
    expect(page.locator("#heat article", has_text="good").locator(".badge")).to_have_text(re.compile("healthy"))
    assert page.locator(".badge.pending").count() == 0


def test_health_that_can_not_be_found_out_is_told(tmp_path, serve, visit, monkeypatch):
    def fails(*args):
        raise ValueError("no numbers")

    monkeypatch.setattr(viewed, "judge", fails)
    layers(tmp_path / "a")
    page = visit(at(serve(tmp_path), run="a"))
    expect(page.locator("#verdict .error")).to_have_text(
        "The health of the layers is not known: ValueError: no numbers"
    )
    assert page.locator(".badge.healthy").count() == 0


@pytest.mark.parametrize("how", ["page", "report"])
def test_a_run_without_rows_draws_nothing_and_says_so(tmp_path, serve, visit, how):
    store(tmp_path / "a", [], [("", "Net"), ("fc", "Linear")])
    if how == "page":
        page = visit(at(serve(tmp_path), run="a"))
    else:
        page = visit(hookline.report(tmp_path / "a", tmp_path / "a.html").as_uri())
    expect(page.locator("#verdict")).to_contain_text("No statistics were recorded.")
    expect(page.locator(".charts")).to_be_hidden()
    shown = page.locator("body").inner_text()
    assert "null" not in shown and "undefined" not in shown and "NaN" not in shown


@pytest.mark.parametrize(("steps", "says"), [(500, "all 500 steps"), (5000, "of each such stretch the lowest")])
def test_a_table_has_all_steps_or_says_what_it_has(tmp_path, serve, visit, steps, says):
    store(tmp_path / "a", [row("fc", step) for step in range(steps)], [("fc", "Linear")])
    page = visit(at(serve(tmp_path), run="a"))
    drawn(page.locator("#curves canvas"))
    page.locator("#curves .head button").click()
    expect(page.locator("#curves caption")).to_contain_text(says)
    rows = page.locator("#curves tbody tr").count() - 2
    assert rows == 500 if steps == 500 else 900 <= rows <= 1000


def test_runs_with_different_layers_say_what_is_not_drawn(tmp_path, serve, visit):
    layers(tmp_path / "one")
    layers(tmp_path / "some", names=("a.fc", "new"))
    layers(tmp_path / "none", names=("x.y", "z"))
    server = serve(tmp_path)
    page = visit(at(server, run="one", **{"with": "none"}))
    expect(page.locator(".facts .error")).to_contain_text(
        "Nothing of none is drawn: none of its layers has the name"
    )
    expect(page.locator("#curves .hint")).to_contain_text("none has none of them, so nothing of it is drawn")
    for name in ("flow", "boxes"):
        page.locator(f"#{name}").scroll_into_view_if_needed()
        expect(page.locator(f"#{name} .hint")).to_contain_text("nothing of it is drawn")
    page = visit(at(server, run="one", **{"with": "some"}))
    expect(page.locator(".facts")).to_contain_text("only in some and not drawn: new, new.weight")
    expect(page.locator("#curves .hint")).to_contain_text("some has 1 of them.")
    same = visit(at(server, run="one", **{"with": "one-more"}), expect_problems=True)
    expect(same.get_by_role("alert")).to_contain_text("there is no run of that name")


def test_charts_at_a_step_name_the_step_that_they_show(tmp_path, serve, visit):
    rows = [row("fc", step, values=(NAN, NAN) if step > 5 else (0.5, -1.0)) for step in range(10)]
    rows += [row("fc", step, "grad_output", values=(NAN, NAN) if step > 5 else (0.5, 1.0)) for step in range(10)]
    store(tmp_path / "a", [*rows, row("fc", 12, mode="eval")], [("fc", "Linear")])
    page = visit(at(serve(tmp_path), run="a"))
    page.locator("#boxes").scroll_into_view_if_needed()
    expect(page.locator("#boxes .hint")).to_contain_text("At step 5.")
    drawn(page.locator("#boxes canvas"))
    expect(page.locator("#flow .hint")).to_contain_text("At step 9.")
    slider = page.get_by_label("Step", exact=True)
    slider.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#boxes .hint")).to_contain_text("At step 8.")


@pytest.mark.parametrize("how", ["page", "report"])
def test_paper_has_no_placeholder_and_dark_ink(tmp_path, serve, visit, how):
    layers(tmp_path / "a", names=[f"layer{n}" for n in range(40)], steps=4)
    if how == "page":
        page = visit(at(serve(tmp_path), run="a"), dark=True, height=500)
    else:
        page = visit(hookline.report(tmp_path / "a", tmp_path / "a.html").as_uri(), dark=True, height=500)
    first = 24 if how == "page" else 40
    expect(page.locator(".heat:not(.undrawn)")).to_have_count(first)
    expect(page.locator("[aria-busy]")).to_have_count(0)
    page.emulate_media(media="print", color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    expect(page.locator(".heat.undrawn:visible")).to_have_count(0)
    expect(page.locator(".bar")).to_be_hidden()
    for name in ("curves", "flow", "boxes"):
        assert page.locator(f"#{name} canvas").evaluate(COLOURS) >= 8, f"{name} is drawn, though nobody saw it"
    note = page.locator("#heat .on-paper")
    if how == "page":
        expect(note).to_be_visible()
        expect(note).to_have_text(re.compile(r"\d\d of 40 layers are printed"))
    else:
        expect(note).to_be_hidden()
    page.emulate_media(media="screen", color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_the_file_that_the_browser_gets_leads_to_the_page_and_a_bookmark_lives(tmp_path, visit, monkeypatch):
    layers(tmp_path / "runs" / "one")
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    with hookline.serve(tmp_path / "runs", lasting=True) as server:
        server.open()
        page = visit(opened[0])
        page.get_by_role("link", name="one", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("one")
        bookmark = page.url
        assert "token" not in bookmark and not Path(opened[0].removeprefix("file://")).exists()
        page.goto("about:blank")
    with hookline.serve(tmp_path / "runs", lasting=True):
        page.goto(bookmark)
        expect(page.get_by_role("heading", level=1)).to_contain_text("one")
        drawn(page.locator("#curves canvas"))
        page.goto("about:blank")  # it would ask for news when the server is gone


def test_a_folder_that_comes_later_is_waited_for(tmp_path, serve, visit):
    page = visit(serve(tmp_path / "later").url)
    expect(page.get_by_role("heading", name="Waiting for the folder")).to_be_visible()
    (tmp_path / "later").mkdir()
    expect(page.get_by_role("heading", name="No run here yet")).to_be_visible()
    rows = [row("fc", step, values=np.linspace(-1, 1, 20)) for step in range(3)]
    store(tmp_path / "later" / "a", rows, [("fc", "Linear")])
    expect(page.get_by_role("link", name="a", exact=True)).to_be_visible()
