"""Sharing: a tensor at two places is copied and measured once, and never taken for what it was before a write."""

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn

import hookline
from hookline.backends import resolve
from hookline.diffs.live import as_live
from hookline.diffs.reading import Key
from hookline.diffs.sharing import RECENT, Recent, SharedCopies


class Two(nn.Module):
    """Two layers, and something in between."""

    def __init__(self, between):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.between = nn.Linear(4, 4), nn.Linear(4, 4), between

    def forward(self, x):
        return self.second(self.between(self.first(x)))


def past_the_counting(x):
    x.data.mul_(2)  # torch counts no write
    return x


def in_place(x):
    return x.mul_(2)


def by_numpy(x):
    x.detach().numpy()[:] *= 2
    return x


WRITES = [past_the_counting, in_place, by_numpy]


def handed_on(x):
    return x


def array(side, site, kind):
    (leaf,) = side.leaves(Key(site, kind))
    return side.array(leaf)


@pytest.mark.parametrize("between", WRITES)
def test_what_was_written_to_between_two_calls_is_recorded_as_it_arrives(between):
    side = as_live(Two(between), torch.ones(2, 4), {}).side()
    given, got = array(side, "first", "output"), array(side, "second", "input")
    np.testing.assert_array_equal(got, given * 2)


def test_one_copy_serves_a_tensor_at_two_places():
    side = as_live(Two(handed_on), torch.ones(2, 4), {}).side()
    (given,), (got,) = side.leaves(Key("first", "output")), side.leaves(Key("second", "input"))
    assert given.tensor is got.tensor
    (ends,), (last,) = side.leaves(Key("", "output")), side.leaves(Key("second", "output"))
    assert ends.tensor is last.tensor


@pytest.mark.parametrize("between", WRITES)
def test_a_write_between_two_calls_is_where_two_models_part(between):
    d = hookline.diff(Two(handed_on), Two(between), torch.ones(2, 4))
    assert d.first is not None
    # It is the model's own code that writes, and it shows where the second layer is called.
    assert (d.first.site, d.first.kind) in [("", "output"), ("second", "input")], d.first
    assert d.first.born


@pytest.mark.parametrize("between", WRITES)
def test_two_models_that_write_alike_are_equal(between):
    assert hookline.diff(Two(between), Two(between), torch.ones(2, 4)).first is None


def test_nothing_is_kept_alive_and_old_ones_are_forgotten():
    recent = Recent(resolve(nn.Linear(1, 1)))
    tensor = torch.ones(3)
    recent.note(tensor, "fact")
    assert recent.find(tensor) == "fact"
    gone = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert gone() is None
    held = [torch.ones(1) for _ in range(RECENT + 5)]
    for one in held:
        recent.note(one, 1)
    assert recent.find(held[0]) is None and recent.find(held[-1]) == 1


def test_a_copy_of_a_tensor_that_was_written_to_is_another():
    copies = SharedCopies(resolve(nn.Linear(1, 1)))
    tensor = torch.ones(3)
    first = copies(tensor)
    assert copies(tensor) is first
    tensor.add_(1)
    assert copies(tensor).tolist() == [2, 2, 2]
    tensor.data.add_(1)
    assert copies(tensor).tolist() == [3, 3, 3] and first.tolist() == [1, 1, 1]
