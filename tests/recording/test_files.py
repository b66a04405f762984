"""Recordings in files: saved and loaded whole, damaged files told as such, and a bound on memory."""

import dataclasses
import json
import struct
from collections import OrderedDict, namedtuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

import hookline
from hookline import RecordingTooLarge, RunError, load_recording, record
from hookline.recording.budget import Budget
from hookline.testing import untouched
from tests.support.models import Calls

Point = namedtuple("Point", "x y")


@dataclasses.dataclass
class Result:
    logits: torch.Tensor
    loss: torch.Tensor | None = None
    tag: str = ""


@dataclasses.dataclass(frozen=True)
class Frozen:
    inner: Result
    count: int


def same(found, wanted):
    """Whether two structures are equal to the bit; classes that were made anew count by name and fields."""
    if isinstance(wanted, torch.Tensor):
        return (
            isinstance(found, torch.Tensor)
            and found.dtype == wanted.dtype
            and found.shape == wanted.shape
            and torch.equal(found.nan_to_num(nan=7), wanted.nan_to_num(nan=7))
        )
    if dataclasses.is_dataclass(wanted):
        wanted_fields, found_fields = vars(wanted), vars(found)
        return type(found).__name__ == type(wanted).__name__ and same(found_fields, wanted_fields)
    if isinstance(wanted, tuple) and hasattr(wanted, "_fields"):
        return (type(found).__name__, found._fields) == (type(wanted).__name__, wanted._fields) and same(
            tuple(found), tuple(wanted)
        )
    if isinstance(wanted, dict):
        return list(found) == list(wanted) and all(same(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, (list, tuple)):
        return (
            type(found) is (list if isinstance(wanted, list) else tuple)
            and len(found) == len(wanted)
            and all(map(same, found, wanted))
        )
    return type(found) is type(wanted) and found == wanted


def round_trip(rec, tmp_path):
    path = rec.save(tmp_path / "acts.safetensors")
    assert path == tmp_path / "acts.safetensors"
    assert [file.name for file in tmp_path.iterdir()] == ["acts.safetensors"]  # nothing temporary stays
    return load_recording(path)


x = torch.arange(6.0).reshape(2, 3) - 2

STRUCTURES = {
    "tensor": lambda: x * 2,
    "tuple": lambda: (x, x + 1),
    "empty tuple": lambda: (),
    "list": lambda: [x, [x + 1, []]],
    "dict": lambda: {"a": x, "b": {"c": x + 1}},
    "empty dict": dict,
    "dict in its own order": lambda: {"z": x, "a": x + 1},
    "dict with keys of other types": lambda: {1: x, "1": x + 1, None: x + 2, (1, "a"): x + 3, 2.5: 1},
    "OrderedDict": lambda: OrderedDict(b=x, a=x + 1),
    "namedtuple": lambda: Point(x, Point(x + 1, None)),
    "dataclass": lambda: Result(x, x.sum(), "text"),
    "frozen and nested dataclass": lambda: Frozen(Result(x), 3),
    "None": lambda: None,
    "numbers and text": lambda: (1, -5, 2**80, 1.5, float("inf"), True, False, "text", "ü\n\0", ""),
    "tensor and plain values": lambda: (x, None, 3, {"flag": True, "name": "n"}),
    "same tensor twice": lambda: (lambda y: (y, {"again": y}, [y]))(x + 1),
    "views of one tensor": lambda: (x, x[0], x.t(), x[:, 1:]),
    "complex64": lambda: torch.complex(x, -x),
    "complex128": lambda: torch.complex(x, -x).to(torch.complex128),
    "complex scalar": lambda: torch.tensor(1 + 2j),
    "empty complex": lambda: torch.zeros(0, 3, dtype=torch.complex64),
    "conjugate": lambda: torch.complex(x, x + 1).conj(),
    "negative view": lambda: torch.complex(x, x + 1).conj().imag,
    "0-dim": lambda: (x.sum(), torch.tensor(5), torch.tensor(True)),
    "empty": lambda: (torch.empty(0), torch.empty(0), torch.empty(2, 0, 3)),
    "not contiguous": lambda: (x.t(), x.expand(4, 2, 3), x[::2, ::2]),
    "channels last": lambda: torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
    "NaN and Inf": lambda: torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0]),
    "torch.return_types": lambda: tuple(torch.max(x, dim=1)),
    "a parameter": lambda: nn.Parameter(x.clone()),
}
DTYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "float8_e4m3fn",
]


