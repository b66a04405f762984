"""A function of a framework replaced while somebody listens, and as it was before when nobody does."""

import threading

import pytest

from hookline.backends.patching import Patch
from hookline.backends.undoing import Undoing
from hookline.testing.interrupting import Action


class Base:
    def inherited(self):
        return ["inherited"]


@pytest.fixture
def kind():
    class Kind(Base):
        def own(self):
            return ["own"]

    return Kind


@pytest.fixture
def patch(kind):
    def wrap(original):
        return lambda self: [*told.users, *original(self)]

    told = Patch([(kind, "own"), (kind, "inherited")], wrap)
    return told


def test_users_come_and_go_in_any_order(kind, patch):
    before = dict(vars(kind))
    first, second = Undoing(), Undoing()
    patch.use(first, 1)
    patch.use(second, 2)
    assert kind().own() == [1, 2, "own"] and kind().inherited() == [1, 2, "inherited"]
    first.close()
    assert kind().own() == [2, "own"]
    second.close()
    second.close()
    assert dict(vars(kind)) == before and Base().inherited() == ["inherited"]


def wrap_by_somebody(kind):
    found = kind.own
    kind.own = lambda self: ["theirs", *found(self)]


def test_what_somebody_wrapped_meanwhile_stays_and_no_user_is_told_twice(kind, patch):
    patch.add(1)
    wrap_by_somebody(kind)
    patch.drop(1)
    assert kind().own() == ["theirs", "own"]
    patch.add(2)
    assert kind().own() == ["theirs", 2, "own"]
    patch.drop(2)
    assert kind().own() == ["theirs", "own"]


def test_what_somebody_wrapped_in_between_is_wrapped(kind, patch):
    patch.add(1)
    patch.drop(1)
    wrap_by_somebody(kind)
    theirs = kind.own
    patch.add(2)
    assert kind().own() == [2, "theirs", "own"]
    patch.drop(2)
    assert kind.own is theirs


def test_somebody_who_puts_the_original_back_is_followed(kind, patch):
    original = kind.own
    patch.add(1)
    wrap_by_somebody(kind)
    patch.drop(1)
    kind.own = original
    patch.add(2)
    assert kind().own() == [2, "own"]
    patch.drop(2)
    assert kind.own is original


def test_an_interrupt_at_any_line_leaves_nothing(kind, patch):
    class Block(Undoing):
        def __enter__(self):
            try:
                patch.use(self, 1)
            except BaseException:
                self.close()
                raise

    before = dict(vars(kind))
    action = Action(lambda model: Block(), lambda model: model().own())
    for number in range(len(action.lines(kind))):
        assert action.cut(kind, number)
        assert dict(vars(kind)) == before and patch.users == [], number
    assert number > 20


def test_threads_leave_nothing(kind, patch):
    before = dict(vars(kind))

    def comes_and_goes(user):
        for _ in range(200):
            with Undoing() as undoing:
                patch.use(undoing, user)
                assert user in kind().own()

    threads = [threading.Thread(target=comes_and_goes, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert dict(vars(kind)) == before and patch.users == []
