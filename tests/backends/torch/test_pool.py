"""Memory of copies: used again when nobody has it, never while somebody has, and given back."""

import copy
import gc
import os
import pickle
import random
import subprocess
import sys
import threading
import weakref

import pytest
import torch
from torch import nn

import hookline
from hookline.backends.kept import Kept
from hookline.backends.torch import values
from hookline.backends.torch.values import EXCHANGE, keep, release_memory, snapshot

direct = values._direct
pytestmark = pytest.mark.skipif(
    direct is None or EXCHANGE is None, reason="no compiler was here, or torch has no table of DLPack's"
)

MB = 1 << 20


@pytest.fixture(autouse=True)
def empty():
    gc.collect()
    release_memory()
    yield
    gc.collect()
    release_memory()


@pytest.fixture
def bounded():
    """A pool of another size, for the time of a test."""
    before = direct.bound(direct.held()[0] + 64 * MB)
    yield
    direct.bound(before)


def floats(number, value=1.0):
    return torch.full((number,), value)


def test_memory_that_nobody_has_is_used_again():
    first = snapshot(floats(100_000))
    where = first.data_ptr()
    del first
    assert snapshot(floats(100_000, 2.0)).data_ptr() == where


def test_a_block_serves_other_shapes_and_dtypes_of_its_size():
    first = snapshot(torch.ones(100, 1000))
    where = first.data_ptr()
    del first
    again = snapshot(torch.arange(49_990))  # of int64, and a little shorter
    assert again.data_ptr() == where and torch.equal(again, torch.arange(49_990))


def test_memory_goes_back_to_the_system():
    held, blocks = direct.held()
    some = [snapshot(floats(MB)) for _ in range(8)]
    assert direct.held()[0] >= held + 32 * MB and direct.held()[1] == blocks + 8
    del some
    assert direct.held()[1] == blocks
    release_memory()
    assert direct.held()[0] == held


def test_what_somebody_has_stays_when_memory_is_released():
    kept, other = snapshot(floats(MB, 3.0)), snapshot(floats(MB, 4.0))
    del other
    release_memory()
    assert torch.equal(kept, floats(MB, 3.0))


def test_beyond_the_bound_there_is_other_memory(bounded):
    some = [snapshot(floats(MB, float(number))) for number in range(40)]  # 160 MB
    assert direct.held()[0] <= direct.bound(direct.bound(0)) + 64 * MB
    assert all(torch.equal(one, floats(MB, float(number))) for number, one in enumerate(some))
    with pytest.raises(MemoryError):
        direct.Memory(200 * MB)


