"""The page's answers: the verdict with its causes, numbers of the training, and the list that stays quick."""

import base64
import gzip
import json
import math
import re
import threading
import time

import numpy as np

import hookline
from hookline.diagnosis.finding import Finding
from hookline.diagnosis.training import Training
from hookline.page import judging, queries, verdicts, viewed
from hookline.page import report as report_module
from hookline.page.verdicts import Verdicts
from hookline.page.viewed import ViewedRun
from hookline.runs.folder import RunFolder
from hookline.wiring import Optimizer, Wiring
from tests.support.pages import NAN, Client, layers, scalar, store
from tests.support.rows import row


def dead(folder, steps=40, since=10, **meta):
    """A run whose ReLU is dead from a step on."""
    random = np.random.default_rng(0)
    rows = []
    for step in range(steps):
        rows.append(row("fc", step, values=random.standard_normal(50)))
        rows.append(row("relu", step, values=np.maximum(random.standard_normal(50), 0) * (step < since)))
        rows += [scalar("loss", step, 2.0 if step >= since else 2.0 / (step + 1)), scalar("lr", step, 0.1)]
    return store(folder, rows, [("", "Net"), ("fc", "Linear"), ("relu", "ReLU")], **meta)


def about_of(folder):
    run = ViewedRun(folder, folder.name)
    try:
        run.catch_up()
        run.look()
        return json.loads(json.dumps(queries.describe(run), allow_nan=False))
    finally:
        run.close()


def test_a_run_is_told_with_its_verdict_the_cause_and_the_step(tmp_path):
    about = about_of(dead(tmp_path / "a"))
    first = about["findings"][0]
    assert (first["site"], first["step"], first["severity"]) == ("relu", 10, "error")
    assert about["verdict"]["state"] == "error" and first["why"] in about["verdict"]["sentence"]
    assert about["health"]["relu"][0][:1] + about["health"]["relu"][0][2:] == [first["rule"], 10, "error"]
    assert first["evidence"]["rows"] == [["relu", "output"]]


def test_a_healthy_run_says_what_was_looked_at(tmp_path):
    about = about_of(layers(tmp_path / "a", steps=30))
    verdict = about["verdict"]
    assert verdict["state"] == "healthy" and verdict["sentence"] == "Nothing is wrong."
    assert verdict["looked"]["layers"] == 3 and verdict["looked"]["until"] == 29
    assert verdict["looked"]["kinds"] == ["grad_output", "output", "param_grad", "update"]
    assert verdict["looked"]["wiring"] is False and verdict["looked"]["rules"] > 10


def finding(rule, severity, site, **more):
    return Finding(rule, severity, site, 3, f"{site} is {rule}", **more)


def test_consequences_make_their_layers_sick_and_notes_do_not():
    series = [type("S", (), {"site": site, "kind": "output", "mode": "train"}) for site in ("a", "b", "c")]
    training = Training(series, lambda number: None, [(site, "Linear") for site in ("a", "b", "c", "unseen")])
    cause = finding("dead", "error", "a", consequences=(finding("still", "warning", "b.weight"),))
    found = judging.by_module([cause, finding("remark", "note", "c")], training)
    assert {site: [one.rule for one in some] for site, some in found.items()} == {
        "a": ["dead"],
        "b": ["still"],
        "c": [],
    }, "what has no rows is neither sick nor healthy"


def test_evidence_that_json_does_not_have_is_told_as_text():
    odd = finding("odd", "error", "a", evidence={"rms": NAN, "most": np.float32(2), "rows": [("a", "output")]})
    (told,) = judging.as_json([odd])
    assert json.loads(json.dumps(told, allow_nan=False))["evidence"] == {
        "rms": "nan",
        "most": 2.0,
        "rows": [["a", "output"]],
    }


def test_numbers_of_the_training_are_curves_and_no_layers(tmp_path):
    rows = [scalar("loss", step, math.inf if step == 3 else 1.0 / (step + 1)) for step in range(6)]
    store(tmp_path / "a", [*rows, *(row("fc", step) for step in range(6))], [("fc", "Linear")])
    with hookline.serve(tmp_path) as server:
        client = Client(server.url)
        about = client.get("/api/run?run=a")[1]
        number = [series[:2] for series in about["series"]].index(["loss", "scalar"])
        _, answer = client.ask("curves", run="a", series=[number], stat="mean")
    assert about["modules"] == [["fc", "Linear"]] and "loss" not in (about["health"] or {})
    assert answer["x"] == list(range(6)) and answer["bad"] == [[3]], "a loss that is not finite is marked"


def test_facts_have_the_settings_and_the_optimizers_and_not_the_wiring(tmp_path):
    wiring = Wiring(optimizers=[Optimizer("AdamW", [{"lr": 0.001}, {"lr": 0.01}]), Optimizer("Mine")])
    about = about_of(dead(tmp_path / "a", config={"lr": 0.1}, wiring=wiring.to_json()))
    assert about["meta"]["config"] == {"lr": 0.1} and "wiring" not in about["meta"]
    assert about["wired"] == ["AdamW (lr 0.001, 0.01, 2 groups)", "Mine"]


def test_wiring_that_can_not_be_read_hides_nothing_else(tmp_path):
    about = about_of(dead(tmp_path / "a", wiring={"params": 3}))
    assert about["wired"] == [] and about["findings"][0]["site"] == "relu"


# The list


