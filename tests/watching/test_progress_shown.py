"""The progress line of a watch in a real terminal, and in a pipe."""

import os
import pty
import subprocess
import sys

import pytest

from tests.support.processes import all_from

WATCHED = """
import time, torch, hookline
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with hookline.watch(model{options}):
    for _ in range(3):
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()
        time.sleep(0.3)
print("done")
"""


def in_terminal(code):
    """What a script prints on standard error when that is a terminal."""
    main, side = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=side)
    os.close(side)
    seen = all_from(main)
    assert process.communicate()[0] == b"done\n"
    return seen


def test_progress_is_shown_in_a_terminal_and_taken_away():
    seen = in_terminal(WATCHED.format(options=""))
    assert "watching" in seen and "step" in seen
    assert "watching" not in in_terminal(WATCHED.format(options=", progress=False"))


@pytest.mark.parametrize("options", ["", ", progress=None"])
def test_progress_is_off_in_a_pipe(options):
    code = WATCHED.format(options=options)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("done\n", "")
