"""The report of a diff in a real browser: what somebody sees who opens it, and what clicks and keys do."""

import re
import time
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from hookline.diffs.found import Cause, SiteDiff
from hookline.diffs.measures import measure
from hookline.diffs.result import Diff
from tests.environments.browser.drawn import COLOURS, drawn
from tests.environments.browser.test_browser_page import AXE
from tests.support.diffs import place, transformer, two_runs, unet
from tests.support.pages import NASTY

expect.set_options(timeout=15_000)


@pytest.fixture
def opened(tmp_path, visit):
    """Opens the report of a diff."""

    def start(diff, **options):
        return visit(diff.report(tmp_path / "diff.html").as_uri(), **options)

    return start


def renamed(name):
    return name.replace("layers.", "encoder.block.").replace("mlp", "ffn").replace("head", "lm_head")


def test_a_report_opens_with_the_verdict_and_explains_its_words(opened):
    page = opened(transformer())
    verdict = page.locator("#verdict")
    expect(page.locator("#modules [aria-selected='true']")).to_have_count(1)
    assert page.evaluate("scrollY") == 0, "it opens on the verdict, though a place further down is chosen"
    expect(verdict.locator("h2")).to_contain_text("Different, first at layers.5.mlp.act: the error is born there")
    expect(verdict).to_contain_text("times its tolerance of")
    expect(verdict).to_contain_text("The tolerance is how far rounding alone may move the numbers of this place.")
    expect(verdict).to_contain_text("Born here: given the very inputs of A, B's part still gives another result.")
    expect(verdict).to_contain_text("A computes gelu, B its approximation by tanh.")
    expect(verdict.locator("code.line")).to_have_text("model.py:88")
    expect(verdict).to_contain_text("came from layers.5.mlp.up (within rounding)")
    expect(page.locator("#compared")).to_contain_text("They are apart by no more than the tolerance")
    order = page.evaluate("[...document.querySelectorAll('main > *, .both > *')].map((one) => one.id)")
    assert [name for name in order if name] == ["verdict", "depth", "modules", "place", "compared"]


def test_the_first_place_is_shown_with_its_picture(opened):
    page = opened(transformer())
    shown = page.locator("#place")
    expect(shown.locator("h2")).to_have_text("layers.5.mlp.act")
    for chart in shown.locator("canvas").all():
        drawn(chart)
    assert shown.locator("canvas").count() == 4, "the difference, both values, both histograms"
    expect(shown).to_contain_text("The largest difference is at [")
    expect(shown.locator("table")).to_contain_text("standard deviation")


def test_a_click_on_a_module_shows_it(opened):
    page = opened(transformer())
    page.get_by_role("row", name=re.compile("^attn Attention")).first.click()
    expect(page.locator("#place h2")).to_have_text("layers.5.attn")
    page.get_by_role("button", name="Only what differs").click()
    expect(page.get_by_role("row", name=re.compile("^embed"))).to_have_count(0)
    row = page.locator(".pair-row", has_text="head").last
    row.click()
    expect(page.locator("#place h2")).to_have_text("head")
    expect(row).to_have_attribute("aria-selected", "true")
    assert re.search(r"#place-\d+$", page.url)
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    expect(page.locator("#place h2")).to_have_text("head")


def test_the_two_trees_are_in_step_and_have_the_names_of_their_side(opened):
    page = opened(transformer(rename=renamed))
    page.get_by_role("button", name="Unfold all").click()
    rows = page.locator(".pair [role=rowgroup]:last-child .pair-row")
    cells = rows.evaluate_all(
        "rows => rows.map((row) => [...row.querySelectorAll('.side-cell .name')].map((one) => one.textContent))"
    )
    assert ["layers", "encoder.block"] in cells and ["mlp", "ffn"] in cells and ["head", "lm_head"] in cells
    assert len(cells) == 1 + 2 + 12 * 12 + 2, (
        "the model, its list of layers, twelve layers of twelve, what is around"
    )
    end = page.evaluate("scrollY + document.querySelector('main').getBoundingClientRect().bottom")
    assert page.evaluate("document.documentElement.scrollHeight") - end < 40, "nothing lies below the page"
    page.get_by_role("button", name="Fold all", exact=True).click()
    expect(rows).to_have_count(5)
    expect(page.locator(".pair-row", has_text="layers")).to_contain_text("inside")


