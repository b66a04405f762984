"""A user's map: names, globs with captures, functions, layouts, files that people edit; maps that are proposed."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import hookline
from hookline.diffs.entries import Entry
from hookline.diffs.mapping import Map, as_map, read_map, write_map
from hookline.diffs.proposing import propose_map, proposed
from hookline.diffs.rules import Rule, arranged
from hookline.errors import InvalidArgument, RunError

A = ["", "encoder.0", "encoder.0.attn", "encoder.0.attn.q", "encoder.1.attn", "head"]
B = ["", "blocks.0", "blocks.0.attention", "blocks.0.attention.q", "blocks.1.attention", "out"]


def test_names_of_a_dict():
    assert as_map({"head": "out", "nobody": "nothing"}).names(A, B) == {"head": "out"}


def test_the_nth_star_of_one_side_is_that_of_the_other():
    given = as_map({"encoder.*.attn": "blocks.*.attention"})
    assert given.names(A, B) == {
        "encoder.0.attn": "blocks.0.attention",
        "encoder.0.attn.q": "blocks.0.attention.q",  # what is said of a place holds for what is below it
        "encoder.1.attn": "blocks.1.attention",
    }
    assert Rule("a.*.b.*", "*.x.*").other("a.1.b.2") == "1.x.2"


@pytest.mark.parametrize(
    ("a", "b", "name", "wanted"),
    [
        ("**.fc", "**.dense", "a.b.fc", "a.b.dense"),
        ("**.fc", "**.dense", "fc", "dense"),
        ("**.fc", "net.**.dense", "fc", "net.dense"),
        ("a.**", "b.**", "a.x.y", "b.x.y"),
        ("a.**", "**.b", "a.x.y", "x.y.b"),
        ("**", "model.**", "", "model"),
        ("**", "model.**", "x.y", "model.x.y"),
        ("layer?", "block?", "layer1", "block1"),
        ("layer?", "block?", "layer12", None),
        ("a.*", "b.*", "a.x.y", None),
        ("a+b.c", "x", "a+b.c", "x"),
        ("a.c", "x", "abc", None),
    ],
)
def test_globs(a, b, name, wanted):
    rule = Rule(a, b)
    assert rule.other(name) == wanted and rule.means(name) == (wanted is not None)


def test_a_rule_for_one_name_comes_before_one_for_many():
    given = as_map({"encoder.*": "blocks.*", "encoder.0": "blocks.1"})
    assert given.names(["encoder.0", "encoder.1"], ["blocks.0", "blocks.1"]) == {"encoder.0": "blocks.1"}


def test_a_function():
    given = as_map(lambda name: name.replace("encoder", "blocks").replace("attn", "attention") or None)
    assert given.names(A[1:], B[1:]) == dict(zip(A[1:5], B[1:5], strict=True))


def test_what_has_no_counterpart_and_what_is_unused():
    given = as_map({"encoder.0": None, "head": "out", "gone": "out2", "encoder.1.attn": "nowhere"})
    assert given.names(A, B) == {"head": "out"}
    assert given.alone(A) == {"encoder.0", "encoder.0.attn", "encoder.0.attn.q"}
    assert given.unused(A, B) == ["gone", "encoder.1.attn"]


def test_a_map_that_names_nothing_is_an_error_with_near_names():
    with pytest.raises(InvalidArgument, match=r"A has no 'haed'. Did you mean 'head'"):
        as_map({"haed": "out"}).names(A, B)
    with pytest.raises(InvalidArgument, match=r"B has no 'outs'. Did you mean 'out'"):
        as_map({"head": "outs"}).names(A, B)
    with pytest.raises(InvalidArgument, match="the function gives no name"):
        as_map(lambda name: None).names(A, B)
    with pytest.raises(InvalidArgument, match="it is empty"):
        as_map({}).names(A, B)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"a": 3}, "expected a name of B for 'a'"),
        ({3: "a"}, "expected names as the keys"),
        ({"a": {"to": "b", "layout": "tranposed"}}, "Did you mean 'transposed'"),
        ({"a": {"to": "b", "layout": [0, 2]}}, "or axes such as"),
        ({"a": {"to": "b", "layout": []}}, "or axes such as"),
        ({"a.*": "b"}, "the same wildcards"),
        ({"a": "b.*"}, "the same wildcards"),
        ({"a.*.**": "a.**.*"}, "the same wildcards"),
        ({"a[12]": "b"}, "got brackets"),
        ({"a": "x", "b": "x"}, r"each place of B once in a map, got 'x' for \['a', 'b'\]"),
        (7, "expected a map from A's names to B's"),
    ],
)
def test_maps_that_are_none(given, said):
    with pytest.raises(InvalidArgument, match=said):
        as_map(given)


def test_nothing_and_a_map_are_what_they_are():
    given = Map([Rule("a", "b")])
    assert as_map(None) is None and as_map(given) is given


def test_layouts():
    x = np.arange(120).reshape(2, 3, 4, 5)  # A's: batch, channel, height, width
    given = as_map(
        {
            "last": {"to": "b", "layout": "channels_last"},
            "axes": {"to": "c", "layout": [3, 2, 0, 1]},
            "turned": {"to": "d", "layout": "transposed"},
            "plain": "e",
        }
    )
    assert np.array_equal(given.to_a("last", "output", np.moveaxis(x, 1, -1)), x)
    assert np.array_equal(given.to_a("axes", "param_grad", x.transpose(2, 3, 1, 0)), x)
    assert np.array_equal(given.to_a("turned", "output", np.swapaxes(x, 2, 3)), x)
    assert given.to_a("plain", "output", x) is x and given.to_a("unknown", "output", x) is x
    for few in (np.zeros(3), np.zeros(())):
        assert all(given.to_a(name, "output", few) is few for name in ("last", "axes", "turned"))


@given(st.permutations(range(4)), st.sampled_from(["transposed", "channels_last", None]))
def test_layouts_can_be_gone_back(axes, word):
    x = np.arange(120).reshape(2, 3, 4, 5)
    for layout in (tuple(axes), word):
        assert np.array_equal(arranged(arranged(x, layout), layout, back=True), x)


NAMES = st.text(st.characters(exclude_characters="*?[", exclude_categories=["Cs"]), max_size=12)


@given(
    st.dictionaries(NAMES, st.tuples(NAMES, st.sampled_from([None, "transposed", (3, 2, 0, 1)])), min_size=1),
    st.sampled_from(["toml", "json"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
def test_a_file_keeps_what_was_written(tmp_path_factory, rules, form, note):
    once = {b: (a, layout) for a, (b, layout) in rules.items()}
    before = Map([Rule(a, b, layout, note) for b, (a, layout) in once.items()] + [Rule("gone", None, None, note)])
    path = write_map(before, tmp_path_factory.mktemp("maps") / f"map.{form}")
    after = read_map(path)
    assert [(r.a, r.b, r.layout) for r in after.rules] == [(r.a, r.b, r.layout) for r in before.rules]


def test_a_file_that_somebody_edits(tmp_path):
    path = tmp_path / "map.toml"
    path.write_text(
        '# mine\nhead = "out"\nencoder.0.attn = "blocks.0.attention"\n'
        '"encoder.1.attn" = {to = "x", layout = [1, 0]}\n'
        'aux = false\n[decoder]\nfc = "dec.fc"\n'
    )
    given = as_map(str(path))
    assert [(rule.a, rule.b, rule.layout) for rule in given.rules] == [
        ("head", "out", None),
        ("encoder.0.attn", "blocks.0.attention", None),
        ("encoder.1.attn", "x", (1, 0)),
        ("aux", None, None),
        ("decoder.fc", "dec.fc", None),
    ]
    written = write_map(given, tmp_path / "again.toml").read_text()
    assert written.startswith("# A map of names") and '"encoder.1.attn" = {to = "x", layout = [1, 0]}' in written
    asjson = write_map(given, tmp_path / "again.json")
    assert json.loads(asjson.read_text())["aux"] is False and as_map(asjson).rules == given.rules


def test_files_that_are_no_maps(tmp_path):
    with pytest.raises(RunError, match="can't be read"):
        as_map(tmp_path / "none.toml")
    for name, text, said in (
        ("a.toml", "head = ", "is no TOML"),
        ("a.json", "{", "is no JSON"),
        ("b.json", "[1]", "got a list"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(RunError, match=said):
            as_map(tmp_path / name)
    (tmp_path / "c.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(RunError, match="is no TOML"):
        as_map(tmp_path / "c.toml")
    with pytest.raises(RunError, match="can't be written"):
        write_map(Map(), tmp_path / "none" / "map.toml")
    with pytest.raises(InvalidArgument, match="a function can't be written"):
        write_map(as_map(str.upper), tmp_path / "map.toml")


class Old(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.act, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Linear(4, 2)
        self.extra = nn.Dropout(0.0)

    def forward(self, x):
        return self.extra(self.head(self.act(self.conv(x)).mean((2, 3))))


class New(nn.Module):
    """The same with other names and its channels last, as another framework has it."""

    def __init__(self, old):
        super().__init__()
        self.stem, self.out = Last(old.conv), nn.Linear(4, 2)
        self.out.load_state_dict(old.head.state_dict())

    def forward(self, x):
        return self.out(self.stem(x).relu().mean((1, 2)))


class Last(nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.weight, self.bias = conv.weight, conv.bias

    def forward(self, x):
        return nn.functional.conv2d(x.movedim(-1, 1), self.weight, self.bias, padding=1).movedim(1, -1)


@pytest.mark.parametrize("size", [5, 4])
def test_a_proposed_map_has_names_and_layouts(tmp_path, size):
    """With as many channels as rows and columns, values tell the layout and shapes do not."""
    torch.manual_seed(0)
    old = Old()
    x = torch.randn(2, 3, size, size)
    with hookline.record(old) as a:
        old(x)
    model = New(old)
    with hookline.record(model) as b:
        model(x.movedim(1, -1))
    path = tmp_path / "map.toml"
    found = propose_map(a, b, path)
    assert {rule.a: (rule.b, rule.layout) for rule in found.rules} == {
        "conv": ("stem", "channels_last"),
        "head": ("out", None),
        "": ("", None),
    }
    text = path.read_text()
    assert 'only A has "act"' in text and 'only A has "extra"' in text and "# " in text
    assert [(r.a, r.b, r.layout) for r in as_map(path).rules] == [(r.a, r.b, r.layout) for r in found.rules]


def test_a_proposed_map_says_by_what_it_was_found():
    a = [Entry("fc", "Linear", 0, shapes=((2, 3),)), Entry("x", "Linear", 1, shapes=((4, 3),))]
    b = [Entry("fc", "Linear", 0, shapes=((2, 3),)), Entry("y", "Dense", 1, shapes=((3, 4),))]
    found = proposed(a, b)
    assert [(rule.a, rule.b, rule.layout, rule.note) for rule in found.rules] == [
        ("fc", "fc", None, "same name"),
        ("x", "y", "transposed", "type, shape and order"),
    ]
    odd = proposed([Entry("x", "L", 0, shapes=((2, 3, 4),))], [Entry("x", "L", 0, shapes=((3, 4, 2),))])
    assert odd.rules[0].layout == (2, 0, 1)


def test_rules_that_differ_in_numbers_only_are_one():
    def side(letter, count, odd=""):
        names = [f"{letter}.{n}.{letter}{part}" for n in range(count) for part in ("x", "y")]
        return [
            Entry(name, "Linear", at, shapes=((2, 3 + at),)) for at, name in enumerate([*names, odd or letter])
        ]

    found = proposed(side("h", 3), side("l", 3))
    assert [(rule.a, rule.b) for rule in found.rules] == [("h.*.hx", "l.*.lx"), ("h.*.hy", "l.*.ly"), ("h", "l")]
    assert found.rules[0].note == "3 places: type, shape and order"
    fewer = [one for one in side("l", 3) if one.name != "l.1.lx"]
    found = proposed(side("h", 3), fewer)
    assert [(rule.a, rule.b) for rule in found.rules if rule.a != "h"] == [
        ("h.0.hx", "l.0.lx"),
        ("h.2.hx", "l.2.lx"),
        ("h.*.hy", "l.*.ly"),
    ]
