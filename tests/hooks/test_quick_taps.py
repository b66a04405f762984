"""Quick taps: plain calls are done in C, all others in Python, and nobody can tell which it was."""

import ctypes
import gc
import pickle
import subprocess
import sys
import threading
import traceback
import types
import weakref
from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import nn

import hookline
from hookline.backends import quick
from hookline.backends.torch import values
from hookline.backends.torch.compat import beware_of_compiling
from hookline.backends.torch.taps import taps_on
from hookline.backends.torch.values import COPYING
from hookline.errors import HookError, InvalidArgument, WrongReplacement
from tests.hooks.test_site_tap import frames_of

IN_C = quick.Called.__module__ == "hookline.backends._tap"
needs_c = pytest.mark.skipif(not IN_C, reason="hookline was installed without a compiler")

X = torch.arange(6.0).reshape(2, 3)


def model():
    return nn.Sequential(nn.Linear(3, 2), nn.ReLU())


def tap_of(module):
    (tap,) = taps_on(module)
    return tap


def nothing(*told):
    return None


@pytest.fixture(params=["in C where there is C", "in Python"])
def either_way(request):
    """Both ways to do a call, as far as this environment has both."""
    if request.param == "in Python" and IN_C:
        quick.beware("sys", None)  # as if a compiler might follow
        yield
        beware_of_compiling()
    else:
        yield


def test_a_recording_of_small_outputs_has_no_frame_of_its_own_or_one_where_there_is_no_c():
    """Above the copy of the value: this is the path that every event takes."""
    net = model()
    with hookline.record(net) as rec, torch.no_grad():
        frames = frames_of(lambda: net(X))
    assert len(rec) == 3
    if IN_C and COPYING is not None:
        assert frames == []
    else:
        assert set(frames) - {"is_seen"} == {"_OutputRecorder.call_anyhow", "snapshot"}
        assert frames.count("_OutputRecorder.call_anyhow") == frames.count("snapshot") == 3


@pytest.mark.parametrize("with_kwargs", [False, True])
@pytest.mark.parametrize("register", [hookline.register_forward_hook, hookline.register_forward_pre_hook])
def test_a_hook_that_only_looks_has_no_frame_of_hookline_above_it(register, with_kwargs):
    net, seen = model(), []
    with register(net, lambda *told: seen.append(len(told)), "*", with_kwargs=with_kwargs):
        frames = frames_of(lambda: net(X))
    assert set(seen) == {2 + with_kwargs + (register is hookline.register_forward_hook)}
    assert frames == ([] if IN_C else ["HookTap.call_anyhow"] * 2)


def test_a_class_of_taps_shows_a_function_as_its_call_whatever_is_done():
    """By which torch.compile finds what it is to follow instead."""
    net = model()
    with hookline.register_forward_hook(net, nothing), hookline.record(net[0]):
        for tap in (tap_of(net), tap_of(net[0])):
            assert type(type(tap).__call__) is types.FunctionType
            assert type(tap).__call__._torchdynamo_inline is not None
            assert type(tap).__name__ in repr(type(tap)) and type(tap).__module__.startswith("hookline.")


def test_what_is_derived_from_a_quick_class_is_called_by_its_own():
    @quick.quickly_called
    class Looking(quick.Called):
        def call_anyhow(self, *told):
            return "looking"

    class Own(Looking):
        def __call__(self, *told):
            return "own"

    class Anyhow(Looking):
        def call_anyhow(self, *told):
            return "anyhow"

    assert Looking()() == "looking" and Own()() == "own"
    assert Anyhow()() == "looking"  # `__call__` is the function of the class that it comes from


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("register", [hookline.register_forward_hook, hookline.register_forward_pre_hook])
def test_what_a_hook_raises_carries_the_site_and_the_line(register):
    net = model()

    def broken(*told):
        raise ValueError("no")

    with (
        register(net, broken, "0"),
        pytest.raises(HookError, match=r"'0'.*broken.* raised ValueError: no") as found,
    ):
        net(X)
    cause = found.value.__cause__
    assert type(cause) is ValueError
    assert traceback.extract_tb(cause.__traceback__)[-1].line == 'raise ValueError("no")'


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit(), InvalidArgument("mine")])
def test_what_is_no_error_of_the_hook_goes_on_as_it_is(error):
    net = model()

    def raising(*told):
        raise error

    with hookline.register_forward_hook(net, raising, "1"), pytest.raises(type(error)) as found:
        net(X)
    assert found.value is error and error.__cause__ is None
    assert [label.site for label in hookline.installed(net)] == []


