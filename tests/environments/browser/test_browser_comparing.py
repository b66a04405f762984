"""Two runs of the live page, compared, in a real browser: from the list to the place at which they part."""

import re
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

import hookline
from tests.environments.browser.drawn import at, drawn
from tests.environments.browser.test_browser_page import AXE
from tests.support.pages import NASTY, store
from tests.support.parting import recorded, run, stuck
from tests.support.rows import row

expect.set_options(timeout=15_000)
NAMES = ("enc.fc", "enc.act", "head")


@pytest.fixture
def two(tmp_path, serve):
    run(tmp_path / "before")
    run(tmp_path / "after", since=4)
    return serve(tmp_path)


def sentence(page):
    return page.locator("#verdict h2")


def test_two_runs_of_the_list_are_compared_and_the_address_is_the_view(two, visit):
    page = visit(two.url)
    page.get_by_label("Run A, the reference").select_option("before")
    page.get_by_label("Run B").select_option("after")
    page.get_by_role("button", name="Show where they part").click()
    expect(sentence(page)).to_contain_text("Different, first at enc.act at step 4")
    assert page.url.endswith("/?diff=before&with=after"), page.url
    expect(page.locator("h1")).to_have_text("A: before against B: after")
    assert page.title() == "before against after · hookline"
    expect(page.locator("#verdict")).to_contain_text("in A and")
    expect(page.locator(".about-diff")).to_contain_text(
        "A: before up to step 9, ended; B: after up to step 9, ended."
    )
    drawn(page.locator("#depth canvas").first, least=6)
    page.locator(".pair-row", has_text="head").click()
    expect(page.locator("#place h2")).to_contain_text("head at step")
    assert re.search(r"with=after#place-\d+$", page.url)
    page.reload()
    expect(page.locator("#place h2")).to_contain_text("head at step")
    order = page.evaluate("[...document.querySelectorAll('main > *, .both > *')].map((one) => one.id)")
    assert [name for name in order if name] == ["verdict", "depth", "modules", "place", "compared"], (
        "as the report"
    )
    page.get_by_role("link", name="Runs").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")


def test_all_of_it_works_by_keyboard(two, visit):
    page = visit(two.url)
    button = page.get_by_role("button", name="Show where they part")
    for _ in range(20):
        if button.evaluate("one => one === document.activeElement"):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(sentence(page)).to_contain_text("Different, first at")
    page.locator(".pair-row[tabindex='0']").focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page.locator("#place h2")).to_contain_text("head at step")
    expect(page.locator(".pair-row:focus")).to_have_attribute("aria-selected", "true")


def test_the_list_keeps_what_is_chosen_while_it_is_told_news(two, visit, tmp_path):
    page = visit(two.url)
    page.get_by_label("Run B").select_option("before")
    run(tmp_path / "new")
    expect(page.get_by_role("link", name="new", exact=True)).to_be_visible()
    expect(page.get_by_label("Run B")).to_have_value("before")
    page.get_by_label("Run A, the reference").select_option("before")
    page.get_by_role("button", name="Show where they part").click()
    expect(page.get_by_role("alert")).to_have_text("A and B are the same run: choose another one for A or for B.")


def test_a_run_leads_to_its_diff_with_another(two, visit):
    page = visit(at(two, run="after"))
    page.get_by_role("link", name="Compare with another run: where do they part?").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Choose a second run")
    expect(page.get_by_label("Run A, the reference")).to_have_value("after")
    expect(page.get_by_label("Run B")).to_have_value("before")
    page.get_by_role("button", name="Show where they part").click()
    expect(page.locator("h1")).to_have_text("A: after against B: before")
    page = visit(at(two, run="after", **{"with": "before"}))
    page.get_by_role("link", name="Diff: where these two runs part").click()
    expect(sentence(page)).to_contain_text("Different, first at enc.act at step 4")


def test_runs_that_are_the_same_are_said_to_be_within_which_bound(tmp_path, serve, visit):
    for name in ("a", "b"):
        run(tmp_path / name)
    page = visit(at(serve(tmp_path), diff="a", **{"with": "b"}))
    expect(sentence(page)).to_contain_text("The same, to within")
    expect(page.locator("#compared")).to_contain_text("no fingerprints of bits are there")
    page.get_by_text("Compare other runs").click()
    expect(page.get_by_label("Run B")).to_have_value("b")


def test_values_of_recordings_are_shown_as_pictures(tmp_path, serve, visit):
    recorded(tmp_path / "a")
    recorded(tmp_path / "b", 1.25)
    page = visit(at(serve(tmp_path), diff="a", **{"with": "b"}))
    expect(page.locator("#place")).to_contain_text("There are no values to show")
    page.get_by_label("Both runs have recordings. Compare their values:").select_option(index=2)
    expect(page.locator("h1")).to_contain_text("a, recording 1 at step 4 against B: b, recording 1 at step 4")
    assert page.url.endswith("&kept=1,1")
    expect(sentence(page)).to_contain_text("Different, first at 2")
    charts = page.locator("#place canvas")
    expect(charts).to_have_count(4)
    for chart in charts.all():
        drawn(chart, least=4)
    expect(page.locator("#place")).to_contain_text("The largest difference is at [")
    page.get_by_role("link", name="Compare the runs, step by step").click()
    expect(page.locator("h1")).to_have_text("A: a against B: b")


