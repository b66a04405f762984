"""The page in a real browser: the verdict first, the evidence one click away, numbers and layers over steps."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

import hookline
from tests.environments.browser.drawn import COLOURS, at, drawn
from tests.support.pages import NAN, layers, scalar, store
from tests.support.rows import row

expect.set_options(timeout=15_000)
SITES = [("", "Net"), ("fc", "Linear"), ("relu", "ReLU"), ("head", "Linear")]


def trained(folder, dead_from=None, steps=40, nan_from=None, **meta):
    """A run with the numbers of its training; its ReLU may die, its head may be NaN."""
    random = np.random.default_rng(0)
    rows = []
    for step in range(steps):
        dead = dead_from is not None and step >= dead_from
        bad = nan_from is not None and step >= nan_from
        rows.append(row("fc", step, values=random.standard_normal(50)))
        rows.append(row("relu", step, values=np.maximum(random.standard_normal(50), 0) * (not dead)))
        rows.append(row("head", step, values=[NAN, 1.0] if bad else random.standard_normal(50)))
        rows += [
            scalar("loss", step, NAN if bad else 2.3 if dead else 2.3 / (step + 1)),
            scalar("lr/0", step, 0.1),
            scalar("lr/1", step, 0.01),
            scalar("grad_norm", step, 1.5),
            scalar("accuracy", step, 0.25),
            scalar("batch", step, 1e9),
            scalar("share", step, 0.01),
        ]
    return store(folder, rows, SITES, **meta)


@pytest.fixture(params=["page", "report"])
def sick(request, tmp_path, serve, visit):
    """Opens a run with a dead ReLU, on the page or as a report."""
    trained(tmp_path / "sick", dead_from=12, config={"lr": 0.1, "model": {"depth": 3}})

    def opened(**options):
        if request.param == "page":
            return visit(at(serve(tmp_path), run="sick"), **options)
        return visit(hookline.report(tmp_path / "sick", tmp_path / "sick.html").as_uri(), **options)

    return opened


def test_a_run_opens_with_its_verdict(sick):
    page = sick()
    verdict = page.locator("#verdict")
    expect(verdict.locator("h2")).to_contain_text("relu: all of its outputs are zero")
    expect(verdict.get_by_text("from step").first).to_contain_text("12")
    expect(verdict).to_contain_text("What to try")
    expect(verdict).to_contain_text("Looked at: outputs of 3 layers")
    before = page.evaluate(
        """() => document.querySelector("#verdict").getBoundingClientRect().top
             < document.querySelector("#training").getBoundingClientRect().top"""
    )
    assert before, "the verdict is above all else"


def test_the_evidence_is_one_click_away_and_back_leads_back(sick):
    page = sick()
    link = page.locator("#verdict .links a").first
    expect(link).to_have_text("outputs of relu, zeros (count) at step 12")
    link.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#curves .hint")).to_have_text("Zeros (count) of outputs, 1 site.")
    expect(page.locator("#curves .legend")).to_contain_text("relu")
    expect(page.locator("output")).to_have_text("12")
    assert "only=relu" in page.url and "step=12" in page.url and "stat=zeros" in page.url
    focused = page.evaluate("document.activeElement.closest('section').id")
    assert focused == "curves", "arrow keys read the very curve"
    href = link.get_attribute("href")
    page.locator("#curves").get_by_role("button", name="Show all layers").click()
    expect(page.locator("#curves .hint")).to_contain_text("3 sites")
    page.go_back()
    expect(page.locator("#curves .hint")).to_have_text("Standard deviation of outputs, 3 sites.")
    page.goto(page.url.split("?")[0] + href)
    expect(page.locator("#curves .hint")).to_have_text("Zeros (count) of outputs, 1 site.")


def test_numbers_of_the_training_stand_on_top_and_are_no_layers(sick):
    page = sick()
    chart = page.locator("#training canvas")
    drawn(chart)
    assert page.locator(".tree").get_by_text("loss").count() == 0
    assert "scalar" not in page.get_by_label("Values", exact=True).inner_text()
    chart.focus()
    page.keyboard.press("Home")
    readout = page.locator("#training .readout")
    rates = "learning rate of group 0 0.1, learning rate of group 1 0.01"
    expect(readout).to_have_text(f"step 0: loss 2.3, {rates}, gradient norm 1.5, accuracy 0.25")
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    expect(readout).to_have_text(re.compile(r"step 12: loss 2\.3,.* finding 1 begins"))
    page.keyboard.press("Enter")
    expect(page.locator("output")).to_have_text("12")
    page.get_by_role("button", name="Show one more number").click()
    expect(chart).to_have_attribute("aria-label", re.compile("hookline's share of the time"))
    page.get_by_role("button", name="Training as a table").click()
    heads = page.locator("#training thead th").all_text_contents()
    assert heads[:4] == ["step", "loss", "learning rate of group 0", "learning rate of group 1"]
    assert "batch" not in heads


def test_settings_are_among_the_facts(sick):
    expect(sick().locator(".facts .settings")).to_have_text("Settings: lr 0.1 · model.depth 3")


def test_the_map_tells_values_and_leads_to_a_layer_at_a_step(sick):
    page = sick()
    chart = page.locator("#map canvas")
    drawn(chart)
    chart.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Home")
    readout = page.locator("#map .readout")
    expect(readout).to_have_text(re.compile(r"fc, step 0: \d"))
    page.keyboard.press("ArrowDown")
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    expect(readout).to_have_text("relu, step 12: 0, dead units begins")
    page.keyboard.press("Enter")
    expect(page.locator("#curves .hint")).to_have_text("Standard deviation of outputs, 1 site.")
    expect(page.locator("output")).to_have_text("12")
    expect(page.locator("#map .hint")).to_contain_text("3 sites"), "the map stays whole"
    page.locator("#map").get_by_role("button", name="as a table").click()
    table = page.locator("#map tbody tr")
    expect(table).to_have_count(3)
    expect(table.first.locator("th")).to_have_text("relu"), "sick layers first"
    page.locator("#map").get_by_role("button", name="as a table").click()
    page.get_by_label("each layer on its own scale").check()
    expect(page.locator("#map .legend")).to_contain_text("lowest of the layer")
    assert "own=1" in page.url


def test_a_click_on_the_map_leads_there_too(sick):
    page = sick()
    chart = page.locator("#map canvas")
    drawn(chart)
    box = chart.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.6, box["y"] + 22 + 18 * 2.5)
    expect(page.locator("#curves .legend")).to_contain_text("head")
    assert "only=head" in page.url


def test_not_a_number_is_striped_on_the_map_and_marked_in_the_loss(tmp_path, serve, visit):
    trained(tmp_path / "nan", nan_from=20)
    page = visit(at(serve(tmp_path), run="nan"))
    expect(page.locator("#verdict h2")).to_contain_text("head")
    drawn(page.locator("#map canvas"))
    page.locator("#map canvas").focus()
    page.keyboard.press("ArrowDown")
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    expect(page.locator("#map .readout")).to_have_text(re.compile("head, step 39: .*NaN or Inf"))
    expect(page.locator("#training .hint")).to_contain_text("Red marks at the foot: NaN or Inf.")
    page.locator("#training canvas").focus()
    page.keyboard.press("End")
    expect(page.locator("#training .readout")).to_have_text(re.compile("step 39: loss NaN or Inf"))


def test_sick_layers_come_first_and_a_switch_brings_the_order_of_the_model_back(sick):
    page = sick()
    cards = page.locator("#heat article h3 .name")
    expect(cards.first).to_have_text("relu")
    names = page.locator(".tree .layer .name")
    expect(names.first).to_have_text("relu")
    page.get_by_label("sick layers first").uncheck()
    page.locator("#heat").scroll_into_view_if_needed()
    expect(cards).to_have_text(["fc", "relu", "head"])
    expect(names).to_have_text(["(model)", "fc", "relu", "head"])
    page.reload()
    expect(cards.first).to_have_text("fc")


def test_a_healthy_run_says_so_and_what_was_looked_at(tmp_path, serve, visit):
    trained(tmp_path / "good")
    page = visit(at(serve(tmp_path), run="good"))
    expect(page.locator("#verdict h2")).to_contain_text("Nothing is wrong.")
    expect(page.locator("#verdict")).to_contain_text("Looked at: outputs of 3 layers")
    drawn(page.locator("#training canvas"))


def test_an_old_run_without_numbers_is_shown_as_before(tmp_path, serve, visit):
    layers(tmp_path / "old", steps=30)
    page = visit(at(serve(tmp_path), run="old"))
    for name in ("map", "curves", "heat"):
        drawn(page.locator(f"#{name} canvas").first)
    expect(page.locator("#training")).to_be_hidden()
    expect(page.locator(".facts .settings")).to_have_count(0)


def test_two_runs_lie_over_each_other_in_numbers_and_maps(tmp_path, serve, visit):
    trained(tmp_path / "sick", dead_from=12)
    trained(tmp_path / "good")
    page = visit(at(serve(tmp_path), run="sick", **{"with": "good"}))
    drawn(page.locator("#training canvas"))
    page.locator("#training canvas").focus()
    page.keyboard.press("End")
    expect(page.locator("#training .readout")).to_contain_text("loss (sick) 2.3, loss (good) 0.0575")
    expect(page.locator("#map canvas")).to_have_count(2)
    expect(page.locator(".facts .lead").first).to_contain_text("good: ● healthy")


def test_the_list_tells_verdicts_and_losses_without_reload(tmp_path, serve, visit):
    trained(tmp_path / "sick", dead_from=12)
    trained(tmp_path / "good")
    page = visit(serve(tmp_path).url)
    sick = page.locator("tbody tr", has=page.get_by_role("link", name="sick"))
    expect(sick).to_contain_text("relu: all of its outputs are zero")
    expect(sick).to_contain_text("2.3")
    good = page.locator("tbody tr", has=page.get_by_role("link", name="good"))
    expect(good.locator(".badge.healthy")).to_be_visible()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_shows_the_answers_without_scrolling_sideways(sick, dark):
    page = sick(width=390, height=844, dark=dark)
    for name in ("training", "map"):
        drawn(page.locator(f"#{name} canvas"))
        assert page.locator(f"#{name} canvas").evaluate(COLOURS) > 8
        page.locator(f"#{name} .head button").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
