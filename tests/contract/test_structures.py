"""Containers that can't be read, copied or put together again pass through a model as they are, by every verb."""

import dataclasses
import enum
from collections import OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Mapping, MutableMapping
from types import MappingProxyType, SimpleNamespace

import pytest
import torch
from torch import nn

import hookline
from hookline.branches import Branch
from hookline.trees import filled, leaves, map_leaves, slotted, unfilled
from tests.support.compare import tensors

Tensor = torch.Tensor


class CheckedList(list):
    """Takes tensors only, when it is made and later."""

    def __init__(self, items=()):
        super().__init__(self.check(item) for item in items)

    def __setitem__(self, at, value):
        super().__setitem__(at, self.check(value))

    def check(self, item):
        if not isinstance(item, Tensor):
            raise TypeError(f"tensors only, a {type(item).__name__} came")
        return item


class CheckedDict(dict):
    def __setitem__(self, key, value):
        if not isinstance(value, Tensor):
            raise TypeError("tensors only")
        super().__setitem__(key, value)


class FrozenList(list):
    def __setitem__(self, at, value):
        raise TypeError("frozen")

    append = extend = insert = __iadd__ = __setitem__


class SharingMap(MutableMapping):
    """A shallow copy of it has the very entries of the original, one level deeper than anybody looks."""

    def __init__(self, **entries):
        self._store = (entries,)

    def __getitem__(self, key):
        return self._store[0][key]

    def __setitem__(self, key, value):
        self._store[0][key] = value

    def __delitem__(self, key):
        del self._store[0][key]

    def __iter__(self):
        return iter(self._store[0])

    def __len__(self):
        return len(self._store[0])


class OpenMap(SharingMap):
    def __init__(self, **entries):
        self.entries = entries
        self._store = (self.entries,)


class LockedMap(SharingMap):
    def __setitem__(self, key, value):
        raise RuntimeError("locked")


class UnreadableMap(SharingMap):
    def __getitem__(self, key):
        raise RuntimeError("not loaded")


class FrozenMap(Mapping):
    def __init__(self, **entries):
        self._entries = entries

    def __getitem__(self, key):
        return self._entries[key]

    def __iter__(self):
        return iter(self._entries)

    def __len__(self):
        return len(self._entries)


class TwoOfThem(tuple):
    """A tuple with a constructor of its own."""

    def __new__(cls, left, right):
        made = super().__new__(cls, (left, right))
        made.note = "kept"
        return made


class Doubling(tuple):
    """A tuple that makes something else of what it is given."""

    __slots__ = ()

    def __new__(cls, *items):
        return super().__new__(cls, items)


class CheckedPair(namedtuple("CheckedPair", "left right")):
    __slots__ = ()

    def __new__(cls, left, right):
        if not isinstance(left, Tensor):
            raise TypeError("tensors only")
        return super().__new__(cls, left, right)


class Named(namedtuple("Named", "left right")):
    """A namedtuple with an attribute."""


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    value: object


@dataclasses.dataclass
class Uncopyable:
    value: object

    def __copy__(self):
        raise TypeError("can't be copied")


@dataclasses.dataclass
class Guarded:
    """Refuses other values, whoever sets them."""

    value: object

    def __post_init__(self):
        self._kept = self.value

    def __getattribute__(self, name):
        if name == "value":
            return object.__getattribute__(self, "_kept") if "_kept" in vars(self) else None
        return object.__getattribute__(self, name)


@dataclasses.dataclass
class Node:
    """Leads back to where one came from."""

    value: object
    parent: object = None
    children: list = dataclasses.field(default_factory=list)


class Level(tuple, enum.Enum):
    LOW = (1, 2)


class Color(enum.Enum):
    RED = 1


def family(x):
    root = Node(x)
    root.children = [Node(x * 2, root), Node(x * 3, root)]
    return root


def knot(x):
    made = {"x": x}
    made["self"] = made
    return made


def chain(x):
    first = Node(x)
    node = first
    for _ in range(3000):
        node.children = [Node(None, node)]
        node = node.children[0]
    return first


def named(x):
    made = Named(x, x * 2)
    made.extra = "kept"
    return made