@pytest.mark.usefixtures("either_way")
def test_what_a_hook_returns_replaces_or_is_refused():
    net = nn.Identity()
    with hookline.register_forward_hook(net, lambda module, args, output: output + 1):
        assert torch.equal(net(X), X + 1)
    with hookline.register_forward_pre_hook(net, lambda module, args: args[0] + 2):
        assert torch.equal(net(X), X + 2)
    both = partial(hookline.register_forward_pre_hook, net, with_kwargs=True)
    with both(lambda module, args, kwargs: ((args[0] + 3,), kwargs)):
        assert torch.equal(net(X), X + 3)
    with hookline.register_forward_hook(net, lambda module, args, output: 7), pytest.raises(WrongReplacement):
        net(X)
    with both(lambda module, args, kwargs: 7), pytest.raises(WrongReplacement):
        net(X)


@pytest.mark.usefixtures("either_way")
def test_a_hook_that_is_taken_off_during_a_call_is_left_out_of_it():
    """torch looks up at each call whether a hook takes kwargs, and finds that this one does not any more."""
    net, seen, handles = nn.Identity(), [], []
    net.register_forward_hook(lambda *told: [handle.remove() for handle in handles] and None)
    handles += [hookline.register_forward_hook(net, lambda *told: seen.append(told), with_kwargs=True)]
    net(X)
    assert seen == []


@pytest.mark.usefixtures("either_way")
def test_any_callable_is_called():
    class Looking:
        def __init__(self):
            self.seen = 0

        def __call__(self, module, args, output):
            self.seen += 1

        def look(self, module, args, output):
            self.seen += 10

    net, looking = nn.Identity(), Looking()
    with (
        hookline.register_forward_hook(net, looking),
        hookline.register_forward_hook(net, looking.look),
        hookline.register_forward_hook(net, partial(Looking.look, looking)),
        hookline.register_forward_hook(net, lambda *told, more=100: setattr(looking, "seen", looking.seen + more)),
    ):
        net(X)
    assert looking.seen == 121


def test_a_tap_can_be_called_by_its_method_and_with_keywords():
    net, seen = nn.Identity(), []
    with hookline.register_forward_hook(net, lambda *told: seen.append(told)):
        tap = tap_of(net)
        assert tap(net, (X,), X) is None and tap.__call__(net, (X,), X) is None
        assert seen == [(net, (X,), X)] * 2
        with pytest.raises(TypeError, match="keyword"):
            tap(net, (X,), output=X)
    assert len(seen) == 2


def test_calls_leave_no_reference_behind():
    net, x = nn.Identity(), torch.ones(3)

    def raising(*told):
        raise ValueError

    def look(*told):
        return None

    def new(module, args, output):
        return output.clone()

    for hook, is_wrong in ((look, False), (new, False), (raising, True)):
        with hookline.register_forward_hook(net, hook):
            counts = []
            for _ in range(4):
                for _ in range(50):
                    try:
                        net(x)
                    except HookError:
                        assert is_wrong
                counts.append((sys.getrefcount(net), sys.getrefcount(x), sys.getrefcount(hook)))
                gc.collect()
        assert counts[1] == counts[2] == counts[3]


def test_recorded_calls_leave_no_reference_behind():
    net, x = nn.Identity(), torch.ones(3)
    gc.collect()
    before = sys.getrefcount(net), sys.getrefcount(x)
    for _ in range(20):
        with hookline.record(net) as rec:
            for _ in range(20):
                net(x)
        held = weakref.ref(rec[""].calls[0].output)
        del rec
        gc.collect()
        assert held() is None
    gc.collect()
    assert (sys.getrefcount(net), sys.getrefcount(x)) == before


def test_a_hook_that_holds_its_own_tap_is_collected():
    net = nn.Identity()

    class Looking:
        def __call__(self, module, args, output):
            return None

    looking = Looking()
    handle = hookline.register_forward_hook(net, looking)
    looking.tap, looking.handle = tap_of(net), handle
    held = weakref.ref(looking)
    handle.remove()
    del looking, handle, net
    gc.collect()
    assert held() is None


def test_copies_and_pickles_of_hooked_models_have_no_live_hook():
    net, seen = model(), []
    with hookline.register_forward_hook(net, lambda *told: seen.append(1), "**"), hookline.record(net) as rec:
        for other in (deepcopy(net), pickle.loads(pickle.dumps(net))):
            other(X)
        assert seen == [] and len(rec) == 0
        net(X)
    assert seen == [1, 1, 1] and len(rec) == 3


