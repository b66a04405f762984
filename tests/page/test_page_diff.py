"""The diff of two runs on the live page: what is answered, of which data, and what happens where there is none."""

import json
import os
import sqlite3
import threading
import time

import numpy as np
import pytest

import hookline
from hookline.diffs.report import shown
from hookline.histograms import Histograms
from hookline.page import comparing
from hookline.page.comparing import Asked, Comparisons
from hookline.page.viewed import ViewedRun
from hookline.rows import COUNTS, FLOATS, Rows
from hookline.runs.folder import RunFolder
from tests.support.pages import NASTY, Client, layers, store
from tests.support.parting import run, stuck, until_found
from tests.support.rows import row

ODD = "a,b & c#d?é %2F <b>"


@pytest.fixture
def served(tmp_path):
    run(tmp_path / "a")
    run(tmp_path / "same")
    run(tmp_path / "deep" / "port", since=4)
    with hookline.serve(tmp_path) as server:
        yield Client(server.url)


def test_two_runs_that_part_are_told_as_the_report_tells_them(served, tmp_path):
    status, answer = until_found(served, "a", "deep/port")
    data = answer["data"]
    assert status == 200 and answer["state"] == "ready" and data["verdict"] == "different"
    first = data["places"][data["first"]]
    assert (first["site"], first["step"], first["kind"]) == ("enc.act", 4, "output")
    assert "first at enc.act at step 4" in data["sentence"]
    assert (data["a"], data["b"]) == ("a", "deep/port"), "names of the list, no paths of this machine"
    expected = shown(hookline.diff(tmp_path / "a", tmp_path / "deep" / "port"))
    ours = {name: value for name, value in data.items() if name not in ("a", "b")}
    assert ours == json.loads(json.dumps({name: expected[name] for name in ours}))
    assert [(side["name"], side["last"], side["state"]) for side in answer["sides"]] == [
        ("a", 9, "ended"),
        ("deep/port", 9, "ended"),
    ]


def test_two_runs_that_are_the_same_are_told_within_which_bound(served):
    _, answer = until_found(served, "a", "same")
    assert answer["data"]["verdict"] == "same" and answer["data"]["first"] is None
    assert answer["data"]["sentence"].startswith("The same, to within ")
    assert any("no fingerprints of bits are there" in note for note in answer["data"]["notes"])


def test_names_are_text_whatever_is_in_them(tmp_path):
    names = (NASTY, f"{NASTY}.fc", "ü")
    run(tmp_path / ODD, names=names, model=NASTY)
    run(tmp_path / "b'\"", since=2, names=names, config={NASTY: NASTY})
    with hookline.serve(tmp_path) as server:
        client = Client(server.url)
        _, headers, body = client.send(
            "POST", "/api/diff", json.dumps({"a": ODD, "b": "b'\""}).encode(), content_type="application/json"
        )
        assert headers["Content-Type"] == "application/json" and headers["X-Content-Type-Options"] == "nosniff"
        assert json.loads(body)["state"] in ("ready", "working")
        data = until_found(client, ODD, "b'\"")[1]["data"]
        assert data["a"] == ODD and data["places"][data["first"]]["site"] == f"{NASTY}.fc"
        assert b"<img" not in client.send("GET", f"/?diff={'%3Cimg'}&with=b")[2]


@pytest.mark.parametrize(
    ("a", "b", "status", "says"),
    [
        ("a", "a", 400, "A and B are the same run, 'a'. Choose two different runs."),
        ("a", "nothing", 404, "no run of that name in the folder: 'nothing'. It has 3: 'a', 'deep/port', 'same'."),
        ("../a", "a", 404, "no run of that name"),
        ("", "a", 404, "no run of that name"),
        (NASTY, "a", 404, "no run of that name"),
        (None, "a", 400, "expected the name of a run"),
        ("a", "x" * 5000, 400, "expected the name of a run"),
        ("a", ["same"], 400, "expected the name of a run"),
    ],
)
def test_what_can_not_be_asked_for_is_said(served, a, b, status, says):
    got, answer = until_found(served, a, b)
    assert got == status and says in answer["error"]


@pytest.mark.parametrize(
    "more",
    [{"kept": [0]}, {"kept": "0,1"}, {"kept": [0, -1]}, {"kept": [0, True]}, {"of": 3}, {"of": "x" * 65}],
    ids=str,
)
def test_a_question_of_another_form_is_refused(served, more):
    status, answer = served.ask("diff", a="a", b="same", **more)
    assert status == 400 and "expected" in answer["error"]


