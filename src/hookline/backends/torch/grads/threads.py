"""Threads: what each thread knows of its calls, and whether calls come from several."""

from __future__ import annotations

import threading

from hookline.backends.torch.compat import graph_task


class Threads:
    """Whether calls came from a thread other than the main one.

    Each thread numbers its nodes from zero: those of others can't be told from those of a call by their numbers.
    Then every tensor that enters or leaves gets a view: what comes to its edge is of the port, and of nobody else.
    """

    several = False

    def note(self) -> None:
        """A call comes from this thread, which is not the main one."""
        if graph_task() == -1:  # else autograd has it repeat a forward, whose graph is its own
            self.several = True


threads = Threads()


class _Thread(threading.local):
    """Of one thread: which call was left last, and how many passages a backward has to look up."""

    def __init__(self) -> None:
        self.is_main = threading.current_thread() is threading.main_thread()

    call = 0
    known: frozenset[int] = frozenset()  # the ids of the tensors that left that call, each on its own
    group = 0
    span = (0, 0)
    looked_up = 0
    looking = 0  # the number of the next node when its first hook came
    handed_on = (0, 0, 0)  # the ids of args and kwargs that a hook handed on last, and the number of the next node


here = _Thread()
