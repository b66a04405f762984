"""The page in a real browser: what is drawn, how it follows a run, and that it can be used without a mouse."""

import itertools
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

import hookline
from hookline.globs import matcher
from tests.environments.browser.drawn import at, drawn
from tests.support.pages import NASTY, layers, store
from tests.support.paths import ROOT
from tests.support.rows import row

expect.set_options(timeout=15_000)


@pytest.fixture
def run(tmp_path, serve):
    layers(tmp_path / "one")
    layers(tmp_path / "two", steps=20)
    return serve(tmp_path)


def test_the_list_leads_to_a_run_by_keyboard_alone(run, visit):
    page = visit(run.url)
    assert "token" not in page.url, "the token is gone from the address"
    link = page.get_by_role("link", name="one", exact=True)
    for _ in range(20):
        if link.evaluate("link => link === document.activeElement"):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("one")
    chart = page.locator("#curves canvas")
    drawn(chart)
    chart.focus()
    page.keyboard.press("ArrowLeft")
    readout = page.locator("#curves .readout")
    expect(readout).to_have_text(re.compile(r"a\.fc, step \d+: "))
    before = readout.text_content()
    page.keyboard.press("ArrowLeft")
    expect(readout).not_to_have_text(before)
    page.keyboard.press("ArrowDown")
    expect(readout).to_have_text(re.compile(r"a\.act, step \d+: "))
    page.keyboard.press("Escape")
    expect(readout).to_have_text("\u00a0")
    page.get_by_role("button", name="Curves as a table").focus()
    page.keyboard.press("Space")
    expect(page.locator("#curves table")).to_be_visible()


def test_every_view_is_drawn_and_has_a_table_with_the_same_numbers(run, visit, tmp_path):
    page = visit(at(run, run="one"))
    for name in ("curves", "heat", "flow", "boxes"):
        drawn(page.locator(f"#{name} canvas").first)
    for name in ("curves", "heat", "flow", "boxes"):
        page.locator(f"#{name} .head button").click()
    with hookline.open_run(tmp_path / "one") as stored:
        std = stored.rows("a.fc", "output", steps=(3, 3))[0]["std"]
        norm = stored.rows("b.fc.weight", "param_grad", steps=(11, 11))[0]["l2"]
        largest = stored.rows("a.act", "output", steps=(11, 11))[0]["max"]
    curves = (
        page.locator("#curves tbody tr", has=page.get_by_role("rowheader", name="3", exact=True))
        .locator("th, td")
        .all_text_contents()
    )
    assert curves[0] == "3" and float(curves[1]) == pytest.approx(std, rel=1e-3)
    flow = page.locator("#flow tbody tr", has_text="b.fc.weight").locator("td").all_text_contents()
    assert float(flow[1]) == pytest.approx(norm, rel=1e-3)
    boxes = page.locator("#boxes tbody tr", has_text="a.act").locator("td").all_text_contents()
    assert float(boxes[-1]) == pytest.approx(largest, rel=1e-3)
    assert page.locator("#heat table").count() == 3


def test_choices_change_the_charts_and_stay_in_the_address(run, visit):
    page = visit(at(run, run="one"))
    page.get_by_label("Values", exact=True).select_option("param_grad")
    page.get_by_label("Statistic").select_option("l2")
    expect(page.locator("#curves .hint")).to_have_text("L2 norm of gradients of parameters, 3 sites.")
    page.get_by_label("Filter").fill("a.**")
    expect(page.locator("#curves .hint")).to_contain_text("2 sites")
    assert "kind=param_grad" in page.url and "stat=l2" in page.url
    page.reload()
    expect(page.locator("#curves .hint")).to_have_text("L2 norm of gradients of parameters, 2 sites.")
    page.get_by_label("Filter").fill("nothing-like-this")
    expect(page.get_by_text("No layer matches.", exact=True)).to_be_visible()
    page.get_by_label("Filter").fill("")
    page.get_by_role("button", name="fc Linear").first.click()
    expect(page.locator("#curves .hint")).to_contain_text("1 site")