@pytest.mark.usefixtures("either_way")
def test_recorded_is_what_passed_whatever_kind_of_tensor_it_is():
    class Own(torch.Tensor):
        pass

    passing = {
        "a number": torch.tensor(2.0),
        "nothing": torch.empty(0, 3),
        "large": torch.arange(40_000.0),
        "transposed": X.T,
        "negated": torch._neg_view(X),
        "a conjugate's part": torch.tensor([1 + 2j]).conj().imag,
        "whole numbers": torch.arange(4),
        "bits": torch.tensor([True, False]),
        "half": X.half(),
        "complex": torch.tensor([1 + 2j]),
        "with history": torch.ones(2, requires_grad=True) * 2,
        "sparse": torch.eye(2).to_sparse(),
        "of a class": X.clone().as_subclass(Own),
        "a tuple": (X, [X]),
        "no tensor": "text",
    }
    net = nn.Identity()
    for name, value in passing.items():
        with hookline.record(net) as rec:
            net(value)
        kept = rec[""].output
        if isinstance(value, torch.Tensor):
            assert type(kept) is type(value) and kept.dtype is value.dtype and not kept.requires_grad, name
            assert torch.equal(kept.to_dense(), value.to_dense()) and not kept.is_neg(), name
            assert kept is not value
        else:
            assert str(kept) == str(value), name


def test_a_value_that_is_overwritten_stays_what_it_was_and_calls_go_on_after_a_look_at_them():
    net = nn.Sequential(nn.Identity(), nn.ReLU(inplace=True))
    with hookline.record(net) as rec:
        for number in range(3):
            net(torch.full((2,), -1.0 - number))
            assert [call.output.tolist() for call in rec["0"].calls] == [[-1.0 - i] * 2 for i in range(number + 1)]
    assert [call.output.tolist() for call in rec["1"].calls] == [[0.0, 0.0]] * 3
    assert [call.order for call in rec["0"].calls] == [0, 3, 6] and rec.names == ["0", "1", ""]


def test_what_is_recorded_in_inference_mode_is_of_use_later():
    net = nn.Identity()
    with hookline.record(net) as rec, torch.inference_mode():
        net(torch.ones(2))
    (rec[""].output * torch.ones(2, requires_grad=True)).sum().backward()


def test_a_block_of_another_thread_sees_nothing_and_a_worker_is_seen():
    net, ready, done = nn.Identity(), threading.Event(), threading.Event()

    def other():
        with hookline.record(net):
            ready.set()
            done.wait()
            net(X)

    thread = threading.Thread(target=other)
    with hookline.record(net) as rec:
        thread.start()
        ready.wait()
        net(X)
        done.set()
        thread.join()
        worker = threading.Thread(target=net, args=(X,))
        worker.start()
        worker.join()
    assert len(rec[""].calls) == 2


def test_calls_from_many_threads_while_others_attach_are_all_recorded():
    net, x = model(), X[:1]

    def call():
        for _ in range(200):
            net(x)

    def attach():
        for _ in range(100):
            with hookline.record(net):
                pass
            hookline.register_forward_hook(net, nothing).remove()

    threads = [threading.Thread(target=run) for run in (call, call, attach)]
    with hookline.record(net) as rec:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [len(rec[name].calls) for name in ("0", "1", "")] == [400] * 3
    assert len({call.order for name in rec for call in rec[name].calls}) == 1200


def test_a_checkpoint_is_no_second_call():
    net, x = nn.Sequential(nn.Tanh(), nn.Tanh()), torch.ones(2, requires_grad=True)
    with hookline.record(net) as rec:
        torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False).sum().backward()
    assert [len(rec[name].calls) for name in rec] == [1, 1, 1]
    assert "repeated" in rec["0"].why


def graphs_of(net, x):
    """How many graphs are compiled by calls of the model."""
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(net, backend=count)
    compiled(x)
    compiled(x)
    return len(graphs)


def test_hooks_of_a_compiled_model_are_not_compiled():
    class Net(nn.Module):
        def forward(self, x):
            return x * 2

    seen = []

    def look(module, args, output=None):
        seen.append((args[0] + 1).sum().item())

    torch._dynamo.reset()
    plain = graphs_of(Net(), X)
    net = Net()
    with hookline.register_forward_pre_hook(net, look), hookline.register_forward_hook(net, look):
        assert graphs_of(net, X) == plain
    assert seen == [21.0] * 4


@needs_c
def test_where_torch_does_not_tell_whether_it_compiles_python_does_all_calls_once_dynamo_is_there():
    net = model()
    quick.beware("torch", None)
    try:
        with hookline.register_forward_hook(net, nothing, "*"):
            assert frames_of(lambda: net(X)) == ["HookTap.call_anyhow"] * 2
    finally:
        beware_of_compiling()