def test_a_run_that_grows_is_told_of_and_compared_again_when_that_is_wanted(tmp_path, serve, visit):
    run(tmp_path / "a", names=("fc",), steps=8)
    with hookline.open_run(tmp_path / "a") as stored:
        rows = stored.rows("fc")
    kept = hookline.RunStore(tmp_path / "b")
    kept.open({"model": "Net", "sites": [["fc", "Linear"]]})
    kept._opened().write(rows[:3])
    page = visit(at(serve(tmp_path), diff="a", **{"with": "b"}))
    expect(sentence(page)).to_contain_text("The same")
    expect(page.locator(".about-diff")).to_contain_text("B: b up to step 2, running.")
    expect(page.locator("#compared")).to_contain_text("B may be only a part of a run")
    page.wait_for_timeout(4000)
    expect(page.locator(".news")).to_be_empty()
    kept._opened().write([{**rows[3], "mean": 99.0}])
    expect(page.locator(".news")).to_contain_text("The runs have changed since.")
    expect(sentence(page)).to_contain_text("The same")
    page.get_by_role("button", name="Compare again").click()
    expect(sentence(page)).to_contain_text("Different, first at fc at step 3")
    kept.close()


def test_a_long_diff_says_how_far_it_is_and_others_are_answered(two, visit, monkeypatch):
    with stuck(monkeypatch) as go:
        page = visit(at(two, diff="before", **{"with": "after"}))
        expect(page.locator("main").get_by_role("status")).to_contain_text("Comparing the two: 50 %")
        other = visit(at(two, run="before"))
        expect(other.locator("#verdict")).to_be_visible()
        go.set()
        expect(sentence(page)).to_contain_text("Different, first at")


def test_what_can_not_be_compared_is_a_sentence_with_a_way_on(two, visit, tmp_path):
    page = visit(at(two, diff="before", **{"with": "gone"}), expect_problems=True)
    alert = page.get_by_role("alert").first
    expect(alert).to_contain_text(
        "There is no run of that name in the folder: 'gone'. It has 2: 'after', 'before'."
    )
    expect(page.get_by_role("button", name="Show where they part")).to_be_visible()
    store(tmp_path / "odd", [row("conv", step, "param") for step in range(3)])
    page = visit(at(two, diff="before", **{"with": "odd"}))
    expect(page.get_by_role("alert").first).to_contain_text("no site in common")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "rank0-0000.sqlite").write_bytes(b"garbage" * 500)
    page = visit(at(two, diff="before", **{"with": "bad"}), expect_problems=True)
    expect(page.get_by_role("alert").first).to_contain_text("not a file of a hookline run")
    page = visit(at(two, diff="before", **{"with": "before"}), expect_problems=True)
    expect(page.get_by_role("alert").first).to_contain_text("A and B are the same run")


def test_one_run_alone_can_not_be_compared(tmp_path, serve, visit):
    run(tmp_path / "only")
    server = serve(tmp_path)
    page = visit(server.url)
    expect(page.get_by_role("link", name="only", exact=True)).to_be_visible()
    assert page.get_by_role("button", name="Show where they part").count() == 0
    page = visit(at(server, diff="only"))
    expect(page.locator("main")).to_contain_text(
        "A diff needs two runs that can be read, and this folder has fewer."
    )


@pytest.mark.parametrize("names", [(NASTY, f"{NASTY}.fc", "part." * 60), NAMES], ids=["nasty", "plain"])
def test_a_phone_shows_the_verdict_at_once_and_names_as_they_are(tmp_path, serve, visit, names):
    a, b = "a,b & c#d?é %2F <b>", "run-" * 50
    run(tmp_path / a, names=names)
    run(tmp_path / b, since=4, names=names)
    server = serve(tmp_path)
    page = visit(server.url, width=390, height=844)
    page.get_by_role("button", name="Show where they part").click()
    expect(sentence(page)).to_contain_text("Different, first at")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page = visit(at(server, diff=quote(a), **{"with": quote(b)}), width=390, height=844)
    expect(sentence(page)).to_contain_text("Different, first at")
    expect(page.locator("h1")).to_contain_text(a)
    expect(page.locator("#place h2")).to_contain_text(names[1])
    assert "hit" not in page.title() and page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_text("Compare other runs").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    if names is NAMES:
        assert sentence(page).bounding_box()["y"] < 844


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("view", ["list", "diff", "choose", "failed"])
def test_axe_finds_nothing(two, visit, view, dark):
    package = pytest.importorskip("axe_playwright_python", reason="axe-core is not installed")
    query = {
        "list": {},
        "diff": {"diff": "before", "with": "after"},
        "choose": {"diff": "before"},
        "failed": {"diff": "before", "with": "before"},
    }[view]
    page = visit(at(two, **query), dark=dark, expect_problems=view == "failed")
    expect(sentence(page) if view == "diff" else page.get_by_role("button", name="Show where")).to_be_visible()
    if view == "diff":
        page.get_by_text("Compare other runs").click()
    page.wait_for_timeout(300)
    page.evaluate(next(Path(package.__path__[0]).rglob("axe.min.js")).read_text())
    assert page.evaluate(AXE) == []
