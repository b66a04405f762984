"""Operator hooks on compiled models. Compiling is slow: models are tiny, and one compilation serves many tests."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import hookline
from hookline.testing import untouched
from tests.support.compare import same_bits
from tests.support.operators import nothing_is_left

# Warnings of torch's own imports and of inductor at work.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning:torch")


class Net(nn.Module):
    """Two calls of one layer, an operator of the model's own, several outputs of one operator."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        x = self.b(self.a(x))
        top = torch.topk(self.a(x), 2).values
        return torch.tanh(top)


class Compiled:
    """A model compiled by inductor that has run before anybody listened."""

    def __init__(self):
        torch._dynamo.reset()
        torch.manual_seed(0)
        self.model, self.x = Net(), torch.randn(4, 8)
        self.call = torch.compile(self.model, fullgraph=True)
        self.plain = self.run()

    def run(self):
        """The output and all gradients."""
        self.model.zero_grad()
        out = self.call(self.x)
        out.sum().backward()
        return [out.detach(), *(parameter.grad.clone() for parameter in self.model.parameters())]


@pytest.fixture(scope="module")
def compiled():
    counters["graph_break"].clear()  # other modules' code may have had some, on purpose
    return Compiled()


@pytest.fixture(scope="module")
def events(compiled):
    """What a listener to everything is told in one step; the graph for it stays cached."""
    seen = []
    with hookline.register_op_hook(compiled.call, seen.append, events=True):
        observed = compiled.run()
    return seen, observed


def graphs():
    return counters["stats"]["unique_graphs"]


def test_names_are_those_of_modules_calls_and_phases(events):
    seen = [event.name for event in events[0]]
    forward = [event.name for event in events[0] if event.phase == "forward"]
    assert [name for name in forward if "permute" not in name] == [
        *["a/addmm.output", "b/addmm.output", "a#1/addmm.output"],
        *["/topk.output0", "/topk.output1", "/tanh.output"],
    ]
    assert len(set(seen)) == len(seen)
    assert {"a#1/mm_backward.output", "b/mm_backward.output", "b/mm_backward_1.output"} <= set(seen)
    assert {event.module for event in events[0]} == {"a", "b", ""}
    assert {event.op for event in events[0] if event.site == "a/addmm"} == {"aten.addmm"}


def test_events_have_the_line_of_code(events):
    lines = {event.name: event.source for event in events[0]}
    start = Net.forward.__code__.co_firstlineno
    assert lines["b/addmm.output"] == f"test_operators_compiled.py:{start + 1}"
    assert lines["b/mm_backward.output"] == f"test_operators_compiled.py:{start + 1}"
    assert lines["a#1/addmm.output"] == f"test_operators_compiled.py:{start + 2}"


def test_observing_compiled_code_changes_nothing(compiled, events):
    assert same_bits(events[1], compiled.plain)
    assert same_bits(compiled.run(), compiled.plain)


def test_values_are_those_of_the_code_as_written(compiled, events):
    eager = {}
    model = copy.deepcopy(compiled.model)
    with hookline.register_op_hook(model, lambda name, op, array: eager.setdefault(name, array)):
        model(compiled.x).sum().backward()
    told = {event.name: event.array for event in events[0]}
    common = [name for name in told if name in eager and "sum" not in name]
    assert {"a/addmm.output", "a#1/addmm.output", "/topk.output0", "b/mm_backward.output"} <= set(common)
    for name in common:
        torch.testing.assert_close(told[name], eager[name])


def test_callbacks_come_in_the_order_of_the_graph(events):
    names = [event.name for event in events[0]]
    in_order = [
        "a/addmm.output",
        "b/addmm.output",
        "/tanh.output",
        "a#1/mm_backward.output",
        "b/mm_backward.output",
    ]
    assert [name for name in names if name in in_order] == in_order


