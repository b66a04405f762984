"""sites: what a `where` means, in the language of all verbs, with nothing attached."""

import re

import pytest
from torch import nn

import hookline


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.block = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        self.again = self.first


WHERES = {
    "everything": "**",
    "the model": None,
    "a name": "block.1",
    "a glob": "block.*",
    "a regex": re.compile("i"),
    "a type": nn.Linear,
    "types": (nn.Linear, nn.ReLU),
    "a predicate": lambda name, module: "b" in name,
    "a list": ["first", "block.*"],
    "an expression": hookline.where("**") & ~hookline.where(nn.Linear),
}


@pytest.mark.parametrize("where", WHERES.values(), ids=WHERES)
def test_sites_are_those_that_a_recording_is_asked_for(where):
    model = Net()
    with hookline.record(model, where) as rec:
        pass
    found = hookline.sites(model, where)
    assert list(found) == [entry.site for entry in rec.audit()] and found
    modules = dict(model.named_modules())
    assert list(found.values()) == [type(modules[name]).__name__ for name in found]
    assert hookline.installed(model) == []


@pytest.mark.parametrize("where", ["blok", "x.*", [], nn.Conv2d, nn.Linear(1, 1), 3])
def test_errors_are_those_of_a_recording(where):
    model = Net()
    with pytest.raises(hookline.HooklineError) as wanted:
        hookline.record(model, where)
    with pytest.raises(type(wanted.value)) as found:
        hookline.sites(model, where)
    assert str(found.value) == str(wanted.value)


def test_what_is_no_model_is_refused():
    with pytest.raises(hookline.InvalidArgument, match="expected a model"):
        hookline.sites(3)


def test_sites_print_as_a_table_with_other_names():
    found = hookline.sites(Net(), ["", "first", "block.0"])
    lines = ["3 sites", "  (model)  Net", "  first    Linear  also again", "  block.0  Linear"]
    assert str(found) == repr(found) == "\n".join(lines)
    assert found.aliases == {"first": ("again",)}
    assert str(hookline.sites(Net(), "block")) == "1 site\n  block  Sequential"


def test_sites_choose_sites():
    model = Net()
    found = hookline.sites(model, nn.Linear)
    assert hookline.sites(model, list(found)) == found
