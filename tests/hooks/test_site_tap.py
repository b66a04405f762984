"""SiteTap: each call is followed from its entrance to its end, whoever else calls the module meanwhile."""

import gc
import json
import subprocess
import sys
import weakref
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

import hookline
from hookline.backends.keywords import HAS_C
from hookline.backends.tap import Label, Needs
from hookline.backends.torch.grads.simple import Heard
from hookline.hooks.session import Session
from hookline.hooks.site_tap import SiteTap

LABEL = Label("test", "tap", "")


class Passage:
    """Hands other kwargs on, as where a tensor gets a view."""

    def enter(self, args, kwargs):
        return args, dict(kwargs)

    def leave(self, output, number, references):
        return [output, number]


class Follower(SiteTap):
    def __init__(self, passage=None, session=None):
        super().__init__()
        self.label, self.passage, self.session = LABEL, passage, session
        self.ends = []

    def begin(self, module, args, kwargs):
        return None if "skip" in args else (args, self.passage)

    def end(self, call, passage, output, number, references):
        self.ends.append((call, output))
        return output if passage is None else passage.leave(output, number, references)


def entrance_of(tap):
    return tap.entrance(LABEL, Needs())


def test_a_call_within_a_call_ends_first_and_each_gets_its_own_beginning():
    tap, outer, inner = Follower(), {}, {}
    entrance = entrance_of(tap)
    assert entrance(None, ("outer",), outer) is None and entrance(None, ("inner",), inner) is None
    assert tap.under_way == 2
    assert tap(None, ("inner",), inner, 1) is None and tap(None, ("outer",), outer, 2) is None
    assert tap.ends == [(("inner",), 1), (("outer",), 2)] and tap.under_way == 0


def test_what_a_passage_hands_on_replaces_and_finds_its_call_again():
    tap, kwargs, output = Follower(Passage()), {}, object()
    args, new = entrance_of(tap)(None, ("a",), kwargs)
    assert new == kwargs and new is not kwargs
    result, number = tap(None, args, new, output)
    assert result is output and number > 0 and tap.ends == [(("a",), output)]


def test_a_call_that_is_not_followed_has_no_end():
    tap, kwargs = Follower(), {}
    assert entrance_of(tap)(None, ("skip",), kwargs) is None
    assert tap(None, ("skip",), kwargs, 1) is None and tap.ends == []


def test_taps_that_were_taken_off_during_a_call_are_called_without_kwargs_and_do_nothing():
    tap = Follower()
    entrance = entrance_of(tap)
    assert entrance(None, ("a",)) is None and tap(None, ("a",), "output") is None
    assert tap.under_way == 0 and tap.ends == []


@pytest.mark.parametrize(("while_leaving", "heard"), [(False, 0), (True, 1)])
def test_after_its_session_is_closed_only_who_hears_the_last_calls_follows(while_leaving, heard):
    session = Session()
    tap, kwargs = Follower(session=session), {}
    tap.while_leaving = while_leaving
    session.open()
    session.close()
    entrance_of(tap)(None, ("a",), kwargs)
    assert (tap.under_way, tap.elsewhere) == (heard, 1 - heard)


def test_calls_of_another_block_are_counted_and_not_followed():
    mine, other = Session(), Session()
    tap = Follower(session=mine)
    mine.open()
    mine.close()
    other.open()
    try:
        entrance_of(tap)(None, ("a",), {})
    finally:
        other.close()
    assert tap.elsewhere == 1 and tap.under_way == 0


def test_an_entrance_keeps_nobody_alive():
    tap = Follower()
    entrance, gone = entrance_of(tap), weakref.ref(tap)
    gc.disable()
    try:
        del tap
        assert gone() is None and entrance(None, ("a",), {}) is None
    finally:
        gc.enable()


def frames_of(run):
    """How many functions of hookline were called in a second run."""
    run()
    found = []

    def note(frame, event, arg):
        if event == "call" and "/hookline/" in frame.f_code.co_filename:
            found.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


def frames_of_a_recording() -> dict[str, int]:
    """How often each function of Python runs while the gradients of five plain calls are recorded."""
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(5)])
    x = torch.ones(1, 2, requires_grad=True) * 1  # no leaf, which is not plain
    with hookline.record(model, nn.Linear, grads=True):
        return dict(Counter(frames_of(lambda: model(x).sum().backward(inputs=[*model.parameters()]))))


@pytest.mark.skipif(Heard.__name__ != "Simple" or not HAS_C, reason="hookline was installed without a compiler")
def test_a_recording_of_gradients_has_few_frames_for_each_plain_call():
    """What C does for a plain call must not come back to Python unseen."""
    # In a process of its own: what other tests have left alive would have graphs looked at.
    script = (
        "import json; from tests.hooks.test_site_tap import frames_of_a_recording as f; print(json.dumps(f()))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    frames = json.loads(done.stdout)
    assert {name for name, times in frames.items() if times >= 4} - {"is_seen"} == {
        "Entrance.__call__",
        "_FullRecorder.begin",
        "Call.__init__",
        "listener",
        "SiteTap.__call__",
        "_FullRecorder.end",
        "_registration",
        "Call._hear_both",
        "_GradientTap.__call__",
        "SiteRecord._take_param_grad",
        "keep",
    }
    # The first input gets no gradient: nobody asks for it.
    assert frames["SiteTap.__call__"] == 5 and frames["Call._hear_both"] == 4