def test_another_callback_needs_no_new_graph_and_removal_gives_the_old_one(compiled, events):
    before, breaks = graphs(), dict(counters["graph_break"])
    with untouched(compiled.model, parameters=False, rng=False):
        for _ in range(3):
            names = []
            with hookline.register_op_hook(compiled.call, lambda name, op, array, into=names: into.append(name)):
                assert len(hookline.installed(compiled.call)) == 1
                compiled.run()
                compiled.run()
            assert names == [event.name for event in events[0]] * 2
            compiled.run()
            assert len(names) == 2 * len(events[0])
    assert graphs() == before and dict(counters["graph_break"]) == breaks == {}
    assert nothing_is_left(compiled.call)
    assert torch._inductor.config.post_grad_custom_post_pass is None


def test_a_backward_after_the_hook_is_gone_tells_nothing(compiled, events):
    names = []
    with hookline.register_op_hook(compiled.call, lambda name, op, array: names.append(name)):
        out = compiled.call(compiled.x)
    count = len(names)
    out.sum().backward()
    assert len(names) == count > 0


def test_an_error_in_the_callback_names_the_node(compiled, events):
    def callback(node, op, array):
        if node == wrong:
            raise ZeroDivisionError("mine")

    for wrong in ("b/addmm.output", "b/mm_backward.output"):
        raised = pytest.raises(hookline.HookError, match="ZeroDivisionError: mine")
        with hookline.register_op_hook(compiled.call, callback), raised as caught:
            compiled.run()
        assert caught.value.site == wrong and nothing_is_left(compiled.call)
    assert same_bits(compiled.run(), compiled.plain)


def test_recordings_and_watches_use_the_same_graph(compiled, events):
    before = graphs()
    with hookline.watch(compiled.call, "a", grads=True, params=False, ops=True) as w:
        compiled.run()
    assert {(row["kind"], row["call"]) for row in w.rows("a/addmm")} == {("output", 0), ("output", 1)}
    assert {row["kind"] for row in w.rows("a/mm_backward")} == {"grad"}
    with hookline.record(compiled.call, ops=True, grads=True) as rec:
        compiled.run()
    told = {event.name: event.array for event in events[0]}
    assert torch.equal(rec["b/addmm"].output, told["b/addmm.output"])
    assert torch.equal(rec["b/addmm"].output, rec["b"].output)
    top, indices = rec["/topk"].output
    assert torch.equal(top, told["/topk.output0"]) and torch.equal(indices, told["/topk.output1"])
    assert [len(rec[site].calls) for site in ("a/addmm", "b/mm_backward")] == [2, 1]
    assert graphs() > before  # the taps on modules are new
    assert nothing_is_left(compiled.call)


def test_filters_and_inputs_hold_in_compiled_code(compiled):
    seen = {}
    with hookline.register_op_hook(
        compiled.call,
        lambda name, op, array: seen.setdefault(name, array),
        "b",
        ops="aten.addmm",
        monitor_all=True,
    ):
        observed = compiled.run()
    assert list(seen) == [f"b/addmm.{place}" for place in ("input0", "input1", "input2", "output")]
    assert torch.equal(seen["b/addmm.input0"], compiled.model.b.bias)
    assert torch.equal(seen["b/addmm.input2"], compiled.model.b.weight.t())
    assert same_bits(observed, compiled.plain)
    with pytest.raises(hookline.NoSuchSite):
        hookline.register_op_hook(compiled.call, print, "c")


def test_copies_of_a_hooked_compiled_model_have_no_live_hook(compiled, events):
    names = []
    with hookline.register_op_hook(compiled.call, lambda name, op, array: names.append(name)):
        for other in (copy.deepcopy(compiled.model), pickle.loads(pickle.dumps(compiled.model))):
            assert type(other) is Net and hookline.installed(other) == []
            assert torch.equal(other(compiled.x), compiled.model.forward(compiled.x))
    assert names == []


