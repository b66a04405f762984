"""Recording: a mapping of the sites that fired."""

from collections.abc import Mapping

import pytest
import torch
from torch import nn

import hookline


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.b, self.a, self.unused = nn.Linear(3, 2), nn.ReLU(), nn.ReLU()

    def forward(self, x):
        return self.a(self.b(x))


@pytest.fixture
def recording():
    torch.manual_seed(0)
    model = Net()
    with hookline.record(model) as rec:
        model(torch.ones(1, 3))
    return rec


def test_a_recording_is_a_mapping_in_order_of_execution(recording):
    assert isinstance(recording, Mapping)
    assert list(recording) == list(recording.keys()) == recording.names == ["b", "a", ""]
    assert [site.name for site in recording.values()] == recording.names
    assert list(recording.items()) == [(name, recording[name]) for name in recording.names]
    assert len(recording) == 3 and "a" in recording and "unused" not in recording


def test_it_becomes_a_dict(recording):
    found = dict(recording)
    assert list(found) == ["b", "a", ""] and all(found[name] is recording[name] for name in found)
    assert {**recording} == found


def test_get_gives_what_fired_and_else_the_default(recording):
    assert recording.get("a") is recording["a"]
    assert recording.get("unused") is None and recording.get("nowhere", 3) == 3


def test_a_silent_site_is_looked_up_all_the_same_and_tells_why(recording):
    assert "never called" in recording["unused"].why
    with pytest.raises(hookline.NoSuchSite, match="nowhere"):
        recording["nowhere"]


def test_recordings_are_compared_as_objects(recording):
    """Values are tensors, which have no truth."""
    model = Net()
    with hookline.record(model) as other:
        model(torch.ones(1, 3))
    assert recording == recording and recording != other and len({recording, other}) == 2


def test_a_recording_is_a_dict_of_edits(recording):
    model, x = Net(), torch.zeros(1, 3)
    with hookline.edit(model, recording):
        assert torch.equal(model(x), recording[""].output)


def test_what_comes_back_can_be_imported_and_shows_no_machinery(recording):
    site, audit = recording["a"], recording.audit()
    assert isinstance(site, hookline.SiteRecord) and isinstance(site.calls[0], hookline.Call)
    assert isinstance(audit, hookline.Audit) and isinstance(audit[0], hookline.AuditEntry)
    assert public(recording) == {"audit", "backend", "get", "items", "keys", "names", "ops", "save", "values"}
    values = {"output", "input", "kwargs", "grad_output", "grad_input", "grad_kwargs"}
    assert public(site) == values | {"name", "aliases", "calls", "op", "param_grads", "type", "why"}
    assert site.type == "ReLU"
    assert public(site.calls[0]) == values | {"site", "order", "ended", "sequence", "repeated_in"}


def public(thing):
    return {name for name in dir(thing) if not name.startswith("_")}
