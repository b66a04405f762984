"""watch(budget=...): an unedited training with a budget, its steps, its sites, and what is told of it."""

import copy
import sys
import threading
from functools import partial

import pytest
import torch
from torch import nn

import hookline
from hookline.testing import untouched
from hookline.watching import paced
from hookline.watching.budget import MOST_APART, Budget
from hookline.watching.watch import watch
from tests.support.compare import same_bits

TICK = 5e-3
"""What each look at the clock takes: hookline's functions then take so much for each of them."""


pytestmark = pytest.mark.usefixtures("nothing_was_compiled", "nobody_observes")


class Clock:
    """A clock that the test moves, and that moves a little when it is looked at."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += TICK
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(paced, "Budget", partial(Budget, clock=made))
    return made


def make(parts=2):
    torch.manual_seed(0)
    return nn.Sequential(*(part for _ in range(parts) for part in (nn.Linear(3, 3), nn.Tanh())), nn.Linear(3, 2))


def train(model, steps, clock=None, optimizers=None, accumulate=1, each=1.0, after=None):
    optimizers = optimizers or [torch.optim.SGD(model.parameters(), lr=0.1)]
    torch.manual_seed(1)
    for step in range(steps):
        for _ in range(accumulate):
            model(torch.randn(4, 3)).square().mean().backward()
        if clock is not None:
            clock.now += each
        for optimizer in optimizers:
            optimizer.step()
        for optimizer in optimizers:
            optimizer.zero_grad()
        if after is not None:
            after(step)
    return [parameter.detach().clone() for parameter in model.parameters()]


def watching(model):
    return [label for label in hookline.installed(model) if label.owner == "watch"]


@pytest.mark.parametrize("options", [{}, {"inputs": True}, {"every": 3}, {"grads": False}, {"ops": True}], ids=str)
def test_training_with_a_budget_gives_bitwise_the_same_weights(options, clock):
    expected = train(make(), 60)
    model = make()
    with untouched(model, parameters=False, rng=False), watch(model, budget="20%", **options) as w:
        got = train(model, 60, clock)
    assert same_bits(expected, got)
    assert len(w.steps) > 3 and w.steps[0] == 0
    assert hookline.installed(model) == []


def test_steps_have_the_numbers_that_they_have_without_a_budget(clock):
    """Rows of a step are the same rows, whether others were slept through or recorded."""
    model = make()
    with watch(model) as every:
        train(model, 80)
    model = make()
    with watch(model, budget="5%") as w:
        train(model, 80, clock)
    assert 2 < len(w.steps) < 40
    for step in w.steps:
        expected = {(row["site"], row["kind"]): row["mean"] for row in every.rows(step=step)}
        found = {(row["site"], row["kind"]): row["mean"] for row in w.rows(step=step) if row["kind"] != "scalar"}
        assert found == expected


def test_between_recorded_steps_nothing_is_on_the_model(clock):
    model = make()
    there = {}
    with watch(model, budget="1%") as w:
        train(model, 150, clock, after=lambda step: there.update({step: len(watching(model))}))
        assert w.now == 150
    on = {step + 1 for step, count in there.items() if count and step < 149}
    assert on == set(w.steps) - {0} and 1 < len(w.steps) < 20


def test_the_account_is_kept(clock):
    model = make()
    with watch(model, budget="2%") as w:
        train(model, 600, clock)
    budget = w.budget
    assert isinstance(budget, Budget) and budget.limit == 0.02
    assert budget.steps == 600 and budget.recorded == len(w.steps) > 2
    assert 0.01 < budget.share <= 0.02
    assert budget.text.startswith("Budget 2%: hookline took ")


def test_both_schedule_and_budget_have_to_agree(clock):
    model = make()
    with watch(model, budget="5%", every=7) as w:
        train(model, 200, clock)
    assert len(w.steps) > 3 and all(step % 7 == 0 for step in w.steps)


def test_micro_batches_make_one_step(clock):
    model = make()
    with watch(model, budget="10%") as w:
        train(model, 60, clock, accumulate=3)
    assert len(w.steps) > 2 and max(w.steps) < 60
    assert {row["count"] for row in w.rows("0", kind="output")} == {3 * 4 * 3}


def test_several_optimizers_of_a_model_keep_it_awake(clock):
    model = make()
    halves = [torch.optim.SGD(model[:2].parameters(), lr=0.1), torch.optim.SGD(model[2:].parameters(), lr=0.1)]
    seen = []
    with watch(model, budget="20%") as w:
        train(model, 60, clock, optimizers=halves, after=lambda step: seen.append(len(watching(model))))
        model(torch.randn(4, 3))
        assert w.now == 60
    assert all(seen) and len(w.steps) > 1


def test_a_second_optimizer_that_comes_while_it_sleeps_wakes_it(clock):
    model = make()
    only = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, budget="0.1%") as w:
        train(model, 20, clock, optimizers=[only])
        assert not watching(model) and w.now == 20
        another = torch.optim.SGD(model[:2].parameters(), lr=0.1)
        train(model, 5, clock, optimizers=[another, only])
        model(torch.randn(4, 3))
        assert w.now == 25
        assert watching(model)


def test_an_optimizer_of_another_model_is_not_counted(clock):
    model, other = make(), make()
    with watch(model, budget="0.1%") as w:
        train(model, 20, clock)
        train(other, 7, clock)
        assert w.now == 20


def test_an_optimizer_that_holds_a_part_is_known_after_a_few_steps(clock):
    model = make()
    optimizer = torch.optim.SGD(model[:2].parameters(), lr=0.1)
    seen = []
    with watch(model, budget="0.1%") as w:
        train(model, 30, clock, optimizers=[optimizer], after=lambda step: seen.append(len(watching(model))))
        assert w.now == 30
    assert seen[1] and not seen[10]


def test_where_nobody_trains_calls_are_steps(clock):
    model = make()
    with torch.no_grad(), watch(model, budget="10%") as w:
        for _ in range(200):
            model(torch.randn(4, 3))
            clock.now += 1.0
    assert w.steps[0] == 0 and 3 < len(w.steps) < 200 and w.budget.steps == 200


def test_steps_by_hand(clock):
    model = make()
    with watch(model, budget="5%", params=False) as w:
        w.steps_by_hand()
        for _ in range(200):
            model(torch.randn(4, 3)).sum().backward()
            clock.now += 1.0
            w.before_step()
            w.after_step()
    assert w.steps[0] == 0 and 3 < len(w.steps) < 150 and w.budget.steps == 200


def test_sites_take_turns(clock):
    model = make(parts=10)
    with watch(model, budget="0.5%") as w:
        train(model, 2500, clock)
    budget = w.budget
    assert budget.groups > 1 and budget.interval <= MOST_APART * 1.6
    later = [step for step in w.steps if step > w.steps[3]]
    sites = [frozenset(row["site"] for row in w.rows(kind="output", step=step)) for step in later]
    assert max(map(len, sites)) < 21
    for step, some in zip(later, sites, strict=True):  # parameters go with the modules that have them
        assert {row["site"].rpartition(".")[0] for row in w.rows(kind="param", step=step)} <= some
    assert budget.share <= 0.00501


def test_the_audit_says_how_often_a_silent_site_had_its_turn(clock):
    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = make(parts=10), nn.Linear(3, 3)

        def forward(self, x):
            return self.used(x)

    model = Spare()
    with watch(model, budget="0.5%") as w:
        train(model, 2500, clock)
    assert w.budget.groups > 1
    why = w.audit()["spare"].why
    assert "the budget of 0.5% had it measured at " in why and f" of {len(w.steps)} recorded steps" in why


def test_the_run_shows_it(tmp_path, clock):
    model = make()
    with watch(model, budget="5%", to=tmp_path / "a") as w:
        train(model, 300, clock)
    with hookline.open_run(tmp_path / "a") as run:
        told = run.meta["budget"]
        assert told["limit"] == 0.05 and told["text"] == w.budget.text
        shares = run.rows("share", kind="scalar")
        assert [row["step"] for row in shares] == run.steps
        assert shares[-1]["mean"] <= 0.0501 and shares[0]["count"] == 1


def test_a_compiled_model_has_two_programs_and_no_more(clock):
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    model = torch.compile(make(), backend="aot_eager")
    counters.clear()
    with watch(model, budget="10%") as w:
        train(model, 100, clock)
    assert len(w.steps) > 4
    assert counters["stats"]["unique_graphs"] == 2
    assert w.budget.groups == 1
    assert {row["site"] for row in w.rows(kind="output")} == {"", "0", "1", "2", "3", "4"}
    torch._dynamo.reset()


def test_threads_that_call_the_model(clock):
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def work():
        for _ in range(20):
            model(torch.randn(4, 3)).sum().backward()

    with watch(model, budget="20%") as w:
        for _ in range(30):
            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            clock.now += 10.0
            optimizer.step()
    assert w.steps[0] == 0 and max(w.steps) < 30 and hookline.installed(model) == []


def test_an_exception_while_it_sleeps_leaves_nothing(clock):
    model = make()

    def fail(step):
        if step == 10:
            raise KeyError

    with pytest.raises(KeyError), watch(model, budget="0.1%"):
        train(model, 20, clock, after=fail)
    assert hookline.installed(model) == []
    before = copy.deepcopy(model.state_dict())
    train(model, 1)
    assert not same_bits(before, model.state_dict())


def test_a_block_that_is_entered_again_opens_a_new_account(clock):
    model = make()
    w = watch(model, budget="0.1%")
    for _ in range(2):
        with w:
            train(model, 20, clock)
        assert w.budget.steps == 20 and w.budget.recorded == 1


def test_rows_can_be_read_while_it_sleeps(clock):
    model = make()
    with watch(model, budget="0.1%") as w:
        train(model, 10, clock)
        assert w.steps == [0]
        w.step(100)
        train(model, 3, clock)
        assert w.now == 103


def test_wrong_budgets_are_refused_before_anything_happens():
    for wrong in ("2", 0, 2, "much", True):
        with pytest.raises(hookline.errors.InvalidArgument, match="budget="):
            watch(make(), budget=wrong)
    with watch(make()) as w:
        assert w.budget is None


@pytest.mark.parametrize("after", [False, True])
def test_numbers_of_the_users_have_their_steps(clock, tmp_path, after):
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, budget="1%", to=tmp_path / "a") as w:
        for step in range(150):
            model(torch.randn(4, 3)).square().mean().backward()
            if not after:
                w.log(number=step)
            clock.now += 1.0
            optimizer.step()
            if after:
                w.log(number=step)
    assert 1 < len(w.steps) < 50
    assert [(row["step"], row["mean"]) for row in w.rows("number", kind="scalar")] == [(n, n) for n in range(150)]
    with hookline.open_run(tmp_path / "a") as run:
        found = run.rows("number", kind="scalar")
        assert [(row["step"], row["mean"]) for row in found] == [(n, n) for n in range(150)]


def test_a_step_that_is_slept_through_costs_a_few_calls(clock):
    """Counted, not timed: of the calls that Python makes in a step, how many are hookline's."""
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    calls = []

    def note(frame, event, arg):
        if event == "call" and "hookline" in frame.f_code.co_filename and "tests" not in frame.f_code.co_filename:
            calls.append(frame.f_code.co_qualname)

    with watch(model, budget="0.1%"):
        train(model, 20, clock, optimizers=[optimizer])
        sys.setprofile(note)
        try:
            train(model, 100, clock, optimizers=[optimizer])
        finally:
            sys.setprofile(None)
    assert len(calls) < 100 * 25