def test_the_slider_chooses_the_step(run, visit):
    page = visit(at(run, run="one"))
    slider = page.get_by_label("Step", exact=True)
    slider.focus()
    expect(page.locator("output")).to_have_text("11 (latest)")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("output")).to_have_text("9")
    page.locator("#flow .head button").click()
    expect(page.locator("#flow caption")).to_contain_text("at step 9")
    page.get_by_role("button", name="Latest").click()
    expect(page.locator("#flow caption")).to_contain_text("at step 11")


def test_two_runs_lie_over_each_other(run, visit):
    page = visit(at(run, run="one"))
    page.get_by_label("Compare with").select_option("two")
    expect(page.get_by_role("heading", level=1)).to_contain_text("one with two")
    drawn(page.locator("#curves canvas"))
    expect(page.locator("#curves .legend")).to_contain_text("two")
    assert page.locator("#heat article").first.locator("canvas").count() == 2
    page.locator("#curves .head button").click()
    heads = page.locator("#curves thead th").all_text_contents()
    assert "a.fc (one)" in heads and "a.fc (two)" in heads
    assert sum("/api/events" in url for url in page.requests) == 2, "one stream for each page that was loaded"


def test_health_has_a_word_and_a_reason_and_filters(tmp_path, serve, visit):
    sites = [("", "Net"), ("good", "Linear"), ("bad", "ReLU")]
    rows = [row("good", step, values=np.linspace(-1, 1, 50)) for step in range(8)]
    rows += [row("bad", step, values=[0.0] * 99 + [1.0]) for step in range(8)]
    store(tmp_path / "a", rows, sites)
    page = visit(at(serve(tmp_path), run="a"))
    expect(page.locator("#verdict")).to_contain_text("bad: 99.0% of its outputs are zero")
    expect(page.get_by_role("button", name=re.compile("bad ReLU dead units 99"))).to_be_visible()
    page.locator(".chip", has_text="dead").click()
    expect(page.locator("#curves .hint")).to_contain_text("1 site")
    expect(page.locator(".chip", has_text="dead")).to_have_attribute("aria-pressed", "true")


WRITER = """
import sys, time
sys.path.insert(0, sys.argv[2])
import hookline
from tests.support.rows import row
kept = hookline.RunStore(sys.argv[1])
kept.open({"model": "Net", "sites": [["", "Net"], ["fc", "Linear"]]})
for step in range(100):
    kept.write([row("fc", step), row("fc", step, "grad_output")])
    time.sleep(0.05)
kept.close()
"""


def test_a_run_that_is_being_written_is_followed_without_reload(tmp_path, serve, visit):
    page = visit(serve(tmp_path).url)
    expect(page.get_by_text("No run here yet")).to_be_visible()
    page.evaluate("window.stillHere = true")
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "live"), str(ROOT)])
    try:
        link = page.get_by_role("link", name="live")
        expect(link).to_be_visible()
        assert page.evaluate("window.stillHere"), "the list grew without reload"
        link.click()
        state = page.locator("h1 .state")
        expect(state).to_have_text("running")
        page.evaluate("window.stillHere = true")
        steps = page.locator("dd", has_text=re.compile("the last is")).first
        seen = set()
        while writer.poll() is None:
            seen.add(steps.text_content())
            time.sleep(0.2)
        expect(steps).to_have_text("100, the last is 99")
        expect(state).to_have_text("ended")
        assert len(seen) >= 3, seen
        expect(page.locator("output")).to_have_text("99 (latest)")
        page.locator("#curves .head button").click()
        expect(page.locator("#curves tbody tr").last.locator("th")).to_have_text("99")
        assert page.evaluate("window.stillHere"), "the run grew without reload"
    finally:
        writer.kill()
        writer.wait()


def test_a_server_that_is_gone_is_told(tmp_path, visit):
    layers(tmp_path / "one")
    with hookline.serve(tmp_path) as server:
        page = visit(at(server, run="one"), expect_problems=True)
        drawn(page.locator("#curves canvas"))
    expect(page.locator("#link")).to_have_text("The server does not answer.")


def test_a_run_that_is_not_there_is_told(run, visit):
    page = visit(at(run, run="missing"), expect_problems=True)
    expect(page.get_by_role("alert")).to_contain_text("there is no run of that name")


