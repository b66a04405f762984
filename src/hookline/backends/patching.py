"""Patching: a function of a framework is replaced while somebody listens, and put back with the last listener.

For frameworks that have no hook at a place. Whoever listens is a user of the patch; users come and go in any order
and from any thread, and an interrupt between two lines leaves nothing behind (`undoing.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from hookline.alone import Alone
from hookline.backends.changing import changing
from hookline.backends.undoing import Undoing

User = TypeVar("User")
Fn = Callable[..., Any]


class Shared(Generic[User]):
    """Something that is set up for its first user, and taken back with the last; `users` are those of now.

    The list is replaced, never changed: whoever goes through it may go on. `take_back` may be called twice.

    >>> log = []
    >>> light = Shared(lambda: log.append("on"), lambda: log.append("off"))
    >>> light.add("a"); light.add("b"); light.drop("a"); light.drop("a"); light.users, log
    (['b'], ['on'])
    >>> light.drop("b"); light.users, log
    ([], ['on', 'off'])
    """

    def __init__(self, set_up: Callable[[], None], take_back: Callable[[], None], alone: Alone = changing) -> None:
        self.users: list[User] = []
        self._set_up, self._take_back = set_up, take_back
        self.add, self.drop = alone(self._add), alone(self._drop)

    def use(self, undoing: Undoing, user: User) -> None:
        """Has a user until what is noted is undone."""
        undoing.noted(self.drop, user)
        self.add(user)

    def _add(self, user: User) -> None:
        self.users = [*self.users, user]
        if len(self.users) == 1:
            self._set_up()

    def _drop(self, user: User) -> None:
        self.users = [other for other in self.users if other is not user]
        if not self.users:
            self._take_back()


class Patch(Shared[User]):
    """Functions replaced by `wrap(original)` while there are users; `places` are (owner, name) of each.

    Somebody else may wrap the replacement, so it can be called when there are no users. It then only leads on.

    >>> class Trainer:
    ...     def step(self): return "step"
    >>> told = Patch([(Trainer, "step")], lambda step: lambda self: (told.users, step(self)))
    >>> told.add("me"); Trainer().step()
    (['me'], 'step')
    >>> told.drop("me"); Trainer().step()
    'step'
    """

    def __init__(
        self, places: Sequence[tuple[Any, str]], wrap: Callable[[Fn], Fn], alone: Alone = changing
    ) -> None:
        self._places = [_Place(owner, name, wrap) for owner, name in places]
        super().__init__(self._replace, self._restore, alone)

    def _replace(self) -> None:
        for place in self._places:
            place.replace()

    def _restore(self) -> None:
        for place in self._places:
            place.restore()


class _Place:
    """One function of somebody else's: of a class or a module. Each step may be cut short and done again."""

    def __init__(self, owner: Any, name: str, wrap: Callable[[Fn], Fn]) -> None:
        self._owner, self._name, self._wrap = owner, name, wrap
        self._original: Fn | None = None
        self._ours: Fn | None = None
        self._inherited = False

    def replace(self) -> None:
        found = getattr(self._owner, self._name)
        if self._ours is None:
            self._original, self._inherited = found, self._name not in vars(self._owner)
            self._ours = self._wrap(found)
        if found is self._original:  # else somebody wrapped ours, which is still called by theirs
            setattr(self._owner, self._name, self._ours)

    def restore(self) -> None:
        found = getattr(self._owner, self._name)
        if found is self._ours:
            if self._inherited:
                delattr(self._owner, self._name)
            else:
                setattr(self._owner, self._name, self._original)
        elif found is not self._original:
            return  # somebody wrapped ours: it stays below theirs, and leads on
        self._ours = None
