"""A real Chromium for the page's tests: `make test-browser`. A machine without one skips them."""

import shutil

import pytest

import hookline

FLAGS = [
    *["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
    *["--disable-background-networking", "--disable-component-update", "--disable-sync"],
]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no browser on this machine: none of {', '.join(NAMES)} is found")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=path, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def serve(request):
    """Serves a folder until the end of the test."""

    def start(folder):
        server = hookline.serve(folder)
        request.addfinalizer(server.close)
        return server

    return start


@pytest.fixture
def visit(browser):
    """Opens an address in a fresh profile; at the end nothing was fetched elsewhere, and nothing went wrong."""
    contexts, requests, questions, problems = [], [], [], []

    def start(url, *, width=1280, height=900, dark=False, expect_problems=False):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        context.on("request", lambda request: requests.append(request.url))
        context.on("request", lambda request: questions.append((request.url, request.post_data)))
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.requests, page.questions = requests, questions
        if not expect_problems:
            page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(url)
        page.locator("h1").first.wait_for()
        return page

    yield start
    for context in contexts:
        context.close()
    assert not problems, problems
    outside = [url for url in requests if not url.startswith(("http://127.0.0.1:", "file://", "data:"))]
    assert not outside, outside
