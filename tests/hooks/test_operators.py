"""Operator hooks on eager models: over the zoo beside a bare dispatch mode, and the contract."""

import copy
import gc
import pickle
import subprocess
import sys
import threading
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import hookline
from hookline import OpEvent, register_op_hook
from hookline.testing import untouched
from tests.support.compare import same_bits, tensors
from tests.support.operators import Bare, Net, modes, net, nothing_is_left
from tests.support.zoo import run


def forward_and_backward(specimen, model, args, kwargs, context):
    """Runs the model in `context`, and its backward from the outputs on, so that no loss is in between."""
    torch.manual_seed(1)
    with context:
        output = model(*args, **kwargs)
    roots = [t for t in tensors(output) if t.requires_grad and t.grad_fn is not None]
    weights = [torch.ones_like(t) for t in roots]
    if specimen.trains and roots:
        with context:
            torch.autograd.backward(roots, weights)
    return output


def test_the_zoo_runs_the_operators_that_a_bare_mode_sees(specimen):
    model, args, kwargs = specimen.seeded()
    bare = Bare(model)
    if not specimen.steady:
        model(*args, **kwargs)
    forward_and_backward(specimen, model, args, kwargs, bare)
    model, args, kwargs = specimen.seeded()
    if not specimen.steady:
        model(*args, **kwargs)
        model.zero_grad()
    seen = []
    hooked = partial(register_op_hook, model, lambda name, op, array: seen.append((op, array)))
    with untouched(model, parameters=False, rng=False), hooked():
        forward_and_backward(specimen, model, args, kwargs, nullcontext())
    assert [op for op, _ in seen] == [op for op, _ in bare.seen]
    values, expected = (
        # Of empty tensors nobody knows what is in them, nor of oneDNN's workspace.
        [value for op, value in each if "empty" not in op and value.dtype is not torch.uint8]
        for each in (seen, bare.seen)
    )
    assert same_bits(values, expected)


@pytest.mark.parametrize("monitor_all", [False, True])
def test_observing_operators_changes_nothing(specimen, monitor_all):
    plain = run(specimen)
    seen = run(specimen, lambda model: register_op_hook(model, lambda *_: None, monitor_all=monitor_all))
    for a, b, what in zip(plain, seen, ["output", "input grads", "parameter grads", "random state"], strict=True):
        assert same_bits(a, b), what


def names_of(model, *args, backward=False, **options):
    names = []
    with register_op_hook(model, lambda name, op, array: names.append(name), **options):
        out = model(*args)
        if backward:
            out.sum().backward()
    return names


def test_names_tell_module_operator_place_and_call():
    assert names_of(*net(), ops=["convolution", "*layer_norm*", "relu_", "addmm", "add"]) == [
        "conv/convolution.output",
        "norm/native_layer_norm.output0",
        "norm/native_layer_norm.output1",
        "norm/native_layer_norm.output2",
        "act/relu_.output",
        "head/addmm.output",
        "/add.output",
        "/add_1.output",
        "head#1/addmm.output",
    ]


def test_inputs_are_told_before_an_operator_overwrites_them():
    model, x = net()
    seen = {}
    with register_op_hook(model, lambda name, op, array: seen.setdefault(name, array), monitor_all=True):
        model(x)
    assert list(seen)[:4] == [f"conv/convolution.{place}" for place in ("input0", "input1", "input2", "output")]
    assert torch.equal(seen["conv/convolution.input0"], x)
    assert torch.equal(seen["conv/convolution.input1"], model.conv.weight)
    before, after = seen["act/relu_.input0"], seen["act/relu_.output"]
    assert before.min() < 0 and torch.equal(before.relu(), after)
    assert torch.equal(before, seen["norm/native_layer_norm.output0"])


