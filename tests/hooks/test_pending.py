"""CallsUnderWay: what a tap before the forward leaves for the tap after it, told apart by call and by thread.

Written in C and in Python, which must be the same.
"""

import asyncio
import gc
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import hookline
from hookline.backends import keywords
from hookline.backends.tap import FunctionTap, Label
from hookline.hooks.pending import (
    CallsUnderWay,
    CallsUnderWayByPython,
    call_number,
    call_number_by_python,
)

LABEL = Label("test", "tap", "")

PENDING = dict.fromkeys([CallsUnderWay, CallsUnderWayByPython])
NUMBERS = dict.fromkeys([call_number, call_number_by_python])


@pytest.fixture(params=PENDING, ids=lambda kind: kind.__module__)
def kind(request, monkeypatch):
    """How calls under way are kept: once in C, where that was compiled, and once in Python."""
    if request.param is CallsUnderWayByPython:
        monkeypatch.setattr(keywords, "handed_on", keywords.handed_on_by_python)
    return request.param


def test_calls_are_told_apart_by_their_kwargs(kind):
    pending = kind()
    outer, inner = {}, {}
    pending.put(outer, outer, "outer")
    pending.put(inner, inner, "inner")
    assert pending.take(inner) == "inner" and pending.take(outer) == "outer"
    assert pending.take({}) is None and pending.under_way == 0


def test_a_call_that_failed_is_finished_by_no_other(kind):
    pending = kind()
    failed, later = {}, {}
    pending.put(failed, failed, "failed")
    assert pending.take(later) is None
    pending.put(later, later, "later")
    assert pending.take(later) == "later" and pending.under_way == 1


def test_calls_that_failed_within_a_call_are_forgotten_with_it(kind):
    pending = kind()
    outer, failed = {}, {}
    pending.put(outer, outer, "outer")
    for _ in range(3):
        pending.put(failed, failed, "failed")
        failed = {}
    assert pending.take(outer) == "outer" and pending.under_way == 0


def test_one_dict_may_stand_for_a_call_and_for_one_within_it(kind):
    """As where somebody's hook returns the same dict every time."""
    pending, always = kind(), {}
    pending.put(always, always, "outer")
    pending.put(always, always, "inner")
    assert [pending.take(always) for _ in range(3)] == ["inner", "outer", None]


def test_a_call_of_another_thread_is_never_meant(kind):
    """Two recordings on one model: the taps of both run in both threads, and each call belongs to one of them."""
    pending, mine = kind(), {}
    pending.put(mine, mine, "mine")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(pending.take, {}).result() is None
        assert pool.submit(pending.take, mine).result() is None
    assert pending.take(mine) == "mine"


def test_where_later_taps_replace_the_kwargs_each_finds_its_own_call(kind):
    pendings = [kind() for _ in range(3)]

    def entering(pending, name):
        def before(module, args, kwargs):
            new = dict(kwargs)
            pending.put(kwargs, new, name)
            return args, new

        return FunctionTap(before, LABEL, after=False)

    taps = [entering(pending, number) for number, pending in enumerate(pendings)]

    def entered():
        args, kwargs = (), {}
        for tap in taps:
            args, kwargs = tap(None, args, kwargs)
        return kwargs

    failed, outer = entered(), entered()
    inner = entered()
    for kwargs in (inner, outer):
        assert [pending.take(kwargs) for pending in pendings] == [0, 1, 2]
    assert all(pending.under_way == 1 for pending in pendings)
    assert [pending.take(failed) for pending in pendings] == [0, 1, 2]


def test_what_is_left_of_calls_is_given_back_once_and_held_by_nobody(kind):
    class Call:
        pass

    pending, kwargs, calls = kind(), [{} for _ in range(3)], [Call() for _ in range(3)]
    for one, call in zip(kwargs, calls, strict=True):
        pending.put(one, dict(one), call)
    gone = [weakref.ref(call) for call in calls]
    assert pending.drained() == calls and pending.drained() == [] and pending.under_way == 0
    before = sys.getrefcount(kwargs[0])
    pending.put(kwargs[0], {}, None)
    left, after = pending.drained(), sys.getrefcount(kwargs[0])
    assert left == [None] and after == before
    del calls, call
    assert [ref() for ref in gone] == [None] * 3


def test_calls_under_way_that_hold_who_follows_them_are_collected(kind):
    """As a call that failed: what was left for its end refers to the tap."""

    class Follower(kind):
        pass

    follower = Follower()
    follower.put({}, {}, follower)
    gone = weakref.ref(follower)
    del follower
    gc.collect()
    assert gone() is None


