"""Changing: the lock that is held while something is put on a model or taken off it.

Calls never wait for it: what they look at is changed by single steps, each of which leaves it right. It keeps
two threads that attach or detach from mixing up their steps.
"""

from __future__ import annotations

from hookline.alone import Alone

changing = Alone()
"""Reentrant: the collector may run somebody's undoing while something is being attached."""