@pytest.mark.parametrize("query", [{}, {"run": "one"}, {"run": "one", "with": "two"}])
def test_a_phone_shows_all_without_scrolling_sideways(run, visit, query):
    page = visit(at(run, **query), width=390, height=844)
    if query:
        for name in ("curves", "heat", "flow", "boxes"):
            drawn(page.locator(f"#{name} canvas").first)
            page.locator(f"#{name} .head button").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_colours_follow_the_system_and_the_button(run, visit):
    page = visit(at(run, run="one"), dark=True)
    theme = page.locator("html")
    expect(theme).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Light").click()
    expect(theme).to_have_attribute("data-theme", "light")
    page.reload()
    expect(theme).to_have_attribute("data-theme", "light")


def test_names_with_html_are_shown_as_they_are(tmp_path, serve, visit):
    store(tmp_path / "a", [row(NASTY, step) for step in range(4)], [(NASTY, NASTY)], model=NASTY)
    folder = tmp_path / NASTY.replace("/", "")
    layers(folder)
    server = serve(tmp_path)
    listed = visit(server.url)
    expect(listed.get_by_role("link", name=folder.name)).to_be_visible()
    page = visit(at(server, run="a"))
    drawn(page.locator("#curves canvas"))
    expect(page.locator("dd").first).to_have_text(NASTY)
    for name in ("curves", "heat", "flow", "boxes"):
        page.locator(f"#{name} .head button").click()
    for one in (listed, page):
        assert one.title() == "hookline" and one.locator("img").count() == 0


def test_globs_mean_what_they_mean_in_python(run, visit):
    names = [
        "",
        "fc",
        "fc.weight",
        "layer1",
        "layer1.0.conv1",
        "layer1.0.conv2.weight",
        "a-b",
        "x]y",
        "é.日本",
        "n\nl",
    ]
    parts = [
        "*",
        "**",
        "?",
        "fc",
        "layer[12]",
        "[!l]*",
        "**.weight",
        "layer?.**",
        "*.*",
        "[a-c]-b",
        "conv",
        "]",
        "[",
    ]
    pairs = (f"{a}.{b}" for a, b in itertools.product(parts, parts))
    patterns = {*parts, *pairs, "[z-a]", "[]x]*", "x[]]y", "**.", "[!a]", "a[-]b", "é.??", "[^f]c", "f[c\\]"}
    wild = sorted(pattern for pattern in patterns if re.search(r"[*?\[]", pattern))
    page = visit(run.url)
    found = page.evaluate(
        """async ([patterns, names]) => {
          const { matcher } = await import("/glob.js");
          return patterns.map((pattern) => names.filter(matcher(pattern)));
        }""",
        [wild, names],
    )
    expected = [[name for name in names if matcher(pattern)(name)] for pattern in wild]
    wrong = [case for case in zip(wild, found, expected, strict=True) if case[1] != case[2]]
    assert not wrong, wrong


def test_200_layers_over_2500_steps(tmp_path, serve, visit, capsys):
    """Timings are told, not judged: bench numbers depend on the machine."""
    kept = hookline.RunStore(tmp_path / "big")
    names = [f"blocks.{n // 8}.part{n % 8}" for n in range(200)]
    kept.open({"model": "Net", "sites": [["", "Net"], *([name, "Linear"] for name in names)]})
    kinds = {"output": row(values=np.linspace(-2, 2, 60)), "grad_output": row(values=np.linspace(-2, 2, 60) / 1e3)}
    for step in range(2500):
        rows = [{**kinds[kind], "site": name, "kind": kind, "step": step} for kind in kinds for name in names]
        if step == 1234:
            rows[77] = {**rows[77], "std": 5000.0}
        kept.write(rows)
    kept.close()
    began = time.monotonic()
    page = visit(at(serve(tmp_path), run="big"))
    whole = page.locator("dd", has_text="the last is")
    expect(whole).to_have_text("2,500, the last is 2,499", timeout=120_000)  # a second of work, on an idle machine
    read = time.monotonic() - began
    drawn(page.locator("#curves canvas"))
    curves = time.monotonic() - began
    drawn(page.locator("#heat canvas").first)
    first = time.monotonic() - began
    asked = [json.loads(body)["series"] for url, body in page.questions if url.endswith("/api/heat")]
    assert page.locator("#heat article").count() == 200
    assert len({number for some in asked for number in some}) <= 24, "what is on the screen, not all 200"
    assert max(map(len, asked)) > 1, "together, not one by one"
    slow = page.evaluate(
        """async () => {
          let [worst, last] = [0, performance.now()];
          for (let y = 0; y < document.body.scrollHeight; y += 400) {
            scrollTo(0, y);
            await new Promise(requestAnimationFrame);
            worst = Math.max(worst, performance.now() - last);
            last = performance.now();
          }
          return worst;
        }"""
    )
    page.locator("#curves .head button").click()
    page.get_by_label("Filter").fill("blocks.9.part5")
    expect(page.locator("#curves .hint")).to_contain_text("1 site")
    spike = page.locator("#curves tr", has_text="highest").locator("td")
    expect(spike).to_have_text(re.compile(r"5000 \(step 1,23\d\)"))
    with capsys.disabled():
        print(
            f"\n200 layers x 2,500 steps: read {read:.1f} s, curves {curves:.1f} s, first image {first:.1f} s, "
            f"longest frame while scrolling {slow:.0f} ms, {len(asked)} requests for images at first"
        )