@pytest.mark.parametrize("build", STRUCTURES.values(), ids=STRUCTURES)
def test_structures_come_back(build, tmp_path):
    model = Calls(build)
    with record(model) as rec:
        wanted = model()
    assert same(rec[""].output, wanted)
    assert same(round_trip(rec, tmp_path)[""].output, wanted)


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_come_back(name, tmp_path):
    dtype = getattr(torch, name)
    model = Calls(lambda: (torch.tensor([0.0, 1.0, 2.0]).to(dtype), torch.tensor(1).to(dtype)))
    with record(model) as rec:
        wanted = model()
    for found, value in zip(round_trip(rec, tmp_path)[""].output, wanted, strict=True):
        assert found.dtype == dtype and found.shape == value.shape
        assert found.float().tolist() == value.float().tolist()


def test_objects_come_back_as_their_text(tmp_path):
    class Odd:
        def __repr__(self):
            return "<odd>"

    model = Calls(lambda: (x, Odd()))
    with record(model) as rec:
        model()
    tensor, odd = round_trip(rec, tmp_path)[""].output
    assert torch.equal(tensor, x) and odd.text == "<odd>"


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.sampled_from([x, x.bool(), x.bfloat16(), torch.complex(x, x), torch.empty(0), torch.tensor(3)]),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), inner, max_size=3),
        st.builds(Point, inner, inner),
        st.builds(Result, inner, inner, st.text(max_size=3)),
    ),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(TREES)
def test_any_structure_comes_back(tmp_path, tree):
    model = Calls(lambda: tree)
    with record(model) as rec:
        model()
    path = rec.save(tmp_path / "acts.safetensors")
    assert same(load_recording(path)[""].output, tree)


# All of a recording


