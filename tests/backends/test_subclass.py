"""A class that an object has for a while: its copies and pickles are of the object's own class."""

import copy
import pickle

import pytest

from hookline.backends.subclass import base_of, is_made, subclass


class Plain:
    """A plain one."""

    def __init__(self):
        self.value = 3


class Made:
    def __new__(cls, value):
        made = super().__new__(cls)
        made.given = value
        return made

    def __init__(self, value):
        self.value = value

    def __getnewargs__(self):
        return (self.given,)


class Reduced(Plain):
    def __reduce__(self):
        return Reduced, (), {"value": self.value}


class Slotted:
    __slots__ = ("value",)

    def __init__(self):
        self.value = 3


def tapped(kind, *args):
    thing = kind(*args)
    thing.__class__ = subclass(kind, {"__slots__": (), "extra": True})
    return thing


def test_it_looks_like_its_base():
    thing = tapped(Plain)
    kind = type(thing)
    assert kind is not Plain and isinstance(thing, Plain) and thing.extra
    assert (kind.__name__, kind.__qualname__, kind.__module__, kind.__doc__) == (
        "Plain", "Plain", Plain.__module__, "A plain one."
    )  # fmt: skip
    assert base_of(kind) is base_of(Plain) is Plain and is_made(kind) and not is_made(Plain)


def test_what_derives_from_it_is_not_taken_for_it():
    below = type("Below", (type(tapped(Plain)),), {})
    assert not is_made(below) and base_of(below) is below


@pytest.mark.parametrize(("kind", "args"), [(Plain, ()), (Made, (3,)), (Reduced, ()), (Slotted, ())])
def test_copies_and_pickles_are_of_the_own_class(kind, args):
    thing = tapped(kind, *args)
    first = 2 if kind in (Made, Slotted) else 0  # what these have can't be pickled by older protocols at all
    pickles = [pickle.dumps(thing, protocol) for protocol in range(first, pickle.HIGHEST_PROTOCOL + 1)]
    for other in (copy.copy(thing), copy.deepcopy(thing), *map(pickle.loads, pickles)):
        assert type(other) is kind and other.value == 3
    assert not any(b"hookline" in data for data in pickles)
