"""hookline demo, as a process: to its end, in a terminal, interrupted, and killed."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
import urllib.request

import pytest
from click.testing import CliRunner

import hookline
from hookline.cli import demo
from hookline.cli.main import hookline as cli
from tests.support.pages import store
from tests.support.processes import listens_to_ctrl_c
from tests.support.rows import row

COMMAND = [sys.executable, "-m", "hookline", "demo"]


def one_thread():
    """The environment, as fixtures have it; a second thread would wait for a core that another test has."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def started(*args, cwd, **options):
    return subprocess.Popen(
        [*COMMAND, *args], cwd=cwd, env=one_thread(), text=True, preexec_fn=listens_to_ctrl_c, **options
    )


def learning(folder):
    """A demo that would go on for hours, and keeps its run in `folder`/mine."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return started("--epochs", "100000", "--to", "mine", cwd=folder, **pipes)


def until(condition, seconds=90):
    """Waits for something to be so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} seconds")


def steps_of(folder):
    try:
        with hookline.open_run(folder) as run:
            return run.steps
    except hookline.RunError:
        return []


def test_where_nobody_watches_it_ends_by_itself_with_a_run_and_a_report(tmp_path):
    done = subprocess.run(
        [*COMMAND, "--epochs", "2"],
        cwd=tmp_path,
        env=one_thread(),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    shown = done.stdout
    for name in ("conv1", "norm1", "relu3", "classify"):
        line = next(line for line in shown.splitlines() if f"│ {name} " in line)
        assert "->" in line and "fine" in line, line
    assert "13 fired, 0 silent" in shown and "are right; put back" in shown and "http://" not in shown
    folder = tmp_path / "runs" / "demo" / "healthy"
    with hookline.open_run(folder) as run:
        assert run.steps[:60] == list(range(60)) and run.meta["end"] == "normally"
        assert len(run.recordings) == 1 and run.recordings[0]["classify"].output.shape == (50, 10)
        assert hookline.health(run)["conv1"] == []
    assert "<html" in (folder / "report.html").read_text().lower()
    assert {file.suffix for file in folder.iterdir()} == {".sqlite", ".safetensors", ".html"}
    broken = folder.parent / "broken"
    assert {file.suffix for file in broken.iterdir()} == {".sqlite", ".html"}
    with hookline.open_run(broken) as run:
        found = run.diagnose()
    assert found and f"broken: {found[0]}" in shown


def in_terminal(*args, cwd):
    """(process, what it printed until it was done or waits for Ctrl-C), its output being a terminal."""
    main, side = pty.openpty()
    process = started(*args, cwd=cwd, stdout=side, stderr=subprocess.DEVNULL)
    os.close(side)
    seen = b""
    while b"Ctrl-C ends it" not in seen:
        try:
            seen += os.read(main, 4096)
        except OSError:  # the other side is closed
            break
    return process, re.sub(r"\x1b\[[0-9;]*m", "", seen.decode())


def test_in_a_terminal_the_page_is_served_until_ctrl_c(tmp_path):
    pytest.importorskip("uvicorn", reason="the page needs uvicorn, which `make setup` installs")
    process, shown = in_terminal("--epochs", "1", "--no-browser", cwd=tmp_path)
    (url,) = re.findall(r"http://127\.0\.0\.1:\d+/\S*", shown)
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    assert opener.open(url, timeout=20).status == 200
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0


def test_without_the_page_it_ends_in_a_terminal_too_and_writes_over_no_other_run(tmp_path):
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    (tmp_path / "runs" / "demo-2").mkdir()
    process, shown = in_terminal("--epochs", "1", "--no-page", cwd=tmp_path)
    assert process.wait(timeout=60) == 0 and "http://" not in shown
    assert "kept in runs/demo-3" in shown and not list((tmp_path / "runs" / "demo").iterdir())


def test_ctrl_c_while_it_learns_leaves_a_readable_run(tmp_path):
    process = started(
        "--epochs", "100000", "--to", "mine", cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    seen = until(lambda: steps_of(tmp_path / "mine" / "healthy"))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted; what was seen until then is in mine" in said
    assert "Traceback" not in said
    with hookline.open_run(tmp_path / "mine" / "healthy") as run:
        assert run.meta["end"] == "interrupted" and run.steps == list(range(len(run.steps)))
        assert len(run.steps) >= len(seen)


def test_a_kill_while_it_learns_leaves_a_readable_run(tmp_path):
    process = started(
        "--epochs", "100000", "--to", "mine", cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    seen = until(lambda: steps_of(tmp_path / "mine" / "healthy"))
    process.kill()
    process.communicate(timeout=60)
    with hookline.open_run(tmp_path / "mine" / "healthy") as run:
        assert "end" not in run.meta and run.steps == list(range(len(run.steps))) and len(run.steps) >= len(seen)
    assert hookline.report(tmp_path / "mine" / "healthy", tmp_path / "killed.html").stat().st_size > 10_000


def test_a_folder_that_cannot_be_one_is_told(tmp_path):
    (tmp_path / "file").write_text("here")
    done = CliRunner().invoke(cli, ["demo", "--to", str(tmp_path / "file")])
    assert isinstance(done.exception, hookline.RunError) and "can't be kept" in str(done.exception)


def test_the_demo_calls_a_layer_without_rows_not_seen(tmp_path, capsys):
    store(tmp_path / "a", [row("fc", step) for step in range(4)], [("fc", "Linear"), ("gone", "ReLU")])
    with hookline.open_run(tmp_path / "a") as run:
        demo.show_layers(run)
    printed = {line.split("│")[1].strip(): line for line in capsys.readouterr().out.splitlines() if "│" in line}
    assert "fine" in printed["fc"] and "not seen" in printed["gone"]
