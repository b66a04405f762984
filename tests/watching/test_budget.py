"""budget: which steps and sites a watch may record, and that what it takes stays below the share it was given."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hookline
from hookline.watching.budget import IN_A_ROW, MOST_APART, Budget, parse_share


class Simulated:
    """A training on a clock of its own. `plain(random, step)` is a step's time; what recording takes is known."""

    def __init__(self, limit, plain, *, metered=0.2, hidden=0.1, floor=0.0, seed=0, **options):
        self.now = 0.0
        self.own = self.training = 0.0
        self.recorded, self.shares, self.groups = [], [], []
        self.plain, self.metered, self.hidden, self.floor = plain, metered, hidden, floor
        self.random = random.Random(seed)
        self.budget = Budget(limit, clock=lambda: self.now, **options)
        self._left = 0.0  # of the step before: rows to be made

    def ours(self, seconds, is_seen=True):
        if is_seen:
            self.budget.enter()
        self.now += seconds
        self.own += seconds
        if is_seen:
            self.budget.leave()

    def theirs(self, seconds):
        self.now += seconds
        self.training += seconds

    def run(self, steps, wanted=lambda step: True):
        budget = self.budget
        for step in range(steps):
            self.budget.enter()
            self.now += self._left
            self.own += self._left
            self._left = 0.0
            budget.lap(step)
            is_on = wanted(step) and budget.allows(step)
            if is_on:
                budget.record(step)
            budget.leave()
            units = 1 / budget.groups
            self.ours(self.floor)
            if is_on:
                self.recorded.append(step)
                self.groups.append((budget.groups, budget.turn))
                self.ours(0.7 * units * self.metered)
                self.ours(units * self.hidden, is_seen=False)
                self._left = 0.3 * units * self.metered
            self.theirs(self.plain(self.random, step))
            self.shares.append(self.own / self.training)
        budget.lap(steps)
        return self


def steady(rng, step):
    return 1.0


def test_what_a_budget_may_be():
    assert parse_share("2%") == parse_share(0.02) == parse_share(" 2 % ") == 0.02
    assert parse_share("0.5%") == 0.005 and parse_share("100%") == parse_share(1) == 1
    for wrong in (0, -0.1, 2, "2", "two%", "%", "-1%", "101%", float("nan"), float("inf"), True, None, [0.02]):
        with pytest.raises(hookline.errors.InvalidArgument, match="expected a share"):
            parse_share(wrong)


@settings(max_examples=25, deadline=None)
@given(
    limit=st.sampled_from([0.005, 0.02, 0.1]),
    metered=st.floats(0.001, 5),
    hidden=st.floats(0, 5),
    enter=st.floats(0, 5),
    sites=st.integers(1, 40),
)
def test_on_steady_steps_the_share_stays_below_once_the_first_steps_are_paid_off(
    limit, metered, hidden, enter, sites
):
    training = Simulated(limit, steady, metered=metered, hidden=hidden, sites=sites)
    training.ours(enter)
    training.run(2000)
    # What a step takes besides what is metered is a guess until the second one has shown it.
    known = training.recorded[2] if len(training.recorded) > 2 else 2000
    assert training.recorded[0] == 0
    # The step is begun within the budget; what it takes was known, so it is within the budget at its end, too.
    assert max(training.shares[known:], default=0.0) <= limit * 1.0001
    if len(training.recorded) > 2:  # with what is set aside for the end
        assert training.budget.share >= training.own / training.training * 0.999


@settings(max_examples=20, deadline=None)
@given(
    limit=st.sampled_from([0.01, 0.02, 0.05]),
    metered=st.floats(0.01, 3),
    part=st.floats(0, 1),
    spread=st.floats(0, 0.5),
    slow=st.sampled_from([0.0, 0.003, 0.02]),
    seed=st.integers(0, 2**16),
)
def test_on_uneven_steps_too(limit, metered, part, spread, slow, seed):
    """Steps differ by half of their time, and some are fifty times as long: a validation, a wait for data."""

    def plain(rng, step):
        return rng.lognormvariate(0, spread) * (50 if rng.random() < slow or step == 0 else 1)

    training = Simulated(limit, plain, metered=metered, hidden=part * metered, seed=seed, sites=20).run(4000)
    assert training.own / training.training <= limit * 1.1 or len(training.recorded) == 1


@pytest.mark.parametrize(("metered", "hidden"), [(0.02, 0.01), (0.2, 0.1), (0.05, 0.3)])
def test_what_is_allowed_is_used(metered, hidden):
    training = Simulated(0.02, steady, metered=metered, hidden=hidden).run(4000)
    assert len(training.recorded) > 0.95 * 4000 * 0.02 / (metered + hidden)
    apart = [later - earlier for earlier, later in zip(training.recorded[3:], training.recorded[4:], strict=False)]
    assert max(apart) <= min(apart) + 2 and min(apart) <= training.budget.interval <= max(apart)