def test_names_are_the_same_in_every_step():
    model, x = net()
    first = names_of(model, x, backward=True)
    assert len(set(first)) == len(first)
    assert names_of(model, x, backward=True)[: len(first) // 2] == first[: len(first) // 2]
    # The second time gradients are added to those that are there.
    assert set(names_of(model, x, backward=True)) ^ set(first) == {
        name
        for parameter, _ in model.named_parameters()
        for name in (f"{parameter}/add_backward.output", f"{parameter}/detach_backward.output")
    }


def test_a_backward_after_the_forward_belongs_to_the_modules():
    model, x = net()
    events = []
    with register_op_hook(model, events.append, events=True):
        out = model(x)
        forward = len(events)
        (out.exp().sum() * 2).backward()
    backward = events[forward:]
    assert {event.phase for event in events[:forward]} == {"forward"}
    assert {event.phase for event in backward} == {"backward"}
    assert "conv/convolution_backward.output1" in [event.name for event in backward]
    assert {event.call for event in backward if event.site == "head/mm_backward"} == {0, 1}
    assert not any("exp" in event.op for event in backward)  # the loss is none of the model's
    weight = next(e for e in backward if e.name == "conv/convolution_backward.output1")
    assert torch.equal(weight.array, model.conv.weight.grad)
    stored = next(e for e in backward if e.module == "conv.weight")
    assert torch.equal(stored.array, model.conv.weight.grad)


def test_events_know_the_line_of_code_in_both_phases():
    model, x = net()
    events = []
    with register_op_hook(model, events.append, events=True, ops=["addmm", "add", "convolution*", "mm"]):
        model(x).sum().backward()
    lines = {event.name: event.source for event in events}
    start = Net.forward.__code__.co_firstlineno
    here = f"operators.py:{start + 1}"
    assert lines["conv/convolution.output"] == here
    assert lines["conv/convolution_backward.output1"] == here
    assert lines["/add.output"] == f"operators.py:{start + 2}"
    assert lines["/add_1.output"] == f"operators.py:{start + 3}"
    assert lines["head/mm_backward.output"] == f"operators.py:{start + 2}"
    assert lines["head#1/mm_backward.output"] == f"operators.py:{start + 4}"


def test_an_event_says_what_an_operator_is():
    model, x = net()
    events = []
    with register_op_hook(model, events.append, events=True, monitor_all=True, ops="aten.add.Tensor"):
        model(x)
    first, second = events[:2]
    assert isinstance(first, OpEvent) and first.name == "/add.input0" and second.name == "/add.output"
    assert (second.op, second.overload, second.site, second.module) == ("aten.add", "Tensor", "/add", "")
    assert (first.role, first.index, second.role, second.index) == ("input", 0, "output", -1)


def test_where_chooses_modules_with_their_parts():
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 2))
    x = torch.ones(1, 2)
    assert names_of(model, x, where="0", ops=["addmm", "relu"]) == ["0.0/addmm.output", "0.1/relu.output"]
    assert names_of(model, x, where=nn.ReLU) == ["0.1/relu.output", "0.1/detach.output"]
    backward = names_of(model, x, where="1", backward=True)
    assert "1.weight/detach_backward.output" in backward
    assert all(name.startswith("1") for name in backward)
    with pytest.raises(hookline.NoSuchSite, match="Did you mean"):
        register_op_hook(model, print, where="0.7")


def test_calls_are_counted_within_a_forward_of_the_model_also_where_only_a_part_is_chosen():
    model, x = net()
    expected = ["head/addmm.output", "head#1/addmm.output"]
    assert names_of(model, x, where="head", ops="addmm") == expected
    assert names_of(model, x, where="head", ops="addmm") == expected
    assert names_of(model.head, torch.ones(1, 6), ops="addmm") == ["/addmm.output"]


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ("aten.*norm*", {"aten.native_layer_norm", "aten.native_layer_norm_backward"}),
        ("*norm", {"aten.native_layer_norm"}),
        (["relu_", "aten.mm.default"], {"aten.relu_", "aten.mm"}),
        ("aten.add", {"aten.add"}),
    ],
)
def test_ops_choose_operators_by_glob(ops, expected):
    model, x = net()
    seen = set()
    with register_op_hook(model, lambda name, op, array: seen.add(op), ops=ops):
        model(x).sum().backward()
    assert seen == expected


@pytest.mark.parametrize("ops", ["aten.convolutoin", ["relu", "nope*"], 3, [None], False, ""])
def test_operators_that_there_are_not(ops):
    with pytest.raises(hookline.InvalidArgument, match="ops="):
        register_op_hook(nn.Linear(1, 1), print, ops=ops)