MADE = {
    "Size": lambda x: x.shape,
    "Size in a tuple": lambda x: (x, x.shape, [x.size()]),
    "range": lambda x: (x, range(3)),
    "enum": lambda x: (x, Color.RED, Level.LOW),
    "set": lambda x: (x, {1, 2}, frozenset({x.shape})),
    "set of tensors": lambda x: {x},
    "generator": lambda x: (x, (n for n in range(3))),
    "iterator of tensors": lambda x: iter([x, x * 2]),
    "mapping proxy": lambda x: MappingProxyType({"x": x}),
    "frozen mapping": lambda x: (x, FrozenMap(x=x)),
    "namespace": lambda x: SimpleNamespace(x=x),
    "deque": lambda x: deque([x, x * 2]),
    "UserDict": lambda x: UserDict(x=x, y=x * 2),
    "UserList": lambda x: UserList([x, x * 2]),
    "OrderedDict": lambda x: OrderedDict(x=x, y=None),
    "defaultdict": lambda x: defaultdict(list, x=[x]),
    "checked list": lambda x: CheckedList([x, x * 2]),
    "frozen list": lambda x: FrozenList([x, x * 2]),
    "checked dict": lambda x: CheckedDict(x=x, y=x * 2),
    "sharing map": lambda x: SharingMap(x=x, y=x * 2),
    "open map": lambda x: OpenMap(x=x, y=x * 2),
    "locked map": lambda x: LockedMap(x=x),
    "unreadable map": lambda x: (x, UnreadableMap(x=x)),
    "tuple with a constructor": lambda x: TwoOfThem(x, x * 2),
    "doubling tuple": lambda x: Doubling(x, x * 2),
    "namedtuple with checks": lambda x: CheckedPair(x, 3),
    "namedtuple with an attribute": named,
    "result of torch.max": lambda x: torch.max(x, 0),
    "frozen dataclass": lambda x: Frozen(x),
    "dataclass that can't be copied": lambda x: Uncopyable(x),
    "dataclass that refuses": lambda x: Guarded(x),
    "parents and children": family,
    "a dict in itself": knot,
    "an endless chain": chain,
    "None": lambda x: None,
}


