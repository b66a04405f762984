"""`where`, in all its forms: what it selects, in which order, under which names."""

import re
from functools import partial

import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch import nn

import hookline
from hookline import where
from hookline.globs import glob_pattern
from hookline.hooks.select import ModuleTree, select


class Net(nn.Module):
    """Small, with names that globs can tell apart, and one module under two names."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 1, 1)
        self.conv2 = nn.Conv2d(1, 1, 1)
        self.layer1 = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1)), nn.Dropout())
        self.act = self.layer1[1]
        self.fc = nn.Linear(1, 1)

    def forward(self, x):
        return x


EVERY = [
    "",
    "conv1",
    "conv2",
    "layer1",
    "layer1.0",
    "layer1.1",
    "layer2",
    "layer2.0",
    "layer2.0.0",
    "layer2.0.1",
    "layer2.1",
    "fc",
]


@pytest.fixture(scope="module")
def net():
    return Net()


def chosen(model, condition):
    """The names of the sites that `condition` selects, in order, through the public way in."""
    with hookline.record(model, condition) as rec:
        pass
    return [entry.site for entry in rec.audit()]


CASES = {
    "None is the model": (None, [""]),
    "empty name is the model": ("", [""]),
    "all": ("**", EVERY),
    "name": ("layer2.0.1", ["layer2.0.1"]),
    "name of a parent": ("layer2", ["layer2"]),
    "alias": ("act", ["act"]),
    "star": ("conv*", ["conv1", "conv2"]),
    "star within a part": ("layer*.0", ["layer1.0", "layer2.0"]),
    "star stays within one part": ("layer2.*", ["layer2.0", "layer2.1"]),
    "star may be empty": ("fc*", ["fc"]),
    "lone star is the children, not the model": ("*", ["conv1", "conv2", "layer1", "layer2", "act", "fc"]),
    "two stars in two parts": ("*.*", ["layer1.0", "layer1.1", "layer2.0", "layer2.1"]),
    "question mark": ("conv?", ["conv1", "conv2"]),
    "question mark is one character": ("con?", None),
    "question mark stays within one part": ("layer1?0", None),
    "brackets": ("layer[12]", ["layer1", "layer2"]),
    "bracket range": ("conv[2-9]", ["conv2"]),
    "bracket negated": ("conv[!2]", ["conv1"]),
    "bracket negated stays within one part": ("layer2[!x]0", None),
    "bracket range stays within one part": ("layer2[--/]0", None),
    "unclosed bracket is a character": ("conv[1", None),
    "below": ("layer2.**", ["layer2.0", "layer2.0.0", "layer2.0.1", "layer2.1"]),
    "anywhere, the top included": ("**.conv?", ["conv1", "conv2"]),
    "anywhere below": ("**.0", ["layer1.0", "layer2.0", "layer2.0.0"]),
    "between": ("layer2.**.0", ["layer2.0", "layer2.0.0"]),
    "double star inside a part crosses dots": ("lay**1", ["layer1", "layer1.1", "layer2.0.1", "layer2.1"]),
    "double star and a dot inside a part needs the dot": ("conv**.1", None),
    "double star at both ends": ("**2**", ["conv2", "layer2", "layer2.0", "layer2.0.0", "layer2.0.1", "layer2.1"]),
    "a dot is a dot": ("layer1.?", ["layer1.0", "layer1.1"]),
    "regex searches": (
        re.compile(r"\d\.\d$"),
        ["layer1.0", "layer1.1", "layer2.0", "layer2.0.0", "layer2.0.1", "layer2.1"],
    ),
    "regex anchored": (re.compile(r"^conv"), ["conv1", "conv2"]),
    "regex with flags": (re.compile("FC", re.IGNORECASE), ["fc"]),
    "type": (nn.Conv2d, ["conv1", "conv2", "layer1.0", "layer2.0.0"]),
    "type with subclasses": (nn.modules.batchnorm._BatchNorm, ["layer2.0.1"]),
    "type of the model": (Net, [""]),
    "base type is all": (nn.Module, EVERY),
    "tuple of types": ((nn.BatchNorm2d, nn.Linear), ["layer2.0.1", "fc"]),
    "predicate": (lambda name, module: name.endswith("1") and isinstance(module, nn.Conv2d), ["conv1"]),
    "predicate object": (partial(lambda wanted, name, module: name == wanted, "fc"), ["fc"]),
    "predicate's result counts by its truth": (
        lambda name, module: name.count(".") - 1,
        ["", "conv1", "conv2", "layer1", "layer2", "layer2.0.0", "layer2.0.1", "act", "fc"],
    ),
    "list": (["fc", "conv1"], ["conv1", "fc"]),
    "list of kinds": ([nn.Linear, "conv?", re.compile("^$")], ["", "conv1", "conv2", "fc"]),
    "list of one twice": (["fc", "fc", nn.Linear], ["fc"]),
    "tuple of names": (("fc", "conv1"), ["conv1", "fc"]),
    "set": ({"fc", "conv1"}, ["conv1", "fc"]),
    "nested lists": ([["fc"], ["conv1", ("conv2",)]], ["conv1", "conv2", "fc"]),
    "where of one": (where("fc"), ["fc"]),
    "where of several": (where("fc", nn.BatchNorm2d), ["layer2.0.1", "fc"]),
    "and": (where("layer2.**") & nn.Conv2d, ["layer2.0.0"]),
    "and from the left": (nn.Conv2d & where("layer2.**"), ["layer2.0.0"]),
    "or": (where("fc") | "conv?", ["conv1", "conv2", "fc"]),
    "or from the left": ("conv?" | where("fc"), ["conv1", "conv2", "fc"]),
    "not": (~where("layer*.**") & ~where("layer?"), ["", "conv1", "conv2", "act", "fc"]),
    "not not": (~~where("fc"), ["fc"]),
    "and not": (where(nn.Conv2d) & ~where("**.0"), ["conv1", "conv2"]),
    "de Morgan": (~(where("**") & ~where("fc", "conv1")), ["conv1", "fc"]),
    "expression in a list": ([where("fc") | "conv1", "conv2"], ["conv1", "conv2", "fc"]),
}


@pytest.mark.parametrize(("condition", "wanted"), CASES.values(), ids=CASES)
def test_what_a_condition_selects(net, condition, wanted):
    if wanted is None:
        with pytest.raises(hookline.NoSuchSite):
            chosen(net, condition)
    else:
        assert chosen(net, condition) == wanted


def test_no_modules_but_those_of_the_model_are_selected_twice(net):
    modules = [module for name, module in net.named_modules()]
    names = chosen(net, "**")
    assert [net.get_submodule(name) for name in names] == modules


def test_module_object(net):
    assert chosen(net, net.layer2[0]) == ["layer2.0"]
    assert chosen(net, [net.fc, net.conv1]) == ["conv1", "fc"]
    assert chosen(net, net) == [""]
    assert chosen(net, where(net.fc) | net.conv2) == ["conv2", "fc"]


def test_module_object_with_equal_twin_is_told_by_identity():
    twins = nn.Sequential(nn.ReLU(), nn.ReLU())
    assert chosen(twins, twins[1]) == ["1"]


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: [m], lambda m: ["fc", m]], ids=["alone", "list", "mixed"])
def test_foreign_module_object(net, wrap):
    with pytest.raises(hookline.NoSuchSite, match="not part of this model"):
        chosen(net, wrap(nn.Linear(1, 1)))
    assert hookline.installed(net) == []


def test_a_model_that_is_called_is_not_taken_for_a_predicate(net):
    class Callable(nn.Module):
        def forward(self, name, module):
            raise AssertionError("it is a module, nobody asked it")

    with pytest.raises(hookline.NoSuchSite):
        chosen(net, Callable())


# Order and aliases


def test_order_is_that_of_definition_whatever_the_order_asked(net):
    wanted = ["conv1", "layer1.0", "fc"]
    assert chosen(net, ["fc", "layer1.0", "conv1"]) == wanted
    assert chosen(net, ["layer1.0", "conv1", "fc"]) == wanted


def test_a_shared_module_goes_by_the_name_asked_and_knows_the_other(net):
    with hookline.record(net, "act") as rec:
        net.act(torch.ones(1))
    assert rec.names == ["act"]
    assert rec["act"].aliases == ("layer1.1",)
    assert rec["layer1.1"] is rec["act"]
    assert "layer1.1" in rec


@pytest.mark.parametrize(
    "condition",
    ["**", nn.ReLU, ["act", "layer1.1"], lambda n, m: isinstance(m, nn.ReLU)],
    ids=["all", "type", "list", "predicate"],
)
def test_a_shared_module_that_is_selected_by_both_names_fires_once(net, condition):
    calls = []
    with hookline.register_forward_hook(net, lambda m, i, o: calls.append(m), condition):
        net.act(torch.ones(1))
    assert calls == [net.act]
    with hookline.record(net, condition) as rec:
        net.act(torch.ones(1))
    assert rec.names == ["layer1.1"] and rec["layer1.1"].aliases == ("act",)


def test_names_below_a_shared_module_are_all_known():
    inner = nn.Sequential(nn.ReLU())
    model = nn.ModuleDict({"a": inner, "b": inner})
    with hookline.record(model, "b.0") as rec:
        inner(torch.ones(1))
    assert rec["b.0"].aliases == ("a.0",)


def test_a_module_that_holds_its_parent_does_not_hang():
    model = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh()))
    model[1].add_module("up", model)
    assert chosen(model, "**") == ["", "0", "1", "1.0"]


def test_modules_that_are_none_are_passed_over():
    model = nn.Sequential(nn.ReLU())
    model.register_module("downsample", None)
    assert chosen(model, "**") == ["", "0"]
    with pytest.raises(hookline.NoSuchSite):
        chosen(model, "downsample")


def test_modules_may_have_wild_characters_in_their_names():
    model = nn.ModuleDict({"a*b": nn.ReLU(), "a[0]": nn.ReLU(), "axb": nn.ReLU()})
    assert chosen(model, "a[*]b") == ["a*b"]
    assert chosen(model, "a[[]0]") == ["a[0]"]
    assert chosen(model, re.compile(re.escape("a*b"))) == ["a*b"]


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (where("encoder.**") & ~where("**.dropout"), "(where('encoder.**') & ~where('**.dropout'))"),
        (where(nn.Linear) | "fc", "(where(Linear) | where('fc'))"),
    ],
    ids=["and-not", "or"],
)
def test_an_expression_shows_itself_as_it_was_written(condition, text):
    assert repr(condition) == text


@pytest.mark.parametrize("condition", [3, 1.5, True, b"fc", {"fc": 1}, object()])
@pytest.mark.parametrize(
    "wrap", [lambda c: c, lambda c: ["fc", c], lambda c: ~where(c)], ids=["alone", "list", "not"]
)
def test_what_can_not_select_is_refused(net, condition, wrap):
    with pytest.raises(hookline.InvalidArgument, match="can't select"):
        chosen(net, wrap(condition))


@pytest.mark.parametrize(
    "pattern", ["[z-a]", "[!]", "[]", "[", "[[a]", "[a--b]", "[a&&b]", "[a||b]", "[a~~b]", "[^]", "*["]
)
def test_an_odd_glob_matches_nothing_and_does_not_break(net, pattern):
    with pytest.raises(hookline.HooklineError):
        chosen(net, pattern)


# Globs against a slow matcher that reads like the rule


def slow(pattern, name, fresh=True):
    """`*` and `?` stay within one part of a name, `**` crosses dots, `**.` at the beginning of a part is
    any number of whole parts, `[...]` one of these characters. `fresh`: a part begins here."""
    if pattern.startswith("**.") and fresh:
        tails = [name] + [name[i + 1 :] for i, character in enumerate(name) if character == "."]
        return any(slow(pattern[3:], tail) for tail in tails)
    if pattern.startswith("**"):
        return any(slow(pattern[2:], name[i:], False) for i in range(len(name) + 1))
    if pattern.startswith("*"):
        first = name.split(".")[0]
        return any(slow(pattern[1:], name[i:], False) for i in range(len(first) + 1))
    if not pattern or not name:
        return pattern == name
    if pattern[0] == "[":
        inside, _, rest = pattern[1:].partition("]")
        negated = inside.startswith("!")
        return name[0] != "." and (name[0] in inside.lstrip("!")) != negated and slow(rest, name[1:], False)
    if pattern[0] == "?":
        return name[0] != "." and slow(pattern[1:], name[1:], False)
    return pattern[0] == name[0] and slow(pattern[1:], name[1:], name[0] == ".")


PARTS = st.text("ab01", min_size=1, max_size=3)
NAMES = st.lists(PARTS, min_size=1, max_size=4).map(".".join)
BRACKETS = st.builds("[{}{}]".format, st.sampled_from(["", "!"]), st.text("ab01", min_size=1, max_size=3))
PATTERNS = (
    st.lists(
        st.one_of(st.sampled_from(["*", "**", "**.", ".", "?", "a", "b", "0", "1"]), BRACKETS),
        min_size=1,
        max_size=7,
    )
    .map("".join)
    .filter(lambda pattern: "***" not in pattern)
)  # three in a row mean nothing in particular


@given(PATTERNS, NAMES)
@example("**.a", "a")
@example("**.a", "ba")
@example("a.**.b", "a.b")
@example("a**.b", "ab")
@example("a[!b]0", "a.0")
def test_a_glob_matches_what_the_slow_matcher_matches(pattern, name):
    assert bool(glob_pattern(pattern).fullmatch(name)) == slow(pattern, name)


@given(NAMES, st.data())
def test_a_glob_made_from_a_name_matches_it(name, data):
    """The other way round: random patterns seldom match."""
    pattern = ""
    for character in name:
        wild = st.sampled_from(
            [character, "**"] if character == "." else [character, "?", "*", "**", f"[{character}]"]
        )
        pattern += data.draw(wild)
    assume("***" not in pattern)
    assert bool(glob_pattern(pattern).fullmatch(name)) == slow(pattern, name)


@given(st.lists(NAMES, unique=True, min_size=1, max_size=8), PATTERNS)
def test_a_selection_is_the_names_that_match_in_order(names, pattern):
    assume(set(pattern) & set("*?["))
    tree = ModuleTree([("", object()), *((name, object()) for name in names)])
    wanted = [name for name in ["", *names] if slow(pattern, name) and (name or pattern == "**")]
    try:
        found = [place.name for place in select(tree, pattern)]
    except hookline.NoSuchSite:
        found = []
    assert found == wanted