def test_a_callback_of_the_wrong_kind_is_refused_at_once():
    with pytest.raises(hookline.InvalidArgument, match="3 arguments"):
        register_op_hook(nn.Linear(1, 1), lambda event: None)
    with pytest.raises(hookline.InvalidArgument, match="1 argument"):
        register_op_hook(nn.Linear(1, 1), lambda name, op, array: None, events=True)


# Nothing is left


class Failing(nn.Module):
    def __init__(self, error):
        super().__init__()
        self.fc, self.error = nn.Linear(2, 2), error

    def forward(self, x):
        self.fc(x)
        raise self.error


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()])
def test_an_exception_in_the_forward_leaves_no_mode(error):
    model, names = nn.Sequential(nn.Sequential(Failing(error))), []
    with untouched(model), register_op_hook(model, lambda name, op, array: names.append(name)):
        with pytest.raises(type(error)):
            model(torch.ones(1, 2))
        assert not modes()
    assert "0.0.fc/addmm.output" in names and nothing_is_left(model)


def test_a_model_may_catch_the_error_of_a_part():
    class Caught(nn.Module):
        def __init__(self):
            super().__init__()
            self.part, self.fc = Failing(ValueError()), nn.Linear(2, 2)

        def forward(self, x):
            try:
                self.part(x)
            except ValueError:
                return self.fc(x) * 2

    assert names_of(Caught(), torch.ones(1, 2), ops=["addmm", "mul"]) == [
        "part.fc/addmm.output",
        "fc/addmm.output",
        "/mul.output",
    ]


@pytest.mark.parametrize(("op", "name"), [("aten.addmm", "1/addmm.output"), ("aten.mm", "1/mm_backward.output")])
def test_an_error_in_the_callback_names_the_node(op, name):
    def callback(node, op, array):
        raise ZeroDivisionError("mine")

    model = nn.Sequential(nn.Tanh(), nn.Linear(2, 2))
    with untouched(model, rng=False), register_op_hook(model, callback, ops=op) as handle:
        with pytest.raises(hookline.HookError, match=r"callback.*ZeroDivisionError: mine") as caught:
            model(torch.ones(1, 2)).sum().backward()
        assert caught.value.site == name
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert not modes()
        handle.remove()
        handle.remove()
        assert nothing_is_left(model)
        model(torch.ones(1, 2))
    model.zero_grad()


def test_a_removed_handle_hears_no_backward_and_may_be_removed_in_its_callback():
    model, x = net()
    names = []
    handle = register_op_hook(model, lambda name, op, array: (names.append(name), handle.remove()))
    out = model(x)
    out.sum().backward()
    assert names == ["conv/convolution.output"] and nothing_is_left(model)


def test_several_hooks_are_taken_off_in_any_order():
    model, x = net()
    alone = names_of(model, x)
    seen = [[], [], []]
    with untouched(model):
        handles = [register_op_hook(model, lambda n, o, a, s=s: s.append(n)) for s in seen]
        assert len(hookline.installed(model)) == 3 * 5
        model(x)
        assert seen == [alone] * 3
        handles[0].remove()
        model(x)
        assert [len(s) for s in seen] == [len(alone), 2 * len(alone), 2 * len(alone)]
        handles[2].remove()
        handles[1].remove()
    assert nothing_is_left(model)


def test_installed_says_whose_it_is():
    model = nn.Sequential(nn.Linear(1, 1))
    with register_op_hook(model, print, where="0"):
        found = {(label.owner, label.kind, label.site) for label in hookline.installed(model)}
        assert ("register_op_hook", "op hook", "0") in found
        assert all("test_operators.py" in label.placed_at for label in hookline.installed(model))


def test_copies_have_no_live_hook():
    model, x = net()
    names = []
    with register_op_hook(model, lambda name, op, array: names.append(name)):
        copies = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        for other in copies:
            assert hookline.installed(other) == []
            assert torch.equal(other(x), model.eval()(x)) and names
            names.clear()
            other(x)
            assert names == []