def told(client, wanted):
    """The runs of the list by name, once all of these are judged."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        runs = {run["name"]: run for run in client.get("/api/runs")[1]["runs"]}
        if all(runs[name]["verdict"] for name in wanted):
            return runs
        time.sleep(0.05)
    raise AssertionError("no verdict within a minute")


def test_the_list_tells_verdicts_and_last_losses_when_they_are_known(tmp_path):
    dead(tmp_path / "dead")
    layers(tmp_path / "old", steps=30)
    store(tmp_path / "none", [], [("fc", "Linear")])
    store(tmp_path / "nan", [scalar("loss", 0, 1.0), scalar("loss", 1, NAN), row("fc", 1)], [("fc", "Linear")])
    with hookline.serve(tmp_path) as server:
        runs = told(Client(server.url), ("dead", "old", "none", "nan"))
    assert runs["dead"]["verdict"]["state"] == "error" and "relu" in runs["dead"]["verdict"]["sentence"]
    assert runs["dead"]["loss"] == 2.0 and runs["nan"]["loss"] == "nan"
    assert runs["old"]["verdict"]["state"] == "healthy" and runs["old"]["loss"] is None
    assert runs["none"]["verdict"]["state"] == "unknown"


def test_a_run_is_judged_again_only_when_it_has_changed(tmp_path, monkeypatch):
    dead(tmp_path / "a")
    looked = []
    look = ViewedRun.look
    monkeypatch.setattr(ViewedRun, "look", lambda run, tell=None: looked.append(run.name) or look(run, tell))
    monkeypatch.setattr(verdicts, "LEAST_REST", 0.0)
    monkeypatch.setattr(verdicts, "REST", 0.0)
    with hookline.serve(tmp_path) as server:
        client = Client(server.url)
        for _ in range(3):
            told(client, ["a"])
        assert looked == ["a"]
        store(tmp_path / "a", [scalar("loss", 40, 7.0), row("fc", 40)], resume=True)
        end = time.monotonic() + 30
        while told(client, ["a"])["a"]["loss"] != 7.0:
            assert time.monotonic() < end
            time.sleep(0.05)
    assert looked == ["a", "a"]


def test_the_list_waits_for_no_verdict_and_names_alone_ask_for_none(tmp_path, monkeypatch):
    dead(tmp_path / "a")
    go, began = threading.Event(), threading.Event()

    def slowly(training):
        began.set()
        go.wait(30)
        return []

    monkeypatch.setattr(viewed, "judge", slowly)
    with hookline.serve(tmp_path) as server:
        client = Client(server.url)
        assert "verdict" not in client.get("/api/runs?brief")[1]["runs"][0] and not began.is_set()
        assert client.get("/api/runs")[1]["runs"][0]["verdict"] is None
        assert began.wait(30)
        go.set()
        assert told(client, ["a"])["a"]["verdict"]["state"] == "healthy"


def test_a_run_that_can_not_be_judged_is_told_and_the_others_go_on(tmp_path, monkeypatch):
    dead(tmp_path / "a")
    dead(tmp_path / "b")
    judge = viewed.judge

    def fails(training):
        if training.meta.get("model") == "Odd":
            raise ValueError("no numbers")
        return judge(training)

    monkeypatch.setattr(viewed, "judge", fails)
    store(tmp_path / "odd", [row("fc", 0)], [("fc", "Linear")], model="Odd")
    with hookline.serve(tmp_path) as server:
        runs = told(Client(server.url), ("a", "b", "odd"))
    assert "ValueError: no numbers" in runs["odd"]["verdict"]["sentence"]
    assert runs["a"]["verdict"]["state"] == runs["b"]["verdict"]["state"] == "error"


def test_a_list_of_200_runs_is_told_at_once_and_judged_aside(tmp_path):
    for number in range(200):
        store(tmp_path / f"run{number}", [row("fc", 0), scalar("loss", 0, float(number))], [("fc", "Linear")])
    shelf = RunFolder(tmp_path, ViewedRun)
    found = Verdicts(shelf)
    runs = shelf.overview()
    begun = time.process_time()
    assert len(found.added(runs)) == 200
    assert time.process_time() - begun < 1.0
    end = time.monotonic() + 120
    while None in (losses := {run["loss"] for run in found.added(runs)}):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert losses == {float(number) for number in range(200)}
    found.stop()
    shelf.close()


def test_a_report_has_the_verdict_and_the_numbers_of_the_training(tmp_path):
    dead(tmp_path / "a")
    path = hookline.report(tmp_path / "a", tmp_path / "a.html")
    (packed,) = re.findall(r'id="data">([^<]*)<', path.read_text())
    data = json.loads(gzip.decompress(base64.b64decode(packed)))
    series = data["about"]["series"]
    (bundle,) = [one for one in data["curves"] if series[one["series"][0]][1] == "scalar"]
    assert data["about"]["findings"][0]["site"] == "relu" and list(bundle["stats"]) == ["mean"]
    assert sorted(series[number][0] for number in bundle["series"]) == ["loss", "lr"]
    assert not {str(number) for number in bundle["series"]} & set(data["heat"]), "no histogram of a number"


def test_a_report_has_the_steps_at_which_findings_begin(tmp_path):
    dead(tmp_path / "a", steps=200, since=77)
    opened = ViewedRun(tmp_path / "a", "a")
    opened.catch_up()
    opened.look()
    about = report_module._everything(opened, lambda share: None)["about"]
    opened.close()
    assert len(about["atSteps"]) <= 61 and 77 in about["atSteps"]