class Net(nn.Module):
    """One module called twice, one shared, one never called, kwargs, a frozen parameter."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.act = nn.ReLU()
        self.same_act = self.act
        self.silent = nn.Linear(1, 1)
        self.scale = Calls(lambda x, *, by: {"scaled": x * by, "by": by})
        self.first.bias.requires_grad_(False)

    def forward(self, x):
        x = self.act(self.first(x))
        x = self.act(self.first(x))
        return self.scale(x, by=torch.tensor(2.0))["scaled"]


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


@pytest.fixture
def whole(net):
    """A recording with everything in it."""
    with record(net, inputs=True, grads=True) as rec:
        net(torch.randn(4, 3, requires_grad=True)).sum().backward()
    return rec


def assert_same_recording(found, wanted):
    assert found.names == wanted.names and found.backend == wanted.backend
    assert list(found.audit()) == list(wanted.audit())
    assert str(found.audit()) == str(wanted.audit())
    for entry in wanted.audit():
        one, other = found[entry.site], wanted[entry.site]
        assert one.aliases == other.aliases
        assert [call.order for call in one.calls] == [call.order for call in other.calls]
        assert same(one.param_grads, other.param_grads)
        for call, original in zip(one.calls, other.calls, strict=True):
            for kind in ("output", "input", "kwargs", "grad_output", "grad_input", "grad_kwargs"):
                assert same(getattr(call, kind), getattr(original, kind)), (entry.site, kind)


def test_a_whole_recording_comes_back(whole, tmp_path):
    loaded = round_trip(whole, tmp_path)
    assert_same_recording(loaded, whole)
    assert loaded.audit()["silent"].why == whole.audit()["silent"].why is not None
    assert loaded["same_act"] is loaded["act"] and "same_act" in loaded
    assert len(loaded["first"].calls) == 2
    assert loaded["scale"].grad_kwargs == {"by": None}
    assert list(loaded["first"].param_grads) == ["weight"]


def test_a_loaded_recording_can_be_saved_again(whole, tmp_path):
    loaded = round_trip(whole, tmp_path)
    again = load_recording(loaded.save(tmp_path / "again.safetensors"))
    assert_same_recording(again, whole)


def test_what_was_not_recorded_is_not_there_after_loading_either(net, tmp_path):
    with record(net, "first") as rec:
        net(torch.randn(4, 3))
    loaded = round_trip(rec, tmp_path)
    for kind in ("input", "kwargs", "grad_output", "grad_input", "param_grads"):
        with pytest.raises(hookline.NotRecorded):
            getattr(loaded["first"], kind)
    with pytest.raises(hookline.NoSuchSite):
        loaded["act"]


def test_gradients_of_one_tensor_at_two_places_come_back(tmp_path):
    class Twice(nn.Module):
        def forward(self, pair):
            y = pair[0] + pair[1]
            return y, y

    model, leaf = Twice(), torch.ones(2, requires_grad=True)
    with record(model, grads=True) as rec:
        a, b = model((leaf, leaf))
        (a * 2 + b * 3).sum().backward()
    loaded = round_trip(rec, tmp_path)
    assert same(loaded[""].grad_output, rec[""].grad_output)
    assert same(loaded[""].grad_input, rec[""].grad_input)
    assert [grad.tolist() for grad in loaded[""].grad_output] == [[2, 2], [3, 3]]


def test_a_recording_of_nothing_comes_back(net, tmp_path):
    with record(net) as rec:
        pass
    loaded = round_trip(rec, tmp_path)
    assert loaded.names == [] and list(loaded.audit()) == list(rec.audit())


def test_a_recording_is_a_patch_after_loading(net, whole, tmp_path):
    loaded = round_trip(whole, tmp_path)
    with hookline.edit(net, {"act": loaded["act"]}), record(net, "act") as rec:
        net(torch.zeros(4, 3))
    assert torch.equal(rec["act"].output, whole["act"].output)


def test_saving_replaces_a_file_and_makes_folders(net, whole, tmp_path):
    path = tmp_path / "runs" / "a" / "acts.safetensors"
    with record(net, "act") as small:
        net(torch.randn(4, 3))
    whole.save(path)
    assert small.save(str(path)) == path
    assert load_recording(str(path)).names == ["act"]
    assert [file.name for file in path.parent.iterdir()] == ["acts.safetensors"]


def test_the_file_is_a_safetensors_file_that_anybody_can_read(whole, tmp_path):
    from safetensors.torch import load_file

    tensors = load_file(whole.save(tmp_path / "acts.safetensors"))
    assert any(torch.equal(tensor, whole["act"].output) for tensor in tensors.values())


@pytest.mark.parametrize("where", ["folder", "below a file"])
def test_a_place_that_can_not_be_written(whole, tmp_path, where):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("text")
    path = tmp_path / "folder" if where == "folder" else tmp_path / "file" / "acts.safetensors"
    with pytest.raises(RunError, match="can't be written"):
        whole.save(path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "folder"]
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_tensor_that_safetensors_can_not_hold(tmp_path):
    model = Calls(lambda: torch.eye(3).to_sparse())
    with record(model) as rec:
        model()
    with pytest.raises(RunError, match="sparse"):
        rec.save(tmp_path / "acts.safetensors")
    assert list(tmp_path.iterdir()) == []


# Damaged and odd files


@pytest.fixture
def saved(whole, tmp_path):
    return whole.save(tmp_path / "acts.safetensors")


def refused(path, message=None):
    with pytest.raises(RunError, match=message) as caught:
        load_recording(path)
    assert str(path) in str(caught.value)


def test_a_missing_file(tmp_path):
    refused(tmp_path / "nowhere.safetensors", "can't be read")


def test_a_folder(tmp_path):
    refused(tmp_path, "can't be read")


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100, -1, -8, 0.5, 0.99])
def test_a_truncated_file(saved, size):
    content = saved.read_bytes()
    cut = int(len(content) * size) if isinstance(size, float) else size
    saved.write_bytes(content[:cut])
    refused(saved)


def test_every_truncation_of_the_header(saved):
    content = saved.read_bytes()
    (header,) = struct.unpack("<Q", content[:8])
    for cut in range(0, header + 8, 97):
        saved.write_bytes(content[:cut])
        refused(saved)


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04\x95",
        b"not a file of tensors at all",
        b"\x00" * 64,
        b"\xff" * 64,
        struct.pack("<Q", 2) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 4) + b"null",
        struct.pack("<Q", 3) + b"\xff\xfe\xfd",
        struct.pack("<Q", 20) + b'{"__metadata__":null}'[:20],
        struct.pack("<Q", 2**63) + b"{}",
    ],
    ids=["pickle", "text", "zeros", "ones", "empty", "list", "null", "no utf-8", "cut json", "huge header"],
)
def test_a_file_of_something_else(tmp_path, content):
    path = tmp_path / "garbage.safetensors"
    path.write_bytes(content)
    refused(path)


def test_a_safetensors_file_of_somebody_else(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file({"weight": torch.ones(2)}, path)
    refused(path, "not a recording of hookline")
    save_file({"weight": torch.ones(2)}, path, {"format": "pt"})
    refused(path, "not a recording of hookline")


def header_of(path):
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["hookline"])


def rewrite(path, header, **marks):
    """The same tensors under another header, a text or what is made JSON."""
    text = header if isinstance(header, str) else json.dumps(header)
    save_file({str(i): torch.zeros(3) for i in range(40)}, path, {"hookline": text, **marks})


def test_a_newer_version(saved):
    rewrite(saved, {**header_of(saved), "version": 1_000})
    refused(saved, "newer hookline")


def with_output(saved, tree):
    """The header of a recording of one site whose output is written as `tree`."""
    call = {"order": 0, "_output": tree}
    site = {"name": "a", "aliases": [], "why": None, "calls": [call], "param_grads": None}
    return {**header_of(saved), "names": ["a"], "sites": [site]}


ODD_HEADERS = {
    "no JSON": lambda h: "print('hello')",
    "number": lambda h: 3,
    "list": lambda h: [h],
    "null": lambda h: None,
    "empty": lambda h: {},
    "version as text": lambda h: {**h, "version": "1"},
    "version null": lambda h: {**h, "version": None},
    "no version": lambda h: {k: v for k, v in h.items() if k != "version"},
    "no sites": lambda h: {k: v for k, v in h.items() if k != "sites"},
    "no names": lambda h: {k: v for k, v in h.items() if k != "names"},
    "no backend": lambda h: {k: v for k, v in h.items() if k != "backend"},
    "unknown backend": lambda h: {**h, "backend": "os"},
    "backend path": lambda h: {**h, "backend": "../../os"},
    "backend list": lambda h: {**h, "backend": []},
    "names number": lambda h: {**h, "names": 3},
    "names of sites that are not there": lambda h: {**h, "names": ["elsewhere"]},
    "names of lists": lambda h: {**h, "names": [[]]},
    "sites number": lambda h: {**h, "sites": 3},
    "sites of numbers": lambda h: {**h, "sites": [3]},
    "site without name": lambda h: {**h, "names": [], "sites": [{}]},
    "site name list": lambda h: {**h, "names": [], "sites": [{**h["sites"][0], "name": []}]},
    "aliases number": lambda h: {**h, "names": [], "sites": [{**h["sites"][0], "aliases": 3}]},
    "aliases of lists": lambda h: {**h, "names": [], "sites": [{**h["sites"][0], "aliases": [[]]}]},
    "calls number": lambda h: {**h, "sites": [{**h["sites"][0], "calls": 3}]},
    "calls of numbers": lambda h: {**h, "sites": [{**h["sites"][0], "calls": [3]}]},
    "call without order": lambda h: {**h, "names": [], "sites": [{**h["sites"][0], "calls": [{}]}]},
    "parameter gradients number": lambda h: {**h, "sites": [{**h["sites"][0], "param_grads": 3}]},
}


@pytest.mark.parametrize("change", ODD_HEADERS.values(), ids=ODD_HEADERS)
def test_an_odd_header(saved, change):
    rewrite(saved, change(header_of(saved)))
    refused(saved)


CODE = "__import__('pathlib').Path('ran').touch()"
ODD_TREES = {
    "number": 3,
    "null": None,
    "text": "tensor",
    "list": [],
    "empty": {},
    "unknown kind": {"object": "os.system", "items": ["true"]},
    "tensor that is not there": {"tensor": "99999"},
    "tensor number": {"tensor": 0},
    "tensor list": {"tensor": []},
    "the metadata as a tensor": {"tensor": ""},
    "tuple of a number": {"tuple": 3},
    "tuple of numbers": {"tuple": [3]},
    "dict without items": {"dict": [{"value": 1}]},
    "dict of unequal length": {"dict": [{"value": 1}], "items": []},
    "dict with a key that can't be one": {"dict": [{"list": []}], "items": [{"value": 1}]},
    "namedtuple with code for a name": {"namedtuple": CODE, "keys": ["x"], "items": [{"value": 1}]},
    "namedtuple with code for a field": {"namedtuple": "P", "keys": [CODE], "items": [{"value": 1}]},
    "namedtuple with code as default": {"namedtuple": "P", "keys": [f"x={CODE}"], "items": [{"value": 1}]},
    "namedtuple with a keyword for a name": {"namedtuple": "class", "keys": ["x"], "items": [{"value": 1}]},
    "namedtuple with a number for a name": {"namedtuple": 3, "keys": ["x"], "items": [{"value": 1}]},
    "namedtuple with too few items": {"namedtuple": "P", "keys": ["x", "y"], "items": [{"value": 1}]},
    "namedtuple with a field twice": {"namedtuple": "P", "keys": ["x", "x"], "items": [{"value": 1}] * 2},
    "namedtuple without fields": {"namedtuple": "P", "items": []},
    "dataclass with code for a name": {"dataclass": CODE, "keys": ["x"], "items": [{"value": 1}]},
    "dataclass with an empty name": {"dataclass": "", "keys": ["x"], "items": [{"value": 1}]},
    "dataclass with a keyword for a name": {"dataclass": "class", "keys": ["x"], "items": [{"value": 1}]},
    "dataclass with a number for a name": {"dataclass": 3, "keys": ["x"], "items": [{"value": 1}]},
    "dataclass with code for a field": {"dataclass": "D", "keys": [CODE], "items": [{"value": 1}]},
    "dataclass with code for a type": {"dataclass": "D", "keys": [["x", CODE]], "items": [{"value": 1}]},
    "dataclass with code for a default": {"dataclass": "D", "keys": [["x", "int", CODE]], "items": []},
    "dataclass with a method for a field": {"dataclass": "D", "keys": ["__init__"], "items": [{"value": 1}]},
    "dataclass with too many items": {"dataclass": "D", "keys": ["x"], "items": [{"value": 1}] * 2},
    "dataclass with a field twice": {"dataclass": "D", "keys": ["x", "x"], "items": [{"value": 1}] * 2},
}


@pytest.mark.parametrize("tree", ODD_TREES.values(), ids=ODD_TREES)
def test_an_odd_structure_runs_nothing_and_is_refused(saved, tree, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rewrite(saved, with_output(saved, tree))
    refused(saved)
    assert not (tmp_path / "ran").exists()


def test_a_structure_nested_without_end(saved):
    depth = 100_000
    tree = '{"tuple": [' * depth + '{"value": 1}' + "]}" * depth
    rewrite(saved, json.dumps(with_output(saved, "HERE")).replace('"HERE"', tree))
    refused(saved)


@pytest.mark.parametrize("mark", ["complex64", "os.system"])
def test_a_complex_mark_on_a_tensor_that_can_not_be(saved, mark):
    rewrite(saved, with_output(saved, {"tensor": "0"}), **{"complex:0": mark})
    refused(saved)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 3), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=6), inner, max_size=2)),
    max_leaves=4,
)


def paths(tree, path=()):
    yield path
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, child in children:
        yield from paths(child, (*path, key))


def replaced(tree, path, new):
    if not path:
        return new
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = replaced(tree[path[0]], path[1:], new)
    return copy


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
@given(st.data())
def test_a_header_with_anything_anywhere_loads_or_is_refused(net, tmp_path, data):
    path = tmp_path / "acts.safetensors"
    with record(net, ["first", "scale"], inputs=True, grads=True) as rec:
        net(torch.ones(1, 3)).sum().backward()
    header = header_of(rec.save(path))
    rewrite(path, replaced(header, data.draw(st.sampled_from(list(paths(header)))), data.draw(JSON)))
    try:
        loaded = load_recording(path)
    except RunError:
        return
    assert isinstance(loaded.names, list)
    str(loaded.audit())


# limit with spill: the recording goes on in files


class Chain(nn.Sequential):
    """Four sites, each with an output of 400 bytes."""

    def __init__(self):
        super().__init__(*[nn.Linear(10, 10, bias=False) for _ in range(4)])


SITE = 10 * 10 * 4


@pytest.fixture
def chain():
    torch.manual_seed(0)
    return Chain()


@pytest.fixture
def used(monkeypatch):
    """The bytes in memory after each value that was stored."""
    seen = []
    admit = Budget.admit

    def counted(self, value, size, site):
        cell = admit(self, value, size, site)
        held = sum(c.value.numel() * c.value.element_size() for c in self._cells if c.value is not None)
        assert held == self.used
        seen.append(held)
        return cell

    monkeypatch.setattr(Budget, "admit", counted)
    return seen


def run(model, **options):
    batch = torch.linspace(-1, 1, 100).reshape(10, 10).requires_grad_()
    with record(model, **options) as rec:
        model(batch).sum().backward()
        model(batch * 2).sum().backward()
    model.zero_grad()
    return rec


@pytest.mark.parametrize("limit", [1, 100, SITE, SITE + 1, 1000, 3 * SITE, 5000, 10**6])
def test_a_recording_that_spills_equals_one_without_a_limit(chain, tmp_path, limit, used):
    wanted = run(chain, inputs=True, grads=True)
    with untouched(chain):
        found = run(chain, inputs=True, grads=True, limit=limit, spill=tmp_path / "spill")
    assert_same_recording(found, wanted)
    assert max(used) <= limit
    files = list((tmp_path / "spill").iterdir())
    total = len(used) * SITE
    assert bool(files) == (total > limit)
    assert all(file.suffix == ".safetensors" for file in files)


def test_a_recording_that_spilled_can_be_saved(chain, tmp_path):
    wanted = run(chain, inputs=True, grads=True)
    found = run(chain, inputs=True, grads=True, limit=1000, spill=tmp_path / "spill")
    assert_same_recording(load_recording(found.save(tmp_path / "acts.safetensors")), wanted)


def test_structures_and_dtypes_are_spilled_as_they_are(tmp_path):
    def build():
        return {
            "c": torch.complex(x, -x),
            "b": (x > 0, x.bfloat16(), torch.tensor(3)),
            "e": torch.empty(0),
            "n": None,
        }

    model = Calls(build)
    with record(model, limit=1, spill=tmp_path) as rec:
        model()
    assert same(rec[""].output, build())


def test_spilled_files_hold_what_keep_made(chain, tmp_path, used):
    with record(chain, reduce=lambda tensor: tensor[:1], limit=80, spill=tmp_path) as rec:
        output = chain(torch.ones(10, 10))
    assert used == [40, 80, 40, 80, 40]
    assert torch.equal(rec["3"].output, output[:1])


def test_a_single_value_larger_than_the_limit_is_written_at_once(chain, tmp_path):
    recorder = record(chain, "1", limit=SITE - 1, spill=tmp_path / "spill")
    with recorder as rec:
        output = chain[1](torch.ones(10, 10))
        assert recorder._store.budget.used == 0
        assert len(recorder._store.budget.spilled) == 1
        assert recorder._store.budget.spilled == list((tmp_path / "spill").iterdir())
    assert torch.equal(rec["1"].output, output)


def test_two_recordings_that_spill_into_one_folder_keep_apart(chain, tmp_path):
    with record(chain, limit=SITE, spill=tmp_path) as one:
        chain(torch.ones(10, 10))
    with record(chain, limit=SITE, spill=tmp_path) as two:
        chain(torch.zeros(10, 10))
    assert torch.equal(one["0"].output, chain[0](torch.ones(10, 10)))
    assert torch.equal(two["0"].output, torch.zeros(10, 10))


def test_a_spilled_value_whose_file_is_gone(chain, tmp_path):
    with record(chain, limit=SITE, spill=tmp_path) as rec:
        chain(torch.ones(10, 10))
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(RunError, match="can't be read"):
        _ = rec["0"].output


def test_spilled_values_are_found_from_another_folder(chain, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with record(chain, limit=SITE, spill="spill") as rec:
        chain(torch.ones(10, 10))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert torch.equal(rec["0"].output, chain[0](torch.ones(10, 10)))


# limit without spill: the recording ends, with what it has


def test_beyond_the_limit_the_forward_ends_in_an_error_that_names_the_site(chain):
    batch = torch.ones(10, 10)
    wanted = chain[1](chain[0](batch))
    with untouched(chain), pytest.raises(RecordingTooLarge, match="'2'") as caught:  # noqa: SIM117
        with record(chain, limit=2 * SITE + 1) as rec:
            chain(batch)
    error = caught.value
    assert (error.site, error.limit, error.needed) == ("2", 2 * SITE + 1, 3 * SITE)
    assert isinstance(error, MemoryError) and "spill=" in str(error)
    assert error.recording is rec
    assert rec.names == ["0", "1"]
    assert torch.equal(rec["1"].output, wanted)
    assert hookline.installed(chain) == []


def test_the_audit_tells_where_the_recording_ended(chain):
    with pytest.raises(RecordingTooLarge), record(chain, limit=2 * SITE) as rec:
        chain(torch.ones(10, 10))
    audit = rec.audit()
    assert [audit[name].fired for name in "0123"] == [1, 1, 0, 0]
    assert all("RecordingTooLarge" in audit[name].why for name in "23")


def test_what_was_kept_can_be_saved(chain, tmp_path):
    with pytest.raises(RecordingTooLarge) as caught, record(chain, limit=2 * SITE):
        chain(torch.ones(10, 10))
    rec = caught.value.recording
    loaded = load_recording(rec.save(tmp_path / "acts.safetensors"))
    assert loaded.names == ["0", "1"]
    assert list(loaded.audit()) == list(rec.audit())


def test_a_limit_that_is_just_enough(chain):
    with record(chain, limit=5 * SITE) as rec:
        chain(torch.ones(10, 10))
    assert rec.names == ["0", "1", "2", "3", ""]


def test_beyond_the_limit_in_the_backward(chain):
    batch = torch.ones(10, 10, requires_grad=True)
    with untouched(chain), pytest.raises(RecordingTooLarge) as caught:  # noqa: PT012, SIM117
        # Five outputs; then in the backward, the gradients of the outputs of the model and of "3".
        with record(chain, grads=True, limit=6 * SITE) as rec:
            output = chain(batch)
            output.sum().backward()
    error = caught.value
    assert error.site in ("", "3")
    assert repr(error.site) in str(error) and error.recording is rec
    assert rec.names == ["0", "1", "2", "3", ""]
    assert torch.equal(rec["3"].output, output)
    kept = [name for name in rec.names if rec[name].grad_output is not None]
    assert len(kept) == 1
    assert torch.equal(rec[kept[0]].grad_output, torch.ones(10, 10))
    assert hookline.installed(chain) == []
    batch.grad = None
    chain(batch).sum().backward()  # the model works as before
    assert batch.grad is not None


def test_beyond_the_limit_by_a_parameters_gradient(chain):
    with untouched(chain), pytest.raises(RecordingTooLarge, match="'3'") as caught:  # noqa: SIM117
        # What fits: its output, and the gradients of output and input; the weight's is one too many.
        with record(chain, "3", grads=True, limit=3 * SITE) as rec:
            chain(torch.ones(10, 10)).sum().backward()
    assert caught.value.recording is rec
    assert torch.equal(rec["3"].grad_output, torch.ones(10, 10))


def test_an_error_that_is_caught_inside_the_block_has_its_recording(chain):
    with record(chain, limit=2 * SITE) as rec:
        with pytest.raises(RecordingTooLarge) as caught:
            chain(torch.ones(10, 10))
        assert caught.value.recording is rec
    assert rec.names == ["0", "1"]


def test_a_value_that_replaces_an_earlier_one_is_counted_once():
    """The gradient of an input that feeds two operations arrives in two parts."""

    class Two(nn.Module):
        def forward(self, x):
            return x * 2 + x * 3

    model, leaf = Two(), torch.ones(100, requires_grad=True)
    # What stays: the output, its gradient and the input's.
    with record(model, grads=True, limit=3 * 400) as rec:
        model(leaf).sum().backward()
    assert torch.equal(rec[""].grad_input[0], torch.full((100,), 5.0))
