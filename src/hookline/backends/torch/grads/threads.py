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


class Here:
    """Of one thread: which call was left last, and how many passages a backward has to look up."""

    __slots__ = ("call", "group", "handed_on", "is_main", "known", "looked_up", "looking", "marked", "span")

    def __init__(self) -> None:
        self.is_main = threading.current_thread() is threading.main_thread()
        self.call = self.group = self.looked_up = 0
        self.marked = -1
        """The youngest node at which a port is noted, or what comes to it replaced; see `Simple.hear`."""
        self.span = 0, 0
        self.known: tuple[int, ...] = ()
        """The ids of the tensors that left that call, each on its own."""
        self.looking = 0
        """The number of the next node when its first hook came."""
        self.handed_on = 0, 0, 0
        """The ids of args and kwargs that a hook handed on last, and the number of the next node."""


class _Local(threading.local):
    # One attribute, looked up once for each side of a call: an attribute of a thread takes four times as long.
    def __init__(self) -> None:
        self.now = Here()


here = _Local()