def test_arrays_may_be_kept_and_written_to():
    model, x = net()
    want = model(x)

    def callback(name, op, array):
        kept.append(array.clone())
        array.fill_(7) if array.is_floating_point() else None

    kept = []
    with register_op_hook(model, callback):
        assert torch.equal(model(x), want)
    assert not any(array.requires_grad for array in kept)


# Where the model runs


def test_what_other_hooks_of_hookline_do_is_no_operator_of_the_model():
    model, x = net()
    alone = names_of(model, x, backward=True)
    model.zero_grad()
    recorded = hookline.record(model, inputs=True, grads=True, reduce=lambda t: t.double().mean())
    with recorded as rec, hookline.watch(model, stats=["p99"]):
        assert names_of(model, x, backward=True) == alone
    assert len(rec["head"].calls) == 2


def test_operators_of_a_forward_that_is_a_function_of_torch_are_the_models():
    class Relu(nn.Module):
        forward = staticmethod(torch.relu)

    model, x = nn.Sequential(nn.Linear(2, 2), Relu()), torch.ones(1, 2)
    alone = names_of(model, x)
    assert alone[:3] == ["0/t.output", "0/addmm.output", "1/relu.output"]
    with register_op_hook(model, lambda *told: None):  # through another mode that calls the operator
        assert names_of(model, x) == alone
        backward = [name for name in names_of(model, x, backward=True) if name not in alone]
    assert "1/threshold_backward.output" in backward and "0/mm_backward.output" in backward


def test_inference_mode_runs_the_same_operators():
    model, x = net()
    with torch.no_grad():
        usual = names_of(model, x)
    with torch.inference_mode():
        assert names_of(model, x) == usual


def test_a_dispatch_mode_of_the_user_sees_what_it_would_see_without():
    model, x = net()
    bare, seen = Bare(model), Bare(model)
    with bare:
        model(x)
    with seen:
        names = names_of(model, x)
    assert [op for op, _ in seen.seen] == [op for op, _ in bare.seen]
    assert names == names_of(model, x)


def test_fake_tensors_are_told_as_they_are():
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with FakeTensorMode():
        model, x = Net(), torch.randn(2, 1, 8, 8)
        kinds = []
        with register_op_hook(model, lambda name, op, array: kinds.append(type(array))):
            model(x)
    assert set(kinds) == {FakeTensor}


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.a, self.b, self.reentrant = nn.Linear(3, 3), nn.Linear(3, 3), reentrant

    def forward(self, x):
        def segment(x):
            return torch.sigmoid(self.b(self.b(self.a(x))))

        return checkpoint(segment, x, use_reentrant=self.reentrant) * 2


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_recomputation_is_no_second_call_and_its_backward_is_told(reentrant):
    torch.manual_seed(0)
    model = Checkpointed(reentrant)
    x = torch.randn(2, 3, requires_grad=True)
    chosen = ["addmm", "sigmoid*", "mm", "mul"]
    names = names_of(model, x, backward=True, ops=chosen)
    assert names[:5] == [
        *["a/addmm.output", "b/addmm.output", "b#1/addmm.output", "/sigmoid.output", "/mul.output"],
    ]
    backward = names[5:]
    assert backward[:2] == ["/mul_backward.output", "/sigmoid_backward.output"]
    in_order = ["b#1/mm_backward", "b#1/mm_backward_1", "b/mm_backward", "b/mm_backward_1"]
    assert backward[2:] == [f"{site}.output" for site in [*in_order, "a/mm_backward", "a/mm_backward_1"]]


def test_a_backward_within_the_forward():
    class Energy(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 1)

        def forward(self, x):
            energy = torch.tanh(self.fc(x)).sum()
            (force,) = torch.autograd.grad(energy, x, create_graph=True)
            return force * 3

    x = torch.ones(1, 2, requires_grad=True)
    names = names_of(Energy(), x, backward=True, ops=["addmm", "tanh*", "mm", "mul"])
    assert names[:3] == ["fc/addmm.output", "/tanh.output", "/tanh_backward.output"]
    assert "fc/mm_backward.output" in names and "/mul.output" in names
    assert names.index("fc/mm_backward.output") < names.index("/mul.output")