def test_a_name_on_disk_that_is_no_text_costs_nobody_the_list(tmp_path):
    run(tmp_path / "a")
    run(tmp_path / "b")
    try:
        (tmp_path / "b").rename(os.fsdecode(os.fsencode(tmp_path) + b"/b\xff"))
    except OSError:
        pytest.skip("this system has names of text only")
    with hookline.serve(tmp_path) as server:
        client = Client(server.url)
        assert {one["name"] for one in client.get("/api/runs")[1]["runs"]} == {"a", r"b\xff"}
        assert client.get(r"/api/run?run=b\xff")[1]["name"] == r"b\xff"
        assert until_found(client, "a", r"b\xff")[1]["state"] == "ready"


def test_a_folder_with_one_run_says_what_there_is(tmp_path):
    run(tmp_path / "only")
    with hookline.serve(tmp_path) as server:
        status, answer = until_found(Client(server.url), "only", "b")
        assert status == 404 and "It has 1: 'only'." in answer["error"]


@pytest.mark.parametrize(
    ("other", "says"),
    [([row("conv", step, "param") for step in range(3)], "no site in common"), ([], "has no rows")],
    ids=["no common site", "no rows"],
)
def test_runs_that_have_nothing_in_common_are_said_to(tmp_path, other, says):
    run(tmp_path / "a")
    store(tmp_path / "b", other)
    with hookline.serve(tmp_path) as server:
        status, answer = until_found(Client(server.url), "a", "b")
        assert status == 200 and answer["state"] == "failed" and says in answer["error"]
        assert "Traceback" not in answer["error"] and "data" not in answer


def test_runs_without_a_common_step_are_said_to_have_none(tmp_path):
    store(tmp_path / "a", [row("fc", step) for step in range(3)])
    store(tmp_path / "b", [row("fc", step) for step in range(50, 53)])
    with hookline.serve(tmp_path) as server:
        _, answer = until_found(Client(server.url), "a", "b")
        assert answer["state"] == "failed" and "no step in common" in answer["error"]


def damaged(file):
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE block SET stats = ?", (b"nonsense",))
    connection.close()


def newer(file):
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE name = 'version'")
    connection.close()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (damaged, "has no rows"),
        (newer, "newer hookline"),
        (lambda file: file.write_bytes(b"garbage" * 500), "not a file of a hookline run"),
        (lambda file: file.write_bytes(file.read_bytes()[:3000]), "damaged"),
    ],
    ids=["every frame", "another version", "garbage", "cut off"],
)
def test_a_run_that_can_not_be_read_is_told_with_the_reason(tmp_path, spoil, says):
    run(tmp_path / "a")
    run(tmp_path / "b")
    spoil(tmp_path / "b" / "rank0-0000.sqlite")
    with hookline.serve(tmp_path) as server:
        _, answer = until_found(Client(server.url), "a", "b")
        assert says in answer["error"] and "Traceback" not in answer["error"]


def test_what_is_damaged_in_a_run_is_a_note_and_no_warning_of_the_server(tmp_path):
    run(tmp_path / "a", names=("fc",), steps=3)
    kept = hookline.RunStore(tmp_path / "b")
    kept.open({"model": "Net", "sites": [["fc", "Linear"]]})
    with hookline.open_run(tmp_path / "a") as stored:
        for one in stored.rows("fc"):
            kept._opened().write([one])
    kept.close()
    with sqlite3.connect(tmp_path / "b" / "rank0-0000.sqlite") as connection:
        (first,) = connection.execute("SELECT min(number) FROM block").fetchone()
        connection.execute("UPDATE block SET stats = ? WHERE number = ?", (b"nonsense", first))
    connection.close()
    with hookline.serve(tmp_path) as server:
        _, answer = until_found(Client(server.url), "a", "b")
        assert answer["state"] == "ready" and answer["data"]["verdict"] == "same"
        assert any(note.startswith("B is damaged: ") for note in answer["data"]["notes"])


def test_runs_of_several_ranks_name_the_rank(tmp_path):
    for name, value in (("a", 1.0), ("b", 3.0)):
        for rank in range(2):
            kept = hookline.RunStore(tmp_path / name)
            kept.open({"sites": [["fc", "Linear"]], "rank": rank})
            values = [(1.0, value if rank and step == 2 else 1.0) for step in range(4)]
            kept.write([row("fc", step, values=one, rank=rank) for step, one in enumerate(values)])
            kept.close()
    with hookline.serve(tmp_path) as server:
        data = until_found(Client(server.url), "a", "b")[1]["data"]
        first = data["places"][data["first"]]
        assert (first["site"], first["step"], first["part"]) == ("fc", 2, "rank 1")


