"""Numbers of a training beside its rows: those of hookline's own, and `w.log`."""

import numpy as np
import pytest
import torch
from torch import nn

import hookline
from hookline import sinks
from hookline.errors import InvalidArgument
from hookline.watching.history import History

X = torch.ones(2, 3)


class Kept:
    def __init__(self):
        self.steps = []

    def write(self, rows):
        self.steps.append(list(rows))

    def close(self):
        pass


def train(model, steps, told=lambda step: None, before=lambda step: None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(X).square().mean()
        loss.backward()
        before(step)
        optimizer.step()
        told(step)


def test_what_is_logged_belongs_to_the_step_under_way():
    model = nn.Linear(3, 1)
    with hookline.watch(model) as w:
        train(model, 3, lambda step: w.log(after=step), lambda step: w.log(before=torch.tensor(step * 10)))
    found = w.scalars()
    assert found["after"].steps.tolist() == [0, 1, 2] and found["after"].values.tolist() == [0, 1, 2]
    assert found["before"].steps.tolist() == [0, 1, 2] and found["before"].values.tolist() == [0, 10, 20]
    assert found["after"].values.dtype == np.float64


def test_rows_sites_and_steps_leave_scalars_out_unless_they_are_asked_for():
    model = nn.Linear(3, 1)
    with hookline.watch(model, every=2) as w:
        train(model, 4, lambda step: w.log(mine=step))
    assert w.steps == [0, 2] and "loss" not in w.sites and not any(row["kind"] == "scalar" for row in w.rows())
    assert w.rows("loss") == [] and [row["step"] for row in w.rows("loss", kind="scalar")] == [0, 2]
    (row,) = w.rows("mine", kind="scalar", step=3)  # a user's are kept at any step
    assert row["mean"] == row["min"] == row["max"] == 3 and row["count"] == 1 and row["hist"] is None
    assert (row["call"], row["mode"], row["rank"], row["std"]) == (0, "train", 0, 0.0)
    assert {"loss", "mine", "lr"} <= set(w.to_pandas()["site"])


def test_a_name_of_the_users_is_the_users():
    model = nn.Linear(3, 1)
    with hookline.watch(model) as w:
        train(model, 2, lambda step: w.log(loss=-1.0, lr=np.float32(0.5)))
    assert w.scalars()["loss"].values.tolist() == [-1, -1] and w.scalars()["lr"].values.tolist() == [0.5, 0.5]
    assert w.scalars()["backwards"].values.tolist() == [1, 1]


def test_where_nobody_trains_it_belongs_to_the_call_before():
    model = nn.Linear(3, 1)
    with torch.no_grad(), hookline.watch(model) as w:
        for call in range(3):
            model(X)
            w.log(call=call)
    assert w.scalars()["call"].steps.tolist() == [0, 1, 2] and w.steps == [0, 1, 2]
    assert "loss" not in w.scalars() and "lr" not in w.scalars() and len(w.scalars()["batch"].steps) == 3


def test_where_steps_are_told_by_hand_it_belongs_to_the_one_that_ended():
    model = nn.Linear(3, 1)
    with hookline.watch(model) as w:
        w.steps_by_hand()
        for step in range(2):
            w.new_forward()
            model(X).sum().backward()
            w.log(early=step)
            w.before_step()
            w.after_step()
            w.log(late=step)
    assert w.scalars()["early"].steps.tolist() == w.scalars()["late"].steps.tolist() == [0, 1]


def test_a_tensor_that_is_changed_later_was_what_it_was():
    model, total = nn.Linear(3, 1), torch.zeros(())

    def told(step):
        total.add_(1)
        w.log(total=total)

    with hookline.watch(model) as w:
        train(model, 3, told)
    assert w.scalars()["total"].values.tolist() == [1, 2, 3]


@pytest.mark.parametrize("number", [1, 2.5, True, np.float32(3), np.int64(4), np.array(5.0), torch.tensor(6)])
def test_numbers_of_many_kinds_are_taken(number):
    with hookline.watch(nn.Linear(3, 1)) as w:
        w.log(it=number)
    assert w.scalars()["it"].values.tolist() == [float(number)]


@pytest.mark.parametrize(
    "wrong",
    ["text", None, [1.0], torch.ones(2), np.ones((1, 1)), 1j, torch.tensor(1j), torch.ones((), device="meta")],
)
def test_what_is_no_number_is_refused_by_its_name(wrong):
    with hookline.watch(nn.Linear(3, 1)) as w:
        with pytest.raises(InvalidArgument, match=r"log\(accuracy=...\)"):
            w.log(fine=1, accuracy=wrong)
        w.log(fine=2)
    assert w.scalars().keys() == {"fine"} and w.scalars()["fine"].values.tolist() == [2]


def test_a_watch_that_is_not_open_takes_no_numbers():
    w = hookline.watch(nn.Linear(3, 1))
    with pytest.raises(InvalidArgument, match="not open"):
        w.log(a=1)
    with w:
        w.log(a=1)
    with pytest.raises(InvalidArgument, match="not open"):
        w.log(a=2)
    assert w.scalars()["a"].values.tolist() == [1]


def test_sinks_get_them_with_the_rows_of_the_step():
    model, kept = nn.Linear(3, 1), Kept()
    with hookline.watch(model, every=2, to=kept) as w:
        train(model, 3, lambda step: w.log(mine=step))
    names = [{row["site"] for row in rows if row["kind"] == "scalar"} for rows in kept.steps]
    assert len(names) == 3 and "loss" in names[0] and names[1] == {"mine"} and {"mine", "loss"} <= names[2]
    assert [{row["step"] for row in rows} for rows in kept.steps] == [{0}, {1}, {2}]


def test_a_console_shows_the_last_step_that_has_rows(capsys):
    model = nn.Linear(3, 1)
    with hookline.watch(model, every=2, to=sinks.Console("output", seconds=1000)) as w:
        train(model, 4, lambda step: w.log(mine=step))
    assert "step 2" in capsys.readouterr().out


def test_of_a_forward_that_failed_nothing_is_kept():
    class Failing(nn.Module):
        def forward(self, x):
            raise ValueError("wrong shape")

    model, kept = Failing(), Kept()
    with pytest.raises(ValueError, match="wrong shape"), hookline.watch(model, to=kept) as w:
        model(X)
    assert w.scalars() == {} and kept.steps == []


def test_numbers_that_are_not_finite_are_kept_as_they_are():
    with hookline.watch(nn.Linear(3, 1)) as w:
        w.log(a=float("nan"), b=float("-inf"))
    a, b = (w.rows(name, kind="scalar")[0] for name in "ab")
    assert np.isnan(a["mean"]) and (a["nan"], a["inf"]) == (1, 0)
    assert b["mean"] == -np.inf and (b["nan"], b["inf"]) == (0, 1)


def test_memory_has_the_last_steps_of_rows_whatever_is_logged():
    model = nn.Linear(3, 1)
    with hookline.watch(model, every=5, history=2) as w:
        train(model, 20, lambda step: w.log(mine=step))
    assert w.steps == [10, 15] and w.scalars()["mine"].steps.tolist() == [18, 19]
    assert isinstance(w._table.history, History)


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"a": {"b": [1, object()]}}, r"config\['a'\]\['b'\]\[1\]: a object"),
        ({"a": {1: 2}}, r"config\['a'\]: a dict whose keys"),
        ({"a": float("inf")}, r"config\['a'\]: inf"),
        ([1], "config: expected a dict"),
        ({"x": torch.ones(1)}, r"config\['x'\]: a Tensor"),
    ],
)
def test_settings_that_are_no_json_are_refused(wrong, where):
    with pytest.raises(InvalidArgument, match=where):
        hookline.watch(nn.Linear(3, 1), config=wrong)


def test_settings_that_lead_back_to_themselves_are_refused():
    config = {}
    config["again"] = {"config": config}
    with pytest.raises(InvalidArgument, match="leads back to itself"):
        hookline.watch(nn.Linear(3, 1), config=config)


def test_settings_are_there_without_a_run():
    with hookline.watch(nn.Linear(3, 1), config={"lr": np.float64(0.5), "n": (1, 2)}) as w:
        assert w.config == {"lr": 0.5, "n": [1, 2]}
