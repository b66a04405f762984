"""The page answers only its own browser tab: who else asks is refused, whatever they ask."""

import json

import pytest

import hookline
from hookline.page import queries
from tests.support.pages import NASTY, Client, layers, store
from tests.support.rows import row


@pytest.fixture
def client(tmp_path):
    layers(tmp_path / "a")
    with hookline.serve(tmp_path) as server:
        yield Client(server.url)


EVERYTHING = ["/", "/app.js", "/style.css", "/favicon.svg", "/api/runs", "/api/run?run=a", "/api/events?run=a"]


@pytest.mark.parametrize("target", EVERYTHING)
def test_without_the_token_there_is_nothing(client, target):
    for cookie in (None, "", "hookline=x", f"hookline-{client.port}=wrong", f"hookline-1={client.token}"):
        status, headers, body = client.send("GET", target, cookie=cookie)
        assert status == 401 and b"a.fc" not in body and "Set-Cookie" not in headers


def test_a_wrong_token_in_the_address_is_refused_even_with_the_cookie(client):
    assert client.send("GET", "/?token=wrong")[0] == 401
    assert client.send("GET", "/?token=")[0] == 401
    assert client.send("GET", "/?token=%F0%9F%8E%A3", cookie=None)[0] == 401


def test_the_token_becomes_a_cookie_once(client):
    status, headers, _ = client.send("GET", f"/?token={client.token}&run=a", cookie=None)
    assert status == 303 and headers["Location"] == "/?run=a"
    cookie = headers["Set-Cookie"]
    assert cookie.startswith(f"hookline-{client.port}={client.token};")
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Path=/" in cookie
    assert client.send("POST", f"/api/heat?token={client.token}", b"{}", cookie=None)[0] == 401


def test_the_redirect_stays_here(client):
    for target in (f"//evil.example/?token={client.token}", f"/\\evil.example?token={client.token}"):
        status, headers, _ = client.send("GET", target, cookie=None)
        where = headers.get("Location", "/")
        assert status != 303 or (where.startswith("/") and not where.startswith(("//", "/\\"))), where


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost.evil.example:{port}",
        "",
        "[::2]:{port}",
    ],
)
def test_other_host_headers_are_refused(client, host):
    host = host.format(port=client.port)
    for target in EVERYTHING:
        assert client.send("GET", target, host=host)[0] == 403
    assert client.send("GET", f"/?token={client.token}", host=host)[0] == 403


def test_names_of_this_machine_are_fine(client):
    for host in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]"):
        assert client.send("GET", "/api/runs", host=f"{host}:{client.port}")[0] == 200


def test_a_request_without_a_host_is_refused(client):
    assert client.send("GET", "/", host=None)[0] in (400, 403)


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "https://127.0.0.1:{port}"},
    ],
)
def test_what_another_site_sends_is_refused(client, headers):
    headers = {name: value.format(port=client.port) for name, value in headers.items()}
    body = json.dumps({"run": "a", "series": [0], "stat": "std"}).encode()
    assert client.send("GET", "/api/runs", **headers)[0] == 403
    assert client.send("POST", "/api/curves", body, content_type="application/json", **headers)[0] == 403
    assert client.send("GET", f"/?token={client.token}", cookie=None, **headers)[0] == 403


def test_the_page_itself_may_ask(client):
    own = f"http://127.0.0.1:{client.port}"
    body = json.dumps({"run": "a", "series": [0], "stat": "std"}).encode()
    sent = {"content_type": "application/json", "origin": own, "sec_fetch_site": "same-origin"}
    assert client.send("POST", "/api/curves", body, **sent)[0] == 200


@pytest.mark.parametrize("target", [*EVERYTHING[:-1], "/missing", f"/?token={'x' * 40}"])
def test_every_answer_is_kept_close(client, target):
    _, headers, _ = client.send("GET", target)
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy and "http" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store" and "Access-Control-Allow-Origin" not in headers
    assert headers["Server"] is None


@pytest.mark.parametrize(
    "name", ["../secret", "..", "/etc", "a/../../secret", "%2e%2e/secret", "a\0", "", ".", NASTY]
)
def test_names_lead_nowhere_else(tmp_path, name):
    layers(tmp_path / "secret")
    layers(tmp_path / "runs" / "a")
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "secret")
    with hookline.serve(tmp_path / "runs") as server:
        client = Client(server.url)
        status, answer = client.ask("curves", run=name, series=[0], stat="std")
        assert status == 404 and "no run of that name" in answer["error"]
        assert {run["name"] for run in client.get("/api/runs")[1]["runs"]} == {"a"}, "a link is not followed"