def test_a_run_that_grows_is_compared_again_only_when_that_is_asked_for(tmp_path):
    run(tmp_path / "a", names=("fc",), steps=8)
    with hookline.open_run(tmp_path / "a") as stored:
        rows = stored.rows("fc")
    kept = hookline.RunStore(tmp_path / "b")
    kept.open({"model": "Net", "sites": [["fc", "Linear"]]})
    kept._opened().write(rows[:3])
    with hookline.serve(tmp_path) as server:
        client = Client(server.url)
        _, before = until_found(client, "a", "b")
        assert before["sides"][1]["last"] == 2 and before["sides"][1]["state"] == "running"
        assert any("B may be only a part of a run: it is still being" in note for note in before["data"]["notes"])
        assert client.ask("diff", a="a", b="b", of=before["of"], seen=True)[1]["is_new"] is False
        kept._opened().write([{**rows[3], "mean": 99.0}])
        _, news = client.ask("diff", a="a", b="b", of=before["of"], seen=True)
        assert news["is_new"] is True and news["state"] == "seen" and "data" not in news
        assert client.ask("diff", a="a", b="b", of=before["of"])[1] == before, "what is shown stays what it was"
        _, after = until_found(client, "a", "b")
        assert after["of"] != before["of"] and after["sides"][1]["last"] == 3
        assert after["data"]["verdict"] == "different" and "at step 3" in after["data"]["sentence"]
        kept.close()
        assert client.ask("diff", a="a", b="b", of=after["of"], seen=True)[1]["is_new"], "that it ended is news"


def test_reading_a_run_is_no_news_of_it(served):
    _, answer = until_found(served, "a", "same")
    served.get("/api/run?run=a")
    assert served.ask("diff", a="a", b="same", of=answer["of"], seen=True)[1]["is_new"] is False


def test_a_diff_is_worked_out_once_for_the_same_data(served, monkeypatch):
    calls, diff_runs = [], comparing.diff_runs
    monkeypatch.setattr(comparing, "diff_runs", lambda *a, **how: calls.append(1) or diff_runs(*a, **how))
    answers = [until_found(served, "a", "deep/port")[1] for _ in range(3)]
    assert len(calls) == 1 and answers[0] == answers[1] == answers[2]
    until_found(served, "deep/port", "a")
    assert len(calls) == 2, "the other way round is another diff"


def test_a_long_diff_holds_up_nobody_and_ends_with_the_server(tmp_path, monkeypatch):
    for name in ("a", "b", "c"):
        run(tmp_path / name)
    with stuck(monkeypatch), hookline.serve(tmp_path) as server:
        client = Client(server.url)
        _, answer = client.ask("diff", a="a", b="b")
        assert answer["state"] == "working" and answer["share"] in (0, 0.5)
        assert client.ask("diff", a="a", b="c")[1]["waits"] is True
        begun = time.monotonic()
        assert client.get("/api/runs")[0] == client.get("/api/run?run=a")[0] == 200
        assert time.monotonic() - begun < 2
        begun = time.monotonic()
    assert time.monotonic() - begun < 4, "the diff, which never ends, was given up"


def test_a_diff_that_nobody_asks_for_any_more_is_given_up_and_begun_anew_when_somebody_does(served, monkeypatch):
    monkeypatch.setattr(comparing, "GIVEN_UP", 0.2)
    with stuck(monkeypatch) as go:
        _, first = served.ask("diff", a="a", b="same")
        time.sleep(0.6)
        waits = [thread for thread in threading.enumerate() if thread.name == "hookline-diffs"]
        assert waits == [], "nothing works for a page that was closed"
        go.set()
        assert served.ask("diff", a="a", b="same", of=first["of"])[1]["state"] in ("working", "ready")
        assert until_found(served, "a", "same")[1]["state"] == "ready"


def test_an_error_that_nobody_thought_of_is_a_sentence(served, monkeypatch):
    def broken(*runs, **how):
        raise ZeroDivisionError("by \x1b[31mnothing")

    monkeypatch.setattr(comparing, "diff_runs", broken)
    _, answer = until_found(served, "a", "same")
    assert answer["state"] == "failed"
    assert answer["error"] == "the two could not be compared: ZeroDivisionError: by \ufffd[31mnothing"


def test_only_so_many_diffs_are_kept_and_waited_for(tmp_path, monkeypatch):
    names = [f"r{number:02}" for number in range(comparing.MOST_WAITING + 2)]
    for name in names:
        run(tmp_path / name, steps=2)
    comparisons = Comparisons(RunFolder(tmp_path, ViewedRun))
    monkeypatch.setattr(comparing, "PATIENCE", 0.0)
    with stuck(monkeypatch) as go:
        for name in names[1:-1]:
            comparisons.answer(Asked("r00", name, None))
        with pytest.raises(hookline.RunError, match=r"16 other diffs are waited for\. Close some pages"):
            comparisons.answer(Asked("r00", names[-1], None))
        go.set()
        for job in list(comparisons._jobs.values()):
            assert job.done.wait(20)
    comparisons.answer(Asked("r00", names[-1], None))
    comparisons.stop()
    assert len(comparisons._jobs) <= comparing.MOST_KEPT + 1