def test_what_only_one_side_has_is_told_on_its_side(opened):
    page = opened(unet())
    row = page.locator(".pair-row", has_text="attn")
    expect(row).to_contain_text("only in A")
    expect(row).to_contain_text("not in B")
    extra = page.locator(".pair-row", has_text="gate")
    expect(extra).to_contain_text("not in A")
    expect(extra).to_have_attribute("aria-level", "2"), "it is below mid"
    expect(page.locator("#compared")).to_contain_text("only B calls it")
    page.locator("#compared").get_by_role("link", name="up.0", exact=True).click()
    expect(page.locator("#place")).to_contain_text("have another shape")
    expect(page.locator("#place")).to_contain_text("there is no map of their difference")


def test_nan_and_inf_are_marked(opened):
    page = opened(unet(odd=True))
    shown = page.locator("#place")
    expect(shown).to_contain_text("One of the two has NaN or Inf where the other has numbers.")
    expect(shown).to_contain_text("NaN on one side only (1)")
    expect(shown).to_contain_text("Inf on one side only (1)")
    expect(shown).to_contain_text("NaN or Inf on both sides (1)")
    expect(shown).to_contain_text("The first number that is NaN or Inf on one side only is at [0, 3, 2, 1].")


def test_keys_reach_all_modules(opened):
    page = opened(unet())
    page.locator(".pair-row[tabindex='0']").focus()
    page.keyboard.press("Home")
    focused = page.locator(".pair-row:focus")
    expect(focused).to_contain_text("(model)")
    page.keyboard.press("ArrowDown")
    expect(focused).to_contain_text("down")
    page.keyboard.press("ArrowLeft")
    expect(focused).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("ArrowRight")
    expect(focused).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(focused).to_contain_text("conv")
    page.keyboard.press("Enter")
    expect(page.locator("#place h2")).to_have_text("down.0.conv")
    expect(focused).to_contain_text("conv"), "the focus stays"
    page.keyboard.press("ArrowLeft")
    expect(focused).to_have_attribute("aria-level", "2")


def test_the_chart_tells_values_and_leads_to_a_place(opened):
    page = opened(transformer())
    forward, backward = page.locator("#depth canvas").all()
    drawn(forward)
    drawn(backward)
    forward.focus()
    page.keyboard.press("Home")
    readout = page.locator("#depth .readout").first
    expect(readout).to_have_text(re.compile("embed: equal, error 0, tolerance 2e-6"))
    page.keyboard.press("End")
    expect(readout).to_have_text(re.compile(r"\(model\): differs, error 0\.0"))
    page.keyboard.press("Enter")
    expect(page.locator("#place h2")).to_have_text("(model)")
    box = backward.bounding_box()
    backward.click(position={"x": box["width"] - 14, "y": 60})
    expect(page.locator("#place h2")).to_have_text("embed:grad_output")


def test_the_chart_has_a_table(opened):
    page = opened(transformer())
    page.get_by_role("button", name="Error along the depth as a table").click()
    heads = page.locator("#depth thead th").all_text_contents()
    assert heads == ["place", "in B", "verdict", "error", "tolerance", "added", "origin"]
    row = page.locator("#depth tbody tr", has_text="layers.5.mlp.act").first
    expect(row).to_contain_text("born here")
    expect(page.locator("#depth tbody tr")).to_have_count(296)


def test_a_source_is_one_click_away(opened):
    page = opened(transformer())
    expect(page.locator("#place")).to_contain_text(
        "Its input came from layers.5.mlp.up, which was within rounding."
    )
    page.locator("#place").get_by_role("link", name="layers.5.mlp.up").click()
    expect(page.locator("#place h2")).to_have_text("layers.5.mlp.up")
    page.get_by_role("button", name="Next that differs").click()
    expect(page.locator("#place h2")).to_have_text("layers.5.mlp.act")
    expect(page.get_by_role("button", name="Previous that differs")).to_be_disabled()


