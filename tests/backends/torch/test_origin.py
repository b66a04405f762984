"""The operator in which NaN or Inf is born: which it is, and that looking for it changes nothing."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hookline.backends.torch.origin import RepeatableCall, find_origin
from hookline.testing import untouched


def search(model, *args, **kwargs):
    return find_origin(model, RepeatableCall.of(args, kwargs))


def line_of(model, text):
    """ "file.py:12" of the line of a forward that has this text."""
    import inspect

    lines, first = inspect.getsourcelines(type(model).forward)
    return f"test_origin.py:{first + next(number for number, line in enumerate(lines) if text in line)}"


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(4, 4)
        self.tail = nn.Linear(4, 2)


class EntropyOfZero(Base):
    def forward(self, x):
        p = F.relu(self.fc(x) - 100)
        surprise = torch.log(p)
        return self.tail(p * surprise)


class DividedByZero(Base):
    def forward(self, x):
        h = F.relu(self.fc(x) - 100)
        return self.tail(h / h.sum(-1, keepdim=True))


class RootOfZero(Base):
    def forward(self, x):
        h = F.relu(self.fc(x) - 100)
        return torch.sqrt(h.sum(-1))


class BranchNotTaken(Base):
    def forward(self, x):
        h = F.relu(self.fc(x) - 100)
        return torch.where(h > 0, torch.log(h), torch.zeros_like(h))


class ResidualOverflow(Base):
    def forward(self, x):
        h = torch.tanh(self.fc(x)).half() * 40000
        return h.abs() + h.abs()


class Inside(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.body = nn.Linear(4, 4), nn.Sequential(nn.ReLU(), EntropyOfZero())

    def forward(self, x):
        return self.body(self.stem(x))


class Attention(Base):
    def forward(self, x, mask):
        scores = self.fc(x) @ x.transpose(-1, -2)
        scores = scores.masked_fill(mask == 0, float("-inf"))
        return scores.softmax(-1) @ x


@pytest.mark.parametrize(
    ("kind", "op", "text", "says"),
    [
        (EntropyOfZero, "aten.log", "torch.log", "aten.mul"),
        (DividedByZero, "aten.div", "h / h.sum", "finite values of 3x4, 3x1 give NaN"),
        (RootOfZero, "aten.div", "torch.sqrt", "in the backward"),
        (BranchNotTaken, "aten.div", "torch.where", "in the backward"),
        (ResidualOverflow, "aten.add", "h.abs() + h.abs()", "give Inf"),
    ],
)
def test_the_operator_its_line_and_what_happened(kind, op, text, says):
    model = kind()
    place = search(model, torch.rand(3, 4) + 1)
    assert (place.op, place.line) == (op, line_of(model, text))
    assert says in place.what


def test_the_module_is_the_innermost_one():
    assert search(Inside(), torch.rand(3, 4)).module == "body.1"


def test_masks_are_meant_and_a_row_without_anything_to_attend_to_is_not():
    x, mask = torch.randn(2, 5, 4), torch.ones(2, 5, 5).tril()
    assert search(Attention(), x, mask) is None
    mask[0, 2] = 0
    place = search(Attention(), x, mask=mask)
    assert place.op == "aten._softmax" and "Inf in them give NaN" in place.what


def test_what_came_in_was_not_born_here():
    model = Base()
    model.forward = lambda x: model.tail(model.fc(x))
    assert search(model, torch.full((3, 4), float("nan"))) is None
    model.fc.weight.data[0, 0] = float("nan")
    assert search(model, torch.rand(3, 4)) is None


def test_a_healthy_model_has_none():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2))
    assert search(model, torch.rand(6, 4)) is None


def test_memory_that_nobody_has_written_is_nothing_that_was_computed():
    class Copied(Base):
        def forward(self, x):
            return self.fc(torch.empty_like(x).copy_(x)) + x.new_empty(3, 4).fill_(1)

    torch.use_deterministic_algorithms(True)  # memory is filled with NaN
    try:
        assert torch.isnan(torch.empty(3, 4)).all()
        assert search(Copied(), torch.rand(3, 4)) is None
    finally:
        torch.use_deterministic_algorithms(False)


def test_random_numbers_are_those_of_the_call():
    class Rare(Base):
        def forward(self, x):
            return 1 / (torch.rand(()) - self.number) * self.fc(x)

    model = Rare()
    torch.manual_seed(7)
    state = torch.get_rng_state()
    model.number = torch.rand(())
    torch.set_rng_state(state)
    call = RepeatableCall.of((torch.rand(3, 4),), {})
    torch.rand(100)
    torch.set_rng_state(state)
    call = call._replace(random=state)
    assert find_origin(model, call).op in ("aten.reciprocal", "aten.div")


def test_nothing_of_the_model_or_of_the_random_numbers_changes():
    model = nn.Sequential(EntropyOfZero(), nn.BatchNorm1d(2), nn.Dropout(0.5))
    x = torch.rand(3, 4, requires_grad=True)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    with untouched(model):
        assert search(model, x * 1) is not None
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert x.grad is None and all(parameter.grad is None for parameter in model.parameters())


def test_inputs_that_were_written_to_can_not_be_used_again():
    x = torch.rand(3, 4)
    call = RepeatableCall.of((x,), {})
    x.add_(1)
    assert find_origin(DividedByZero(), call) is None


def test_a_model_that_can_not_be_copied_or_run_again_is_left_alone():
    class Once(Base):
        def __deepcopy__(self, memo):
            raise RuntimeError("there is one of me")

    assert search(Once(), torch.rand(3, 4)) is None


def test_what_a_model_prints_is_not_printed_again(capsys):
    class Talking(EntropyOfZero):
        def forward(self, x):
            print("forward")
            return super().forward(x)

    assert search(Talking(), torch.rand(3, 4)) is not None
    print("after")
    assert capsys.readouterr().out == "after\n"
