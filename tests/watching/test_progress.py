"""The progress line: it stands aside for whoever else uses the terminal."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from hookline.watching import progress as module
from hookline.watching.progress import Heard, Progress
from tests.support.processes import all_from

HEAD = """
import sys, time
from hookline.watching import progress as module
module.SECONDS = 0.0
progress = module.Progress()
def told(steps):
    for step in steps:
        time.sleep(0.001)
        progress.tell(step, 10)
"""


def in_terminal(code, head=HEAD):
    """All that a script writes to a terminal, both its outputs."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen([sys.executable, "-c", head + code], stdout=side, stderr=side)
    os.close(side)
    seen = all_from(main)
    assert process.wait() == 0, seen
    return seen


def screen(text):
    """The lines that a terminal shows in the end."""
    lines, at = [""], 0
    for part in re.findall(r"\x1b\[2K|\r|\n|[^\x1b\r\n]+|\x1b\[[0-9;?]*[A-Za-z]", text):
        if part == "\x1b[2K":
            lines[-1] = ""
        elif part in ("\r", "\x1b[1G"):
            at = 0
        elif part == "\n":
            lines.append("")
            at = 0
        elif not part.startswith("\x1b"):
            lines[-1] = lines[-1][:at].ljust(at) + part + lines[-1][at + len(part) :]
            at += len(part)
    return lines


def test_the_line_is_shown_and_taken_away():
    text = in_terminal("told(range(3)); progress.close(); print('done')")
    assert "watching: step 2, 30 rows" in text and screen(text) == ["done", ""]


def test_what_is_printed_meanwhile_stands_in_lines_of_its_own():
    code = """
for epoch in range(3):
    told(range(2))
    print("epoch", epoch)
    print("a warning", file=sys.stderr)
told([9])
progress.close()
"""
    text = in_terminal(code)
    assert text.count("watching") == 7
    assert screen(text) == ["epoch 0", "a warning", "epoch 1", "a warning", "epoch 2", "a warning", ""]


@pytest.mark.parametrize(
    "drawn",
    [
        r"print(f'\rloss {n}', end='', flush=True)",
        r"print(f'\rloss {n}', end='', flush=True, file=sys.stderr)",
        r"sys.stdout.write(f'loss {n}\x1b[1G'); sys.stdout.flush()",
    ],
)
def test_a_loop_that_draws_its_own_line_has_the_terminal_from_then_on(drawn):
    text = in_terminal(f"told([0])\nfor n in range(5):\n    {drawn}\n    told([n])\nprogress.close()")
    assert text.count("watching") == 1 and text.index("watching") < text.index("loss 0")
    assert screen(text)[-1].startswith("loss 4")


def test_a_bar_of_tqdm_is_never_torn():
    code = """
from tqdm import tqdm
bar = tqdm(range(20), mininterval=0)
progress = module.Progress()  # begun after the bar, which has the stream's method already
for n in bar:
    told([n])
progress.close()
"""
    text = in_terminal(code)
    assert any("20/20" in line for line in screen(text)) and text.count("watching") == 0


def test_a_bar_of_rich_is_never_torn():
    code = """
from rich.progress import track
for n in track(range(20)):
    told([n])
progress.close()
"""
    assert in_terminal(code).count("watching") <= 1


def test_in_a_log_there_are_lines_from_time_to_time_where_asked(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(module, "IN_A_LOG", 0.0)
    for wanted in (None, False, True):
        progress = Progress(wanted)
        progress.tell(1, 20)
        progress.close()
    assert stream.getvalue() == "watching: step 1, 20 rows\n"


def test_a_stream_is_as_it_was_afterwards():
    stream = io.TextIOWrapper(io.BytesIO())
    heard = []
    first, second = Heard(stream, heard.append), Heard(stream, heard.append)
    stream.write("a")
    first.end()
    stream.write("b")
    second.end()
    stream.write("c")
    stream.flush()
    assert heard == ["a", "a", "b"] and stream.buffer.getvalue() == b"abc"


def test_without_standard_error_there_is_no_line(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    for wanted in (None, True):
        progress = Progress(wanted)
        progress.tell(1, 1)
        progress.close()