def test_the_report_is_the_page_without_a_server(tmp_path, visit):
    layers(tmp_path / "one")
    path = hookline.report(tmp_path / "one", tmp_path / "one.html")
    page = visit(path.as_uri())
    expect(page.get_by_role("heading", level=1)).to_contain_text("one")
    for name in ("curves", "heat", "flow", "boxes"):
        drawn(page.locator(f"#{name} canvas").first)
        page.locator(f"#{name} .head button").click()
        expect(page.locator(f"#{name} table").first).to_be_visible()
    page.get_by_label("Statistic").select_option("mean")
    page.get_by_label("Values", exact=True).select_option("update")
    expect(page.locator("#curves .hint")).to_have_text("Mean of updates of parameters, 3 sites.")
    with hookline.open_run(tmp_path / "one") as stored:
        mean = stored.rows("a.fc.weight", "update", steps=(0, 0))[0]["mean"]
    first = page.locator("#curves tbody tr").nth(2).locator("td").first
    expect(first).to_have_text(re.compile(r"\d"))
    assert float(first.text_content()) == pytest.approx(mean, rel=1e-3)
    assert [url for url in page.requests if not url.startswith("data:")] == [path.as_uri()]


def test_a_report_with_html_in_every_name_is_harmless(tmp_path, visit):
    folder = tmp_path / NASTY.replace("/", "")
    store(folder, [row(NASTY, step) for step in range(4)], [(NASTY, NASTY)], model=NASTY, command=[NASTY])
    page = visit(hookline.report(folder, tmp_path / "a.html").as_uri())
    drawn(page.locator("#curves canvas"))
    expect(page.locator("dd").first).to_have_text(NASTY)
    assert page.title() == f"{folder.name} · hookline" and page.locator("img").count() == 0


AXE = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  const told = (nodes) => nodes.slice(0, 3).map((node) => `${node.html} ${node.failureSummary}`);
  return violations.map(({ id, nodes }) => [id, told(nodes)]);
}"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("view", ["list", "run", "tables", "compare", "report"])
def test_axe_finds_nothing(tmp_path, run, visit, view, dark):
    rows = [row("nan", step, values=(float("nan"), 1.0)) for step in range(6)]
    rows += [row("dead", step, values=[0.0] * 50) for step in range(6)]
    rows += [row("still.weight", step, "update", ratio=0.0) for step in range(6)]
    store(tmp_path / "sick", rows, [("nan", "A"), ("dead", "B"), ("still", "C"), ("unseen", "D")])
    if view == "report":
        page = visit(hookline.report(tmp_path / "sick", tmp_path / "a.html").as_uri(), dark=dark)
    else:
        query = {"list": {}, "run": {"run": "sick"}, "tables": {"run": "one"}}
        page = visit(at(run, **query.get(view, {"run": "one", "with": "two"})), dark=dark)
    if view != "list":
        for name in ("curves", "heat", "flow", "boxes"):
            page.locator(f"#{name} canvas").first.scroll_into_view_if_needed()
            if view == "tables":
                page.locator(f"#{name} .head button").click()
    time.sleep(0.5)
    package = pytest.importorskip("axe_playwright_python", reason="axe-core is not installed")
    source = next(Path(package.__path__[0]).rglob("axe.min.js"))
    page.evaluate(source.read_text())
    assert page.evaluate(AXE) == []
