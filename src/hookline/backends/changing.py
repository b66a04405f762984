"""Changing: the lock that is held while something is put on a model or taken off it.

Calls never wait for it: what they look at is changed by single steps, each of which leaves it right. It keeps
two threads that attach or detach from mixing up their steps.
"""

from __future__ import annotations

import os
import threading

changing = threading.RLock()
"""Reentrant: the collector may run somebody's undoing while something is being attached."""

if hasattr(os, "register_at_fork"):
    # A child must not begin with a lock that a thread of its parent held, which it does not have.
    os.register_at_fork(before=changing.acquire, after_in_parent=changing.release, after_in_child=changing.release)