def test_another_instance_of_the_class_is_left_alone(compiled, events):
    other = Net()
    names = []
    with hookline.register_op_hook(compiled.call, lambda name, op, array: names.append(name)):
        torch.compile(other, fullgraph=True)(compiled.x)
    assert names == []
    torch.compile(Net(), fullgraph=True)(compiled.x)  # nor is anything of the hook in inductor's cache
    assert names == []


def test_a_limit_of_recompilations_is_no_reason_for_silence():
    class Limited(nn.Module):  # torch compiles no forward again that has reached the limit
        def forward(self, x):
            return x @ x.t()

    call, x = torch.compile(Limited()), torch.randn(4, 8)
    call(x)
    limited = torch._dynamo.config.patch(recompile_limit=1)
    refused = pytest.raises(hookline.Unsupported, match="limit of recompilations")
    with limited, hookline.register_op_hook(call, lambda *_: None, ops="mm"), refused:
        call(x)
    call(x)
    assert nothing_is_left(call)


def test_a_forward_of_which_nothing_is_left_has_nothing_to_tell():
    class Nothing(nn.Module):
        def forward(self, x):
            x * 2
            return 3

    names = []
    call = torch.compile(Nothing())
    with hookline.register_op_hook(call, lambda name, op, array: names.append(name)):
        assert call(torch.ones(2)) == 3
    assert names == []


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("in_place", [True, False])
def test_backends_for_debugging_run_the_code_as_written(backend, in_place):
    torch.manual_seed(0)
    model, x = Net(), torch.randn(4, 8)
    expected = []
    with hookline.register_op_hook(model, lambda name, op, array: expected.append(name)):
        model(x).sum().backward()
    call = model
    if in_place:
        model.compile(backend=backend, fullgraph=True)
    else:
        call = torch.compile(model, backend=backend, fullgraph=True)
    plain = call(x)
    model.zero_grad()
    names, before = [], graphs()
    with hookline.register_op_hook(call, lambda name, op, array: names.append(name)):
        out = call(x)
        out.sum().backward()
    assert names == expected and torch.equal(out, plain)
    call(x)
    assert len(names) == len(expected) and graphs() == before and nothing_is_left(call)


def test_a_backend_that_shows_no_graph_is_unsupported():
    def mine(graph, inputs):
        return graph.forward

    own = torch.compile(nn.Linear(2, 2), options={"post_grad_custom_post_pass": lambda graph: None})
    with pytest.raises(hookline.Unsupported, match="without such a pass in its options"):
        hookline.register_op_hook(own, print)
    model = torch.compile(nn.Sequential(nn.Linear(2, 2)), backend=mine)
    with pytest.raises(hookline.Unsupported, match=r"'mine'.*inductor") as caught:
        hookline.register_op_hook(model, print)
    assert caught.value.backend == "torch" and caught.value.instead
    assert nothing_is_left(model)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return self.fc(x)


def test_parts_that_are_compiled_in_a_model_that_is_not():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8), Block(), nn.Tanh()), torch.randn(4, 8)
    chosen = ["addmm", "mm", "tanh*"]
    expected = []
    with hookline.register_op_hook(model, lambda name, op, array: expected.append(name), ops=chosen):
        model(x).sum().backward()
    model[1].compile(fullgraph=True)
    names = []
    with hookline.register_op_hook(model, lambda name, op, array: names.append(name), ops=chosen):
        model(x).sum().backward()
    assert names == expected
    model(x).sum().backward()
    assert names == expected and nothing_is_left(model)


def test_a_model_that_is_compiled_after_the_hook_runs_as_written():
    model, x = Net(), torch.randn(4, 8)
    names = []
    with hookline.register_op_hook(model, lambda name, op, array: names.append(name), ops="addmm"):
        torch.compile(model)(x)
        assert names == ["a/addmm.output", "b/addmm.output", "a#1/addmm.output"]
        with pytest.raises(RuntimeError, match="found no compiled frames"):
            torch.compile(model, fullgraph=True)(x)