def test_what_ends_a_call_may_run_code_that_makes_and_ends_others(kind):
    """What is left of a failed call is let go of when that around it ends, and finalizers may do anything."""
    pending, found = kind(), []

    class Failed:
        def __del__(self):
            again = {}
            pending.put(again, again, "again")
            found.append(pending.take(again))
            found.extend(pending.drained())

    outer, first = {}, {}
    pending.put(first, first, "first")
    pending.put(outer, outer, "outer")
    for _ in range(3):
        failed = {}
        pending.put(failed, failed, Failed())
    assert pending.take(outer) == "outer"
    assert sorted(found) == ["again"] * 3 + ["first"] and pending.under_way == 0


@pytest.mark.parametrize("number", NUMBERS, ids=lambda fn: fn.__name__)
def test_taps_of_one_call_have_a_number_in_common_and_no_other_call_has_it(number):
    module, args, taps = object(), (1.5, 2.5), [object() for _ in range(3)]
    first = [number(tap, module, args) for tap in taps]
    again = [number(tap, module, args) for tap in taps]
    other = [number(tap, object(), args) for tap in taps[:1]] + [number(taps[0], module, ())]
    assert len(set(first)) == len(set(again)) == 1 and len({first[0], again[0], *other}) == 4
    many = tuple(range(300, 340))
    assert len({number(tap, module, many) for tap in taps}) == 1
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(number, object(), module, many).result() not in {number(object(), module, many)}


@pytest.mark.skipif(CallsUnderWay is CallsUnderWayByPython, reason="hookline was installed without a compiler")
def test_what_is_no_pair_or_no_call_is_an_error_and_no_crash():
    class Follower(CallsUnderWay):
        begun = "abc"

        def begin(self, module, args, kwargs):
            return self.begun

    follower = Follower()
    with pytest.raises(TypeError, match="begin: expected a tuple of two"):
        follower.came(None, (), {})
    with pytest.raises(TypeError, match="came: expected module, args and kwargs"):
        follower.came(None, ())
    with pytest.raises(TypeError, match="left: expected"):
        follower.left(None, (), {})
    follower.begun = None, type("P", (), {"enter": lambda *given: 1})()
    with pytest.raises(TypeError, match="enter: expected a tuple of two"):
        follower.came(None, (), {})
    kwargs = {}
    follower.put(kwargs, kwargs, "no pair")
    with pytest.raises(TypeError, match="begin: expected a tuple of two"):
        follower.left(None, (), kwargs, 1, 1)
    assert follower.under_way == 0


class Fails(nn.Module):
    """Raises where its input is negative."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2, 2)

    def forward(self, x, *, scale=None):
        if x.sum() < 0:
            raise ValueError("negative")
        return self.lin(x)


def failed(model, x):
    with pytest.raises(ValueError, match="negative"):
        model(-x)


def test_a_recording_does_not_finish_a_failed_call_by_a_recomputation():
    model, x = nn.Sequential(Fails()), torch.ones(1, 2, requires_grad=True)
    with hookline.record(model, inputs=True) as rec:
        out = checkpoint(model, x, use_reentrant=False)
        failed(model, x)
        out.sum().backward()
    assert len(rec["0"].calls) == 1 and torch.equal(rec["0"].input[0], x)


def test_a_recording_does_not_finish_a_failed_call_by_one_of_another_task():
    model, x = nn.Sequential(Fails()), torch.ones(1, 2)
    recs = []

    async def one(fails):
        with hookline.record(model, inputs=True) as rec:
            if fails:
                failed(model, x)
            await asyncio.sleep(0)
            if not fails:
                model(x * 2)
            await asyncio.sleep(0)
        recs.append(rec)

    async def both():
        await asyncio.gather(one(True), one(False))

    asyncio.run(both())
    assert sorted(len(rec["0"].calls) if "0" in rec.names else 0 for rec in recs) == [0, 1]


def test_two_recordings_and_a_hook_with_tensors_by_name_keep_their_calls():
    """Each hands on other kwargs: leaves that need gradients are led through views."""
    model, x = nn.Sequential(), torch.ones(1, 2, requires_grad=True)
    part = Fails()
    model.part = part
    seen = []
    with (
        hookline.record(part, inputs=True, grads=True) as one,
        hookline.record(part, inputs=True, grads=True) as two,
        hookline.register_backward_hook(part, lambda m, gi, go: seen.append(gi)),
        hookline.register_backward_hook(part, lambda m, gi, go: seen.append(gi)),
    ):
        for _ in range(2):
            part(x, scale=torch.ones(1, requires_grad=True)).sum().backward()
            failed(part, x)
    assert len(one[""].calls) == len(two[""].calls) == 2 and len(seen) == 4