class Makes(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.lin, self.make = nn.Linear(3, 3), make

    def forward(self, x):
        return self.make(self.lin(x))


class HandsOn(nn.Module):
    """Takes the structure, by position and by name, and hands it on as it is."""

    def forward(self, value, *, again=None):
        assert type(value) is type(again)
        return value


class Net(nn.Module):
    """Keeps the very object that each part returned, and what kind of object went on."""

    def __init__(self, make):
        super().__init__()
        self.makes, self.hands_on, self.last = Makes(make), HandsOn(), nn.Linear(3, 1)
        self.seen = []

    def forward(self, x):
        made = self.makes(x)
        handed = self.hands_on(made, again=made)
        self.seen = [type(made), type(handed), getattr(handed, "extra", None), getattr(handed, "note", None)]
        found = [t for t in tensors(handed) if t.is_floating_point()]
        return self.last(sum(found, torch.zeros(2, 3)).sum(0))


def trained(name, block):
    torch.manual_seed(0)
    net = Net(MADE[name])
    with block(net):
        out = net(torch.ones(2, 3))
        out.sum().backward()
    return out, net.seen, [p.grad for p in net.parameters()], net


VERBS = {
    "record": lambda net: hookline.record(net),
    "record inputs": lambda net: hookline.record(net, inputs=True),
    "record all": lambda net: hookline.record(net, inputs=True, grads=True),
    "record in other dtype": lambda net: hookline.record(net, inputs=True, dtype="float64"),
    "watch": lambda net: hookline.watch(net, inputs=True),
    "forward hook": lambda net: hookline.register_forward_hook(net, lambda m, a, o: o, "**"),
    "pre-hook": lambda net: hookline.register_forward_pre_hook(
        net, lambda m, a, k: (a, k), "**", with_kwargs=True
    ),
    "backward hook": lambda net: hookline.register_backward_hook(net, lambda m, gi, go: None, "**"),
    "backward pre-hook": lambda net: hookline.register_backward_pre_hook(net, lambda m, go: None, "**"),
    "edit": lambda net: hookline.edit(net, {"**": lambda v: v, "**:input": lambda v: v}),
    "gradient edit": lambda net: hookline.edit(net, {"**:grad_output": lambda g: g, "**:grad_input": lambda g: g}),
    "op hook": lambda net: hookline.register_op_hook(net, lambda *told: None, monitor_all=True),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", MADE)
def test_a_model_runs_with_any_container_as_without_hooks(name, verb):
    plain = trained(name, lambda net: torch.enable_grad())
    seen = trained(name, VERBS[verb])
    assert torch.equal(plain[0], seen[0]) and plain[1] == seen[1]
    for a, b in zip(plain[2], seen[2], strict=True):
        assert (a is None) == (b is None) and (a is None or torch.equal(a, b))
    assert hookline.installed(seen[3]) == []


@pytest.mark.parametrize("name", MADE)
def test_what_was_recorded_can_be_read_and_saved(name, tmp_path):
    net = Net(MADE[name])
    with hookline.record(net, inputs=True, grads=True) as rec:
        net(torch.ones(2, 3)).sum().backward()
    for site in rec.names:
        for kind in ("input", "kwargs", "output", "grad_input", "grad_kwargs", "grad_output"):
            getattr(rec[site], kind)
    hookline.load_recording(rec.save(tmp_path / "a.safetensors"))


@pytest.mark.parametrize("name", MADE)
def test_a_summary_tells_of_any_container(name):
    assert "HandsOn" in str(hookline.summary(Net(MADE[name]), torch.ones(2, 3)))


def test_a_copy_never_writes_into_the_original():
    x = torch.ones(1)
    for original in (SharingMap(x=x), OpenMap(x=x), UserDict(x=x), LockedMap(x=x)):
        for or_plain in (False, True):
            map_leaves(lambda t: t + 1, original, Tensor, or_plain=or_plain)
        assert original["x"] is x


def test_what_goes_on_in_a_model_is_of_its_own_type_or_the_very_object():
    x = torch.ones(1)
    for name in ("frozen list", "locked map", "sharing map", "dataclass that can't be copied", "a dict in itself"):
        value = MADE[name](x)
        assert map_leaves(lambda t: t * 1, value, Tensor) is value, name
    for name in ("tuple with a constructor", "namedtuple with an attribute", "checked list", "UserDict", "deque"):
        value = MADE[name](x)
        fresh = map_leaves(lambda t: t * 1, value, Tensor)
        assert type(fresh) is type(value), name
        assert getattr(fresh, "__dict__", {}).keys() == getattr(value, "__dict__", {}).keys(), name


def test_what_is_only_looked_at_may_become_plain():
    x = torch.ones(1)
    kinds = {"frozen list": list, "locked map": dict, "sharing map": dict, "dataclass that can't be copied": dict}
    for name, kind in kinds.items():
        shown = map_leaves(lambda t: t + 1, MADE[name](x), Tensor, or_plain=True)
        assert type(shown) is kind and 2.0 in [t.item() for t in tensors(shown)], name


def test_a_template_holds_nothing_of_the_structure():
    template, count = slotted((torch.ones(1), UserDict(x=torch.ones(1), n=3), torch.Size([2])), Tensor)
    assert count == 2 and isinstance(template[1], Branch) and template[2] is None
    assert filled(template, {0: "a", 1: "b"}) == ("a", UserDict(x="b", n=None), None)
    assert unfilled(template, ("a", {"x": "b", "n": None}, "anything")) == {0: "a", 1: "b"}
    with pytest.raises(ValueError, match=r"expected a UserDict with entries \['x', 'n'\], got entries \['x'\]"):
        unfilled(template, ("a", {"x": "b"}, None))


def test_gradients_are_shown_in_the_type_of_the_output_or_in_a_plain_one():
    shown = {}
    for name in ("UserDict", "namedtuple with checks", "checked dict", "frozen list", "frozen dataclass"):
        net = Net(MADE[name])
        with hookline.record(net, grads=True) as rec:
            net(torch.ones(2, 3)).sum().backward()
        shown[name] = type(rec["makes"].grad_output)
    assert shown == {
        "UserDict": UserDict,
        "namedtuple with checks": CheckedPair,
        "checked dict": CheckedDict,
        "frozen list": FrozenList,
        "frozen dataclass": Frozen,
    }
    template, _ = slotted(CheckedDict(x=torch.ones(1)), Tensor)
    assert type(filled(template, {})) is dict  # no tensor there, which the type would refuse


def test_the_leaves_of_a_structure_that_leads_back_to_itself_are_found_once():
    x = torch.ones(1)
    assert len(list(leaves(family(x), Tensor))) == 3
    assert len(list(leaves(knot(x), Tensor))) == 1
