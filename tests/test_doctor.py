"""hookline doctor, and the progress line of a watch in a real terminal."""

import json
import os
import pty
import subprocess
import sys

import pytest

from hookline import lines

WATCHED = """
import torch, hookline
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with hookline.watch(model{options}):
    for _ in range(3):
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()
print("done")
"""


def run(*command):
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)


def test_doctor_tells_which_kernel_is_in_use():
    done = run("-m", "hookline", "doctor")
    assert done.returncode == 0 and f"statistics kernel: {lines.kernel_in_use()}" in done.stdout
    assert "torch" in done.stdout and "pip install" not in done.stdout.split("torch")[1].splitlines()[0]


def test_doctor_speaks_json():
    found = json.loads(run("-m", "hookline", "doctor", "--json").stdout)
    assert found["kernel"] == lines.kernel_in_use() and found["packages"]["torch"].startswith("2.")
    assert found["wal"]["why_not"] is None and {"tensorboard", "wandb", "mlflow"} <= found["packages"].keys()


def test_doctor_without_a_framework_says_so_with_its_exit_code():
    code = (
        "import sys; from hookline.cli import doctor; doctor._version = lambda name: None\n"
        "from hookline.cli.main import main; sys.argv = ['hookline', 'doctor']; main()"
    )
    done = run("-c", code)
    assert done.returncode == 1 and "pip install torch" in done.stdout


def in_terminal(code):
    """What a script prints on standard error when that is a terminal."""
    main, side = pty.openpty()
    done = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=side)
    os.close(side)
    seen = b""
    while True:
        try:
            part = os.read(main, 4096)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        seen += part
    os.close(main)
    assert done.communicate()[0] == b"done\n"
    return seen.decode()


def test_progress_is_shown_in_a_terminal_and_taken_away():
    seen = in_terminal(WATCHED.format(options=""))
    assert "watching" in seen and "step" in seen
    assert "watching" not in in_terminal(WATCHED.format(options=", progress=False"))


@pytest.mark.parametrize("options", ["", ", progress=None"])
def test_progress_is_off_in_a_pipe(options):
    done = run("-c", WATCHED.format(options=options))
    assert (done.stdout, done.stderr) == ("done\n", "")