@pytest.mark.parametrize(
    "target",
    [
        "/../pyproject.toml",
        "/..%2fserve.py",
        "/static/app.js",
        "/%2e%2e/serve.py",
        "//etc/passwd",
        "/.",
        "/app.py",
    ],
)
def test_only_files_of_the_page_are_served(client, target):
    status, _, body = client.send("GET", target)
    assert status == 404 and b"import" not in body


@pytest.mark.parametrize(
    ("what", "question"),
    [
        ("curves", {"series": list(range(queries.MOST_SERIES + 1)), "stat": "std"}),
        ("curves", {"series": [0], "stat": "s" * 1000}),
        ("curves", {"series": [0], "stat": ["std"]}),
        ("curves", {"series": [0], "stat": "std", "points": 10**9}),
        ("curves", {"series": [0], "stat": "std", "points": 0}),
        ("curves", {"series": [0], "stat": "std", "from": 10**30}),
        ("curves", {"series": [0], "stat": "std", "to": "x"}),
        ("curves", {"series": [0], "stat": "std", "points": True}),
        ("curves", {"series": [-1], "stat": "std"}),
        ("curves", {"series": [10**9], "stat": "std"}),
        ("curves", {"series": ["0"], "stat": "std"}),
        ("curves", {"series": 3, "stat": "std"}),
        ("curves", {"stat": "std"}),
        ("heat", {"series": [0] * (queries.MOST_IMAGES + 1)}),
        ("heat", {"series": [0], "columns": 10**9}),
        ("at", {"series": [0], "step": 10**30}),
        ("at", {"series": [0], "step": None}),
    ],
)
def test_questions_beyond_the_limits_are_refused(client, what, question):
    status, answer = client.ask(what, run="a", **question)
    assert status == 400 and answer["error"]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"nonsense", b"[" * 60_000, b'"text"', b"\xff\xfe", b"x" * 70_000]
)
def test_what_is_no_question_is_refused(client, body):
    status, _, answer = client.send("POST", "/api/curves", body, content_type="application/json")
    assert status == 400 and json.loads(answer)["error"]


def test_a_question_of_another_type_is_refused(client):
    """A form on a foreign page can send text/plain without asking first."""
    body = json.dumps({"run": "a", "series": [0], "stat": "std"}).encode()
    for kind in (None, "text/plain", "application/x-www-form-urlencoded"):
        assert client.send("POST", "/api/curves", body, content_type=kind)[0] == 400


def test_a_stream_tells_of_two_runs_at_most_and_names_have_a_length(client):
    assert client.get("/api/events?run=a&run=a&run=a")[0] == 400
    assert client.get(f"/api/run?run={'x' * 5000}")[0] == 400


def test_only_this_machine_is_listened_to_unless_told_otherwise(tmp_path):
    layers(tmp_path / "a")
    with hookline.serve(tmp_path) as server:
        assert server.url.startswith("http://127.0.0.1:")
    with hookline.serve(tmp_path, host="0.0.0.0") as server:
        port, _, token = server.url.rpartition(":")[2].partition("/?token=")
        client = Client(f"http://127.0.0.1:{port}/?token={token}")
        assert client.send("GET", "/api/runs", host=f"10.1.2.3:{port}")[0] == 200
        assert client.send("GET", "/api/runs", host=f"evil.example:{port}")[0] == 403


def test_tokens_are_long_and_new_each_time(tmp_path):
    layers(tmp_path / "a")
    tokens = set()
    for _ in range(3):
        with hookline.serve(tmp_path) as server:
            tokens.add(Client(server.url).token)
    assert len(tokens) == 3 and all(len(token) >= 32 for token in tokens)


def test_names_with_html_do_not_become_html_in_a_report(tmp_path):
    """All data is base64 of a compressed text, and the title is escaped; the browser tests look at the rest."""
    store(tmp_path / "<b>run", [row(NASTY, kind="output")], [(NASTY, NASTY)], model=NASTY, command=[NASTY])
    text = hookline.report(tmp_path / "<b>run", tmp_path / "a.html").read_text()
    assert "<b>run" not in text and "src=x" not in text and "&lt;b&gt;run" in text
    assert text.count("</script>") == 2
