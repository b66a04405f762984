"""What processes that tests start have in common."""

import os
import signal


def listens_to_ctrl_c():
    """For `preexec_fn`: what a shell starts in the background ignores Ctrl-C, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def all_from(terminal):
    """What was written to the other side of a terminal, when nobody has that open any more."""
    seen = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        seen += part
    os.close(terminal)
    return seen.decode()