def test_slabs_that_nobody_uses_make_room_for_other_sizes(bounded):
    before = direct.held()[1]
    for number in (100_000, 3 * MB, 200_000, 5 * MB, 33_333, MB):
        some = [snapshot(floats(number)) for _ in range(40 * MB // 4 // number)]
        assert direct.held()[1] == before + len(some)  # none of them has memory of its own
        del some


@pytest.mark.parametrize("seed", range(4))
def test_random_holders_never_share_memory(seed, bounded):
    """What is held has its own values, whatever comes and goes; a pool that is too small included."""
    choose = random.Random(seed)
    held = {}
    for number in range(400):
        size = choose.choice([1000, 1500, 20_000, 100_000, 101_000, 700_000, MB, 3 * MB])
        held[number] = (snapshot if choose.random() < 0.5 else keep)(floats(size, float(number)))
        while held and choose.random() < 0.5:
            held.pop(choose.choice(list(held)))
        if choose.random() < 0.05:
            release_memory()
    for number, one in held.items():
        tensor = one.get() if isinstance(one, Kept) else one
        assert torch.equal(tensor, floats(tensor.numel(), float(number)))


def test_threads_that_take_and_give_back():
    wrong = []

    def work(number):
        for turn in range(60):
            value = float(100 * number + turn)
            some = [snapshot(floats(size, value)) for size in (2_000, 50_000, 300_000)]
            kept = [keep(one) for one in some]
            wrong.extend(one for one in some if not bool((one == value).all()))
            wrong.extend(one for one in kept if not bool((one.get() == value).all()))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and direct.held()[1] == 0


def test_the_last_holder_may_be_in_the_backward():
    """Autograd lets go of what it saved in a thread of its own choosing, without Python's lock."""
    before = direct.held()[1]
    weight = torch.ones(100_000, requires_grad=True)
    (weight * snapshot(floats(100_000, 2.0))).sum().backward()
    assert weight.grad[0] == 2.0 and direct.held()[1] == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_of_fork_goes_on():
    script = """
import os, torch
torch.set_num_threads(1)  # OpenMP does not go on after a fork
from hookline.backends.torch.values import snapshot
kept = snapshot(torch.ones(100_000))
child = os.fork()
if child == 0:
    more = [snapshot(torch.full((100_000,), 2.0)) for _ in range(20)]
    right = kept.sum().item() == 100_000 and all(one.sum().item() == 200_000 for one in more)
    os._exit(0 if right else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), kept.sum().item())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["0", "100000.0"], done.stderr


def test_memory_refuses_what_is_no_size():
    for wrong in (0, -5):
        with pytest.raises(ValueError, match="above 0"):
            direct.Memory(wrong)
    for wrong in ("a", None, 1.5):
        with pytest.raises(TypeError):
            direct.Memory(wrong)
    with pytest.raises(TypeError, match="no keywords"):
        direct.Memory(bytes=3)
    with pytest.raises(ValueError, match="a number of bytes"):
        direct.bound(-1)


def test_a_cast_copy_is_in_memory_of_the_pool_too():
    before = direct.held()[1]
    cast = snapshot(floats(100_000, 1.5), dtype=torch.bfloat16)
    gaps = snapshot(torch.ones(400, 600)[:, ::2])
    assert direct.held()[1] == before + 2
    assert cast.dtype is torch.bfloat16 and cast.unique().tolist() == [1.5]
    assert gaps.shape == (400, 300) and gaps.is_contiguous() and not cast._is_view() and cast.is_leaf


# Kept


def test_a_kept_copy_gives_one_tensor_each_time():
    kept = keep(torch.arange(5.0))
    assert isinstance(kept, Kept) and kept.get() is kept.get() and kept.get().tolist() == [0, 1, 2, 3, 4]


def test_what_is_asked_before_a_tensor_is_kept_may_raise():
    def raising(*told):
        raise ZeroDivisionError

    def keeper(is_negated=lambda tensor: False, in_inference=lambda: False, anyhow=lambda tensor: "anyhow"):
        return direct.keeper(EXCHANGE, lambda make: make(), torch.Tensor, is_negated, in_inference, anyhow)

    assert keeper()(torch.ones(2)).get().tolist() == [1, 1]
    for told in ({"is_negated": raising}, {"in_inference": raising}):
        with pytest.raises(ZeroDivisionError):
            keeper(**told)(torch.ones(2))
    for told in ({"is_negated": lambda tensor: True}, {"in_inference": lambda: True}, {}):
        kept = keeper(**told)(torch.ones(2) if told else nn.Parameter(torch.ones(2)))
        assert kept == "anyhow"
    assert keeper()(torch.ones(4)[::2]) == keeper()("no tensor") == "anyhow"
    with pytest.raises(ZeroDivisionError):
        keeper(anyhow=raising)(1)
    with pytest.raises(TypeError, match="expected 6 arguments, got 1"):
        direct.keeper(EXCHANGE)
    with pytest.raises(ValueError, match="apsule"):
        direct.keeper(*[object()] * 6)


def test_nobody_else_makes_a_tensor_of_it():
    kept = keep(torch.ones(2))
    with pytest.raises(RuntimeError, match="by the thread that asked"):
        kept.make()
    with pytest.raises(TypeError):
        Kept()


def test_a_kept_copy_is_an_ordinary_tensor_wherever_it_is_asked_for():
    kept = keep(torch.ones(3))
    with torch.inference_mode():
        tensor = kept.get()
    assert not tensor.is_inference()
    (tensor.requires_grad_() * 2).sum().backward()


def test_pickled_and_copied_it_is_a_tensor():
    kept = keep(torch.arange(3.0))
    for other in (pickle.loads(pickle.dumps(kept)), copy.deepcopy(kept), copy.copy(kept)):
        assert type(other) is torch.Tensor and other.tolist() == [0, 1, 2]


def test_a_cycle_through_a_kept_copy_is_collected():
    class Holder:
        pass

    holder = Holder()
    holder.kept = keep(torch.ones(3))
    holder.kept.get().holder = holder
    gone = weakref.ref(holder)
    del holder
    gc.collect()
    assert gone() is None


def test_an_interrupt_while_the_tensor_is_made_does_not_lose_it():
    def interrupted(make):
        make()
        raise KeyboardInterrupt

    kept = direct.keep(EXCHANGE, torch.arange(3.0), interrupted)
    with pytest.raises(KeyboardInterrupt):
        kept.get()
    assert kept.get().tolist() == [0, 1, 2]


def test_a_function_that_makes_no_tensor_is_told():
    kept = direct.keep(EXCHANGE, torch.ones(1), lambda make: None)
    with pytest.raises(RuntimeError, match="no tensor could be made"):
        kept.get()


def test_asked_while_it_is_made_it_does_not_wait_for_itself():
    def asks_again(make):
        with pytest.raises(RuntimeError, match="no tensor could be made"):
            held[0].get()
        return make()

    held = []
    held.append(direct.keep(EXCHANGE, torch.arange(2.0), asks_again))
    assert held[0].get().tolist() == [0, 1]


def test_two_threads_that_ask_get_the_same_tensor():
    entered, go_on = threading.Event(), threading.Event()

    def slowly(make):
        entered.set()
        go_on.wait(10)
        return make()

    kept = direct.keep(EXCHANGE, torch.ones(2), slowly)
    found = []
    threads = [threading.Thread(target=lambda: found.append(kept.get())) for _ in range(2)]
    threads[0].start()
    assert entered.wait(10)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert len(found) == 2 and found[0] is found[1]


def test_recordings_read_pickle_and_save_what_is_kept(tmp_path):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    x = torch.randn(2, 3)
    with hookline.record(model, grads=True) as rec:
        model(x).sum().backward()
    before = model[0](x)
    assert torch.equal(rec["0"].output, before) and rec["0"].output is rec["0"].output
    assert rec["0"].grad_output.shape == (2, 4) and rec["0"].param_grads["weight"].shape == (4, 3)
    rec.save(tmp_path / "a.safetensors")
    assert torch.equal(hookline.load_recording(tmp_path / "a.safetensors")["0"].output, before)


def test_a_dropped_recording_gives_its_memory_back():
    model, before = nn.Linear(3, 70_000), direct.held()[1]
    with hookline.record(model) as rec:
        model(torch.ones(1, 3))
    assert direct.held()[1] == before + 1
    del rec
    assert direct.held()[1] == before