def many(folder, sites, steps, other=1.0, each=False):
    """A run of many series; those of B are others from the first step on, or each from a step of its own on."""
    series = [(f"blocks.{at // 10}.layer{at % 10}", "output", 0, "train") for at in range(sites)]
    kept = hookline.RunStore(folder)
    kept.open({"sites": [[one[0], "Linear"] for one in series]})
    counts = np.zeros((len(COUNTS), sites), np.int64)
    counts[COUNTS.index("count")] = 5000
    for step in range(steps):
        numbers = np.full((len(FLOATS), sites), 2.0)
        numbers[:, step if each else slice(None)] *= other
        kept.write(Rows(series, np.full(sites, step), counts, numbers, Histograms.none(sites), [{}] * sites))
    kept.close()


@pytest.mark.parametrize(
    ("sites", "steps", "each"), [(10_000, 2, False), (600, 600, True)], ids=["sites", "steps"]
)
def test_a_large_run_has_a_bounded_answer(tmp_path, monkeypatch, sites, steps, each):
    monkeypatch.setattr(comparing, "PLACES", (400, 100))
    many(tmp_path / "a", sites, steps)
    many(tmp_path / "b", sites, steps, 1.5, each)
    with hookline.serve(tmp_path) as server:
        data = until_found(Client(server.url), "a", "b")[1]["data"]
        assert len(data["places"]) == 400 and data["every"] == sites
        assert data["places"][data["first"]]["site"] == "blocks.0.layer0"
        assert {place["verdict"] for place in data["places"]} == {"different"}


def test_an_answer_is_never_longer_than_it_may_be(tmp_path, monkeypatch):
    names = [f"{'very.long.name.' * 40}{number}" for number in range(60)]
    for name, value in (("a", 1.0), ("b", 2.0)):
        store(tmp_path / name, [row(site, values=(value, 1.0)) for site in names])
    monkeypatch.setattr(comparing, "PLACES", (60, 20))
    with hookline.serve(tmp_path) as server:
        client = Client(server.url)
        whole = len(json.dumps(until_found(client, "a", "b")[1]))
        monkeypatch.setattr(comparing, "MOST_BYTES", whole // 2)
        _, answer = until_found(client, "b", "a")
        assert len(answer["data"]["places"]) == 20 and answer["data"]["every"] == 60
        monkeypatch.setattr(comparing, "MOST_BYTES", 1000)
        run(tmp_path / "c")
        store(tmp_path / "d", [row(site, values=(3.0, 1.0)) for site in names])
        _, answer = until_found(client, "a", "d")
        assert answer["state"] == "failed" and "too much for a page" in answer["error"]


# Who may ask


def test_the_diff_is_guarded_as_the_rest_is(served):
    body = json.dumps({"a": "a", "b": "same"}).encode()

    def sent(**headers):
        return served.send("POST", "/api/diff", body, **{"content_type": "application/json", **headers})[0]

    assert sent() == 200
    assert sent(cookie=None) == sent(cookie=f"hookline-{served.port}=wrong") == 401
    assert sent(host=f"evil.example:{served.port}") == sent(origin="http://evil.example") == 403
    assert sent(sec_fetch_site="cross-site") == 403
    assert sent(content_type="text/plain") == sent(content_type=None) == 400
    assert served.send("GET", "/api/diff?a=a&b=same")[0] == 405
    status, _, _ = served.send("POST", "/api/diff", b"x" * 70_000, content_type="application/json")
    assert status == 400
    status, headers, page = served.send("GET", "/?diff=a&with=same")
    assert status == 200 and "unsafe" not in headers["Content-Security-Policy"]
    assert b'href="/diff.css"' in page and b"style=" not in page
    assert served.send("GET", "/?diff=a", cookie=None)[0] == 401
    status, headers, _ = served.send("GET", f"/?token={served.token}&diff=a&with=same", cookie=None)
    assert status == 303 and headers["Location"] == "/?diff=a&with=same"


def test_layers_of_other_tests_can_be_compared_too(tmp_path):
    """Gradients, parameters and updates, not outputs alone."""
    layers(tmp_path / "a")
    layers(tmp_path / "b")
    with hookline.serve(tmp_path) as server:
        data = until_found(Client(server.url), "a", "b")[1]["data"]
        assert {place["kind"] for place in data["places"]} == {"output", "grad_output", "param_grad", "update"}