@needs_c
def test_where_python_has_no_function_to_call_by_python_does_all_calls():
    net = model()
    quick.call_by(0)
    try:
        with hookline.register_forward_hook(net, nothing, "*"):
            assert frames_of(lambda: net(X)) == ["HookTap.call_anyhow"] * 2
    finally:
        quick.call_by(ctypes.cast(ctypes.pythonapi.PyVectorcall_Function, ctypes.c_void_p).value)


@needs_c
def test_what_the_c_can_not_use_is_an_error_and_no_crash():
    order = iter(range(3))
    rest = len, 1, len, order, {}
    for told in (
        (),
        (1, 2),
        ((object(), object(), len, torch.Tensor, len, len), *rest),
        ((object(), values.EXCHANGE, len, torch.Tensor, len, len), *rest),
        (1, *rest),
        (COPYING, *rest[:3], 1, {}),
    ):
        with pytest.raises((TypeError, ValueError)):
            quick.Keeping(*told)
    with pytest.raises(TypeError):
        quick.beware(1, None)
    with pytest.raises(AttributeError):
        quick.quick(type("NoCall", (quick.Called,), {}))
    with pytest.raises(TypeError):
        quick.quick(7)


@needs_c
@pytest.mark.skipif(COPYING is None, reason="torch tells nothing of its memory")
def test_what_is_asked_on_a_call_may_raise():
    @quick.quickly_called
    class Keeping(quick.Keeper):
        def call_anyhow(self, *told, **named):
            return "anyhow"

    def kept_by(*, opened=tuple, backward_number=lambda: -1, in_inference=lambda: False, order=None):
        copying = *COPYING[:5], in_inference
        keeping = quick.Keeping(copying, opened, 1, backward_number, order or iter([0]), {})
        return Keeping(None, None, None, keeping, "a", object(), [])

    def raising():
        raise ZeroDivisionError

    tap = kept_by()
    assert tap(None, (), X) is None and torch.equal(tap.outputs[0][1].get(), X)
    for told in ({"opened": raising}, {"backward_number": raising}, {"in_inference": raising}):
        tap = kept_by(**told)
        with pytest.raises(ZeroDivisionError):
            tap(None, (), X)
        assert tap.outputs == []
    assert kept_by(opened=lambda: [2])(None, (), X) == "anyhow"
    assert kept_by(backward_number=lambda: 5)(None, (), X) == "anyhow"
    assert kept_by()(None, X) == "anyhow" and kept_by()(None, (), output=X) == "anyhow"
    assert Keeping(*[None] * 7)(None, (), X) == "anyhow"
    with pytest.raises(StopIteration):
        kept_by(order=iter(()))(None, (), X)
    with pytest.raises(TypeError):
        Keeping(1)
    with pytest.raises(TypeError):
        Keeping(*[None] * 6, outputs=[])
    tap = kept_by()
    del tap.outputs
    assert tap(None, (), X) == "anyhow"
    tap.outputs = ()
    with pytest.raises(SystemError):  # no list
        tap(None, (), X)
    tap = kept_by()
    tap.keeping.is_plain = False
    assert tap(None, (), X) == "anyhow"


def test_without_a_compiler_all_is_the_same():
    code = (
        "import importlib.util as u; find = u.find_spec; import sys\n"
        "if sys.argv[1] == 'without':\n"
        "    u.find_spec = lambda name, *a: None if name.endswith('._tap') else find(name, *a)\n"
        "import hookline, torch; from torch import nn; from hookline.errors import HookError\n"
        "torch.manual_seed(0); net, seen = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), []\n"
        "hookline.register_forward_hook(net, lambda m, a, o: seen.append(o.tolist()), '*')\n"
        "hookline.register_forward_pre_hook(net, lambda m, a, k: ((a[0] + 1,), k), '0', with_kwargs=True)\n"
        "with hookline.record(net) as rec: net(torch.ones(1, 3))\n"
        "print(seen, [(name, rec[name].output.tolist()) for name in rec], hookline.installed(net)[0].kind)\n"
        "def broken(*told): raise ValueError('no')\n"
        "with hookline.register_forward_hook(net, broken, '1'):\n"
        "    try: net(torch.ones(1, 3))\n"
        "    except HookError as error: print(error, repr(error.__cause__))\n"
        "print(type(net[0]._forward_hooks).__name__, len(net[0]._forward_hooks))\n"
    )

    def printed(how):
        done = subprocess.run([sys.executable, "-c", code, how], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert printed("without") == printed("with")
