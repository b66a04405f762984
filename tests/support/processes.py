"""What processes that tests start have in common."""

import signal


def listens_to_ctrl_c():
    """For `preexec_fn`: what a shell starts in the background ignores Ctrl-C, and so do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