def test_each_backward_of_one_graph_has_the_same_names():
    model, x = net()
    runs = []
    with register_op_hook(model, lambda name, op, array: runs[-1].append(name), ops=["mm", "convolution_*"]):
        runs.append([])
        out = model(x).sum()
        for _ in range(2):
            runs.append([])
            out.backward(retain_graph=True)
    assert runs[1] == runs[2] and runs[1]


def test_threads_do_not_mix():
    model, x = net()
    alone = names_of(model, x, backward=True)
    seen, errors = {}, []
    barrier = threading.Barrier(3)

    def train():
        try:
            barrier.wait()
            for _ in range(5):
                mine = copy.deepcopy(x)
                torch.autograd.grad(model(mine).sum(), list(model.parameters()))
        except Exception as error:
            errors.append(error)

    def callback(name, op, array):
        seen.setdefault(threading.get_ident(), []).append(name)

    model.zero_grad()
    with register_op_hook(model, callback):
        threads = [threading.Thread(target=train) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    own = [name for name in alone if ".weight/" not in name and ".bias/" not in name]
    assert not errors and [len(names) for names in seen.values()] == [5 * len(own)] * 3
    assert all(names == own * 5 for names in seen.values())


def test_a_backward_in_another_thread_than_its_forward():
    model, x = net()
    alone = names_of(model, x, backward=True)
    model.zero_grad()
    names = []
    with register_op_hook(model, lambda name, op, array: names.append(name)):
        out = model(x).sum()
        thread = threading.Thread(target=out.backward)
        thread.start()
        thread.join()
    assert names == alone


def test_a_part_that_is_called_alone():
    model, _ = net()
    assert names_of(model.head, torch.ones(1, 6)) == ["/t.output", "/addmm.output"]
    names = []
    with register_op_hook(model, lambda name, op, array: names.append(name)):
        model.head(torch.ones(1, 6))
    assert names == ["head/t.output", "head/addmm.output"]


def test_a_model_inside_ddp():
    torch.distributed.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
    try:
        model, x = net()
        alone = names_of(model, x, ops=["convolution*", "addmm", "mm"], backward=True)
        wrapped = nn.parallel.DistributedDataParallel(model)
        names = []
        chosen = ["convolution*", "addmm", "mm"]
        with register_op_hook(model, lambda name, op, array: names.append(name), ops=chosen):
            wrapped(x).sum().backward()
        assert names == alone
    finally:
        torch.distributed.destroy_process_group()


def test_nothing_of_the_model_is_kept_alive():
    import weakref

    model, x = net()
    handle = register_op_hook(model, lambda name, op, array: None)
    model(x).sum().backward()
    gone = weakref.ref(model.head.weight)
    handle.remove()
    del handle, model
    gc.collect()
    assert gone() is None


def test_without_a_compiler_the_same_operators_are_told():
    code = (
        "import importlib.util as u; find = u.find_spec; import sys\n"
        "if sys.argv[1] == 'without':\n"
        "    u.find_spec = lambda name, *a: None if name.endswith('._calls') else find(name, *a)\n"
        "import hookline, torch; from torch import nn\n"
        "class Broken(nn.Module):\n"
        "    def forward(self, x): raise ValueError('no')\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc, self.broken = nn.Linear(2, 2), nn.Sequential(Broken())\n"
        "    def forward(self, x):\n"
        "        try: self.broken(x)\n"
        "        except ValueError: pass\n"
        "        return self.fc(self.fc(x)).relu()\n"
        "net = Net()\n"
        "with hookline.register_op_hook(net, lambda name, op, array: print(name), monitor_all=True):\n"
        "    net(torch.ones(1, 2)).sum().backward()\n"
        "from hookline.backends.torch.eager import calls\n"
        "print(calls.Part.__module__, file=sys.stderr)\n"
    )

    def printed(how):
        done = subprocess.run([sys.executable, "-c", code, how], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr.split()[-1]

    (without, python), (told, c) = printed("without"), printed("with")
    assert "fc#1/addmm.output" in told and without == told
    assert (python, c) == ("hookline.backends.torch.eager.calls", "hookline.backends.torch.eager._calls")
