"""StepClock: which step it is, told by calls and steps alone."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from hookline.watching.clock import StepClock


def one():
    return 1


def two():
    return 2


def call(clock, *, trains=True, under_way=one):
    """A whole call of the model; whether the step ended with it."""
    if clock.is_new_forward(under_way) and clock.is_due:
        clock.set(clock.now + 1)
    clock.begin_forward()
    ends = clock.end_forward(under_way, lambda: trains)
    if ends:
        clock.set(clock.now + 1)
    return ends


def step(clock):
    clock.optimizer_steps()
    clock.optimizer_stepped()


def test_where_nobody_trains_each_call_is_a_step():
    clock = StepClock()
    assert [call(clock, trains=False) for _ in range(3)] == [True] * 3 and clock.now == 3


def test_a_call_whose_output_has_a_gradient_waits_for_its_optimizer():
    clock = StepClock()
    assert not call(clock) and clock.now == 0 and not clock.is_due


def test_once_an_optimizer_has_stepped_calls_alone_make_no_steps():
    clock = StepClock()
    call(clock)
    step(clock)
    assert not call(clock, trains=False) and clock.now == 1


@given(st.lists(st.sampled_from("cs"), max_size=30))
def test_a_step_is_a_forward_after_an_optimizer_has_stepped_however_often(events):
    clock = StepClock()
    clock.optimizer_steps()
    for event in events:
        if event == "c":
            call(clock)
        else:
            step(clock)
    text = "".join(events)
    while "ss" in text:
        text = text.replace("ss", "s")  # several optimizers in one step
    assert clock.now == text.count("sc") and clock.is_due == text.endswith("s")


def test_a_model_that_calls_itself_has_one_forward():
    clock = StepClock()
    assert clock.is_new_forward(one)
    clock.begin_forward()
    assert not clock.is_new_forward(two)
    clock.begin_forward()
    assert not clock.end_forward(two, lambda: False), "the inner call ends nothing"
    assert clock.depths and clock.end_forward(one, lambda: False) and not clock.depths


def test_a_forward_that_an_exception_ended_is_over_when_the_next_begins():
    clock = StepClock()
    clock.begin_forward()
    assert clock.depths and clock.is_new_forward(one), "the framework says that only this one is under way"


def test_a_forward_in_another_thread_begins_no_new_one():
    clock, told = StepClock(), []
    clock.begin_forward()
    thread = threading.Thread(target=lambda: told.append(clock.is_new_forward(one)))
    thread.start()
    thread.join()
    assert told == [False]


def test_steps_by_hand_are_set_and_nothing_else_counts():
    clock = StepClock()
    clock.take_over()
    clock.set(41)
    assert clock.is_by_hand and not call(clock, trains=False) and clock.now == 41


def test_what_was_under_way_can_be_forgotten():
    clock = StepClock()
    clock.begin_forward()
    clock.forget_forward()
    assert not clock.depths


@given(st.lists(st.sampled_from("cab"), max_size=40))
def test_an_optimizer_that_steps_on_and_on_without_the_model_makes_steps(events):
    """Of calls (c) and steps of two optimizers (a, b): the third in a row is one, and each after it."""
    clock = StepClock()
    clock.optimizer_steps()
    expected = repeated = 0
    before, is_due = "", False
    for event in events:
        if event == "c":
            expected += is_due
            is_due = False
            call(clock)
        else:
            repeated = repeated + 1 if is_due and event == before else 0
            expected += repeated >= 2
            if clock.optimizer_steps({ord(event)}):
                clock.set(clock.now + 1)
            clock.optimizer_stepped()
            is_due = True
        before = event
    assert (clock.now, clock.is_due) == (expected, is_due)