def test_the_map_tells_the_cells(opened):
    a = np.zeros((4, 6), np.float32)
    b = a.copy()
    b[2, 3] = 0.5
    one = place("fc", 0.5, shape=(4, 6), measure=measure(a, b, ("float32", "float32"), 1e-6))
    page = opened(Diff("a", "b", one, [one], values=lambda _: (a, b)))
    chart = page.locator("#place canvas").first
    drawn(chart, least=4)
    chart.focus()
    for key in ["ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"]:
        page.keyboard.press(key)
    expect(page.locator("#place .readout").first).to_have_text("[2, 3]: apart by about 0.5")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#place .readout").first).to_have_text("[2, 2]: equal")


def test_two_runs_are_shown_over_the_steps(opened):
    page = opened(two_runs())
    expect(page.locator("#depth h2")).to_have_text("Error over the steps")
    expect(page.locator("#verdict")).to_contain_text("at step 17")
    chart = page.locator("#depth canvas").first
    drawn(chart)
    chart.focus()
    page.keyboard.press("End")
    expect(page.locator("#depth .readout").first).to_have_text(re.compile("step 39, the worst place: .*: differs"))
    expect(page.locator("#place")).to_contain_text("what was compared has statistics only")
    page.locator("#place").get_by_role("button", name="step 18").click()
    expect(page.locator("#place h2")).to_have_text("act at step 18")


@pytest.mark.parametrize(
    "diff",
    [
        Diff("a", "b"),
        Diff("a", "b", SiteDiff("x", verdict="missing"), unmatched=[SiteDiff("x", verdict="missing")]),
    ],
    ids=["nothing", "only unmatched"],
)
def test_a_diff_of_little_is_shown(opened, diff):
    page = opened(diff)
    expect(page.locator("#verdict h2")).to_be_visible()
    expect(page.locator("#compared")).to_be_visible()
    assert page.locator("[role=alert]:visible").count() == 0


def test_names_are_shown_as_they_are(opened):
    hit = place(NASTY, 1e-2, why=NASTY, line=NASTY, type=NASTY, sources=(NASTY,))
    long = place("part." * 60 + "end", 1e-2, order=1)
    diff = Diff(
        NASTY, NASTY, hit, [hit, long], [Cause("c", NASTY, NASTY)], [SiteDiff(NASTY, verdict="missing", why=NASTY)]
    )
    page = opened(diff, width=390, height=844)
    expect(page.locator("#place h2")).to_have_text(NASTY)
    page.get_by_role("button", name="Next that differs").click()
    expect(page.locator("#place h2")).to_contain_text("part.end")
    assert page.title() != "hit" and page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("diff", [transformer(), unet(odd=True), two_runs()], ids=["transformer", "U-Net", "runs"])
def test_a_phone_shows_all_without_scrolling_sideways(opened, diff):
    page = opened(diff, width=390, height=844)
    for chart in page.locator("canvas").all():
        drawn(chart, least=4)
    page.get_by_role("button", name="Unfold all").click()
    page.locator("#depth .head button").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_colours_follow_the_system_and_the_button(opened):
    page = opened(transformer(), dark=True)
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    chart = page.locator("#place canvas").first
    drawn(chart)
    before = chart.evaluate("canvas => canvas.toDataURL()")
    page.get_by_role("button", name="Light").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    chart = page.locator("#place canvas").first
    drawn(chart)
    assert chart.evaluate("canvas => canvas.toDataURL()") != before and chart.evaluate(COLOURS) > 8


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("view", ["chart", "table"])
def test_axe_finds_nothing(opened, dark, view):
    page = opened(unet(odd=True), dark=dark)
    if view == "table":
        page.locator("#depth .head button").click()
    time.sleep(0.3)
    package = pytest.importorskip("axe_playwright_python", reason="axe-core is not installed")
    page.evaluate(next(Path(package.__path__[0]).rglob("axe.min.js")).read_text())
    assert page.evaluate(AXE) == []


def test_a_single_number_is_told_and_not_drawn(opened):
    a, b = np.asarray(2.5, np.float32), np.asarray(2.25, np.float32)
    one = place("loss", 0.1, shape=(), measure=measure(a, b, ("float32", "float32"), 1e-6))
    page = opened(Diff("a", "b", one, [one], values=lambda _: (a, b)))
    expect(page.locator("#place")).to_contain_text("It is one number: 2.5 in A, 2.25 in B.")
    assert page.locator("#place canvas").count() == 0
