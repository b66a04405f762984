"""CallsUnderWay: what a tap before the forward leaves for the tap after it, told apart by call and by thread."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import hookline
from hookline.backends.tap import FunctionTap, Label
from hookline.hooks.pending import CallsUnderWay

LABEL = Label("test", "tap", "")


def test_calls_are_told_apart_by_their_kwargs():
    pending = CallsUnderWay()
    outer, inner = {}, {}
    pending.put(outer, outer, "outer")
    pending.put(inner, inner, "inner")
    assert pending.take(inner) == "inner" and pending.take(outer) == "outer"
    assert pending.take({}) is None and len(pending) == 0


def test_a_call_that_failed_is_finished_by_no_other():
    pending = CallsUnderWay()
    failed, later = {}, {}
    pending.put(failed, failed, "failed")
    assert pending.take(later) is None
    pending.put(later, later, "later")
    assert pending.take(later) == "later" and len(pending) == 1


def test_calls_that_failed_within_a_call_are_forgotten_with_it():
    pending = CallsUnderWay()
    outer, failed = {}, {}
    pending.put(outer, outer, "outer")
    for _ in range(3):
        pending.put(failed, failed, "failed")
        failed = {}
    assert pending.take(outer) == "outer" and len(pending) == 0


def test_one_dict_may_stand_for_a_call_and_for_one_within_it():
    """As where somebody's hook returns the same dict every time."""
    pending, always = CallsUnderWay(), {}
    pending.put(always, always, "outer")
    pending.put(always, always, "inner")
    assert [pending.take(always) for _ in range(3)] == ["inner", "outer", None]


def test_a_call_of_another_thread_is_never_meant():
    """Two recordings on one model: the taps of both run in both threads, and each call belongs to one of them."""
    pending, mine = CallsUnderWay(), {}
    pending.put(mine, mine, "mine")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(pending.take, {}).result() is None
        assert pool.submit(pending.take, mine).result() is None
    assert pending.take(mine) == "mine"


def test_where_later_taps_replace_the_kwargs_each_finds_its_own_call():
    pendings = [CallsUnderWay() for _ in range(3)]

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
    assert all(len(pending) == 1 for pending in pendings)
    assert [pending.take(failed) for pending in pendings] == [0, 1, 2]


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