def test_a_cheap_watch_records_all_but_a_few_steps_to_compare_with():
    training = Simulated(0.02, steady, metered=0.004, hidden=0.001).run(2000)
    left_out = sorted(set(range(training.recorded[1], 2000)) - set(training.recorded))
    assert 1900 / (IN_A_ROW + 1) - 2 < len(left_out) < 1990 / IN_A_ROW + 1
    assert training.budget.interval == 1


def test_a_validation_within_a_recorded_step_is_paid_off():
    training = Simulated(0.02, steady, sites=20).run(1000)
    budget, count = training.budget, len(training.recorded)
    step = 1001
    while not budget.allows(step):
        budget.lap(step)
        training.theirs(1.0)
        step += 1
    budget.record(step)
    training.ours(20.0)  # a hundred batches were reduced
    training.theirs(100.0)
    began = step
    for step in range(began + 1, began + 2000):
        budget.lap(step)
        if budget.allows(step):
            break
        training.theirs(1.0)
    assert 800 < step - began < 1000  # 20 s are a hundredth of 1000 s, less of what the validation itself took
    assert count and budget._hidden < 0.2


def test_a_step_that_waits_for_data_is_not_taken_for_ours():
    def plain(rng, step):
        return 100.0 if step % 15 == 0 else 1.0  # many of the recorded ones

    training = Simulated(0.02, plain).run(2000)
    assert training.budget._hidden < 0.25 and len(training.recorded) > 120


def test_a_pause_earns_nothing():
    training = Simulated(0.02, steady, metered=2.0, hidden=0.0).run(500)
    budget = training.budget
    training.now += 1e6
    recorded = 0
    for step in range(501, 1001):
        budget.lap(step)
        if budget.allows(step):
            budget.record(step)
            training.ours(2.0)
            recorded += 1
        training.now += 1.0
    assert recorded <= 2 * 500 / budget.interval  # at no less than half of the distance


def test_compiling_is_ours_once():
    """The first step compiles with taps, the second without: a training without us compiles once."""
    training = Simulated(0.02, lambda rng, step: 50.0 if step < 2 else 1.0).run(3000)
    assert 49 / 0.02 - 100 < training.recorded[1] < 49 / 0.02 + 100
    assert training.budget._first_hidden == pytest.approx(49, abs=0.5)


def test_sites_take_turns_where_steps_would_be_too_far_apart():
    training = Simulated(0.02, steady, metered=10.0, hidden=2.0, sites=50).run(10_000)
    budget = training.budget
    assert budget.groups == 6 and budget.sites == 1 / 6 and budget.interval == MOST_APART
    turns = [turn for groups, turn in training.groups if groups == 6]
    assert turns[:12] == [(turns[0] + n) % 6 for n in range(12)]
    assert training.own / training.training <= 0.02
    assert "Sites took turns: 1 in 6 at each recorded step." in str(budget)
    # Each site has its turn: all of them are chosen in the course of six recorded steps.
    assert {place for place in range(50) for budget.turn in range(6) if budget.chooses(place)} == set(range(50))


def test_sites_take_no_turns_where_that_would_be_another_program():
    training = Simulated(0.02, steady, metered=10.0, hidden=2.0, sites=50, rotates=lambda: False).run(10_000)
    assert training.budget.groups == 1 and training.budget.interval == 600
    assert training.own / training.training <= 0.02


def test_a_schedule_and_a_budget_both_have_to_agree():
    training = Simulated(0.02, steady).run(3000, wanted=lambda step: step % 40 == 0)
    assert all(step % 40 == 0 for step in training.recorded)
    assert training.recorded[-20:] == list(range(2960 - 19 * 40, 3000, 40))  # every 15th is paid for


def test_hearing_of_steps_that_takes_more_than_the_budget_is_told():
    training = Simulated(0.02, steady, floor=0.05).run(5000)
    assert 10 < len(training.recorded) < 5000 * 0.02 / 0.3  # a quarter of the budget is for recording
    assert "To hear which step it is takes 4.88% by itself" in str(training.budget)


def test_what_threads_write_counts():
    spent = [0.0]
    training = Simulated(0.02, steady, elsewhere=lambda: spent[0]).run(100)
    spent[0] = 50.0
    count = len(training.recorded)
    for step in range(101, 2000):
        training.budget.lap(step)
        if step > 101:
            assert not training.budget.allows(step) or step < 140
        training.now += 1.0
    assert count


def test_nested_functions_are_metered_once():
    now = [0.0]
    budget = Budget(0.02, clock=lambda: now[0])
    assert budget.enter()
    now[0] += 1
    assert not budget.enter()
    now[0] += 1
    budget.leave()
    assert budget._own == 2


def test_it_is_told_in_words_and_numbers():
    budget = Simulated(0.02, steady).run(3000).budget
    told = budget.to_json()
    assert told["limit"] == 0.02 and 0.015 < told["share"] <= 0.02 and told["steps"] == 3000
    assert told["interval"] == budget.interval == 15 and told["recorded"] == budget.recorded
    assert told["text"] == budget.text == str(budget)
    assert budget.text.startswith("Budget 2%: hookline took ") and "the last ones 1 in 15." in budget.text
    early = Simulated(0.02, steady).run(3).budget
    assert "1 of 3 steps were recorded." in early.text and "not paid off yet" in early.text
