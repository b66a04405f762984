"""hookline view and hookline report, as processes."""

import json
import re
import signal
import subprocess
import sys

import hookline
from tests.support.pages import Client, layers
from tests.support.processes import listens_to_ctrl_c


def command(*args, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "hookline", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=listens_to_ctrl_c,
        **options,
    )


def test_view_prints_its_address_and_ends_with_ctrl_c(tmp_path):
    layers(tmp_path / "a")
    process = command("view", tmp_path, "--no-browser")
    address = next(line.strip() for line in process.stdout if line.startswith("http"))
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=\S{32}", address)
    client = Client(address)
    assert client.get("/api/runs")[1]["runs"][0]["name"] == "a"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0 and "Traceback" not in errors


def test_view_waits_for_a_folder_that_is_not_there_yet(tmp_path):
    process = command("view", tmp_path / "later", "--no-browser")
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith("http"):
            break
    assert "yet: the page waits for it" in said[0]
    client = Client(said[-1].strip())
    assert client.get("/api/runs")[1] == {"runs": [], "waiting": str(tmp_path / "later")}
    layers(tmp_path / "later" / "a")
    found = client.get("/api/runs")[1]
    assert [run["name"] for run in found["runs"]] == ["a"] and found["waiting"] is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_view_of_a_file_says_so(tmp_path):
    (tmp_path / "file").touch()
    process = command("view", tmp_path / "file", "--no-browser")
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1 and "is a file" in errors and "Traceback" not in errors


def test_view_on_a_port_that_is_taken_says_so(tmp_path):
    with hookline.serve(tmp_path) as server:
        process = command("view", tmp_path, "--no-browser", "--port", Client(server.url).port)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 1 and "can't listen" in errors and "Traceback" not in errors


def test_report_from_the_command_line(tmp_path):
    layers(tmp_path / "a")
    process = command("report", tmp_path / "a", "-o", tmp_path / "a.html", "--json")
    out, _ = process.communicate(timeout=60)
    assert json.loads(out) == {"path": str(tmp_path / "a.html"), "bytes": (tmp_path / "a.html").stat().st_size}
    process = command("report", tmp_path, "-o", tmp_path / "b.html")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1 and "there is no run in" in errors and "Traceback" not in errors


def test_help_imports_no_server():
    code = (
        "import sys; from hookline.cli.main import hookline\n"
        "for args in (['--help'], ['view', '--help'], ['report', '--help']):\n"
        "    try: hookline(args)\n"
        "    except SystemExit: pass\n"
        "print(sorted({'starlette', 'uvicorn', 'numpy', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
