"""Threads: what each thread knows of its calls, and whether calls come from several."""

from __future__ import annotations

import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING

from hookline.backends.torch.compat import graph_task

if TYPE_CHECKING or find_spec("hookline.backends.torch.grads._simple") is not None:
    from hookline.backends.torch.grads._simple import Here, Several
else:  # there was no compiler when hookline was installed
    from hookline.backends.torch.grads.thread_facts import Here, Several


class Threads(Several):
    """Whether calls came from a thread other than the main one: then there are `several`.

    Each thread numbers its nodes from zero: those of others can't be told from those of a call by their numbers.
    Then every tensor that enters or leaves gets a view: what comes to its edge is of the port, and of nobody else.
    """

    def note(self) -> None:
        """A call comes from this thread, which is not the main one."""
        if graph_task() == -1:  # else autograd has it repeat a forward, whose graph is its own
            self.several = True


threads = Threads()


class _Local(threading.local):
    """Of one thread: which call was left last, and how many passages a backward has to look up.

    `call` and `group` are that call's number and its place in the order of calls, `span` its nodes, `known` the
    ids of the tensors that left it, each on its own. `looked_up` counts passages. `marked` is the youngest node at
    which a port is noted, or what comes to it replaced; see `Simple.hear`. `looking` is the number of the next
    node when the call's first hook came. `handed_on` are the ids of args and kwargs that a hook handed on
    last, and the number of the next node.
    """

    # One attribute, looked up once for each side of a call: an attribute of a thread takes four times as long.
    def __init__(self) -> None:
        self.now = Here()
        self.now.marked = -1
        self.now.is_main = threading.current_thread() is threading.main_thread()


here = _Local()
