"""Entries: taps in hook dictionaries, put and taken off by C as by Python."""

from __future__ import annotations

import gc
from itertools import count
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from hookline.backends.torch.compat import HOOKS_AFTER, KWARGS_AFTER
from hookline.backends.torch.entries import Entries, EntriesByPython

KINDS = pytest.mark.parametrize("kind", [Entries, EntriesByPython])


@KINDS
@pytest.mark.parametrize("kwargs", [KWARGS_AFTER, None])
def test_taps_are_put_and_taken_off_beside_others(kind, kwargs):
    one, other = nn.Linear(1, 1), nn.ReLU()
    handle = one.register_forward_hook(lambda *told: None)
    entries, taps = kind(HOOKS_AFTER, kwargs, -5, count(3), []), [SimpleNamespace(), SimpleNamespace()]
    assert [len(entries.put(one, taps[0])), len(entries.put(other, taps[1]))] == [2, 1]
    assert [tap.order for tap in taps] == [3, 4] and [held() for held in entries.held] == [one, other]
    assert one._forward_hooks[-5] is taps[0] and other._forward_hooks[-5] is taps[1]
    assert one._forward_hooks_with_kwargs == other._forward_hooks_with_kwargs == ({-5: True} if kwargs else {})
    for _ in range(2):
        entries.remove()
        assert list(one._forward_hooks) == [handle.id] and not other._forward_hooks
        assert not one._forward_hooks_with_kwargs and not other._forward_hooks_with_kwargs


@KINDS
def test_a_number_that_is_taken_stays_whose_it_is(kind):
    module, entries = nn.ReLU(), kind(HOOKS_AFTER, KWARGS_AFTER, -5, count(1), [])
    first, second = SimpleNamespace(), SimpleNamespace()
    assert entries.put(module, first) is module._forward_hooks
    assert entries.put(module, second) is None
    assert module._forward_hooks[-5] is first and not vars(second) and len(entries.held) == 1


@KINDS
def test_a_module_that_is_gone_is_nobodys_and_what_is_no_module_is_refused(kind):
    entries = kind(HOOKS_AFTER, KWARGS_AFTER, -5, count(1), [])
    entries.put(nn.ReLU(), SimpleNamespace())
    gc.collect()
    assert [held() for held in entries.held] == [None]
    entries.remove()
    with pytest.raises(AttributeError):
        entries.put(torch.ones(1), SimpleNamespace())
    assert len(entries.held) == 1
