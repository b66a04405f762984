"""What random networks found: one tensor at several places, of which one is written to; and what comes early."""

import pytest
import torch
from torch import nn

import hookline


def firsts(grads):
    """Of each gradient its first number, which all others are equal to; None where there is none."""
    assert all(grad is None or bool((grad == grad[0]).all()) for grad in grads)
    return tuple(None if grad is None else grad[0].item() for grad in grads)


class Made(nn.Module):
    """A network of one function."""

    def __init__(self, forward, **parts):
        super().__init__()
        self._forward = forward
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *args):
        return self._forward(self, *args)


def recorded(model, *args, loss=lambda out: out.sum()):
    with hookline.record(model, inputs=True, grads=True) as rec:
        loss(model(*args)).backward()
    return rec


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_tensor_that_leaves_at_several_places_and_is_written_to_at_one(place):
    def forward(self, x):
        outs = self.part(x)
        outs[place].mul_(0.5)
        self.alive = outs
        return outs[place]

    model = Made(forward, part=Made(lambda self, x: (x * 0.5,) * 3))
    rec = recorded(model, torch.ones(2, requires_grad=True))
    call = rec["part"].calls[0]
    wanted = [0.5 if number == place else None for number in range(3)]
    assert firsts(call.grad_output) == tuple(wanted)
    assert firsts(call.grad_input) == (0.25,)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("quiet", [False, True], ids=["by autograd", "without autograd"])
def test_one_tensor_that_enters_at_several_places_and_is_written_to_at_one(place, quiet):
    def forward(self, *given):
        with torch.set_grad_enabled(not quiet):
            given[place].mul_(0.5)
        return given[place] * 3

    model = Made(forward)
    x = torch.ones(2, requires_grad=True) * 1
    rec = recorded(model, x, x, x)
    share = 3.0 if quiet else 1.5
    wanted = [share if number == place else None for number in range(3)]
    assert firsts(rec[""].calls[0].grad_input) == tuple(wanted)


def test_a_leaf_that_enters_at_several_places_is_written_to_without_autograd_and_its_gradients_replaced():
    def forward(self, a, b, c):
        with torch.no_grad():
            a.mul_(0.5)
        return a * 1, c * 2

    model, x = Made(forward), torch.ones(2, requires_grad=True)

    def tenfold(module, given, out):
        return tuple(None if grad is None else grad * 10 for grad in given)

    with hookline.register_backward_hook(model, tenfold):
        rec = recorded(model, x, x, x, loss=lambda out: out[0].sum() + 2 * out[1].sum())
    assert firsts(rec[""].calls[0].grad_input) == (10, None, 40)
    assert firsts([x.grad]) == (50,)


def test_the_container_of_a_part_whose_gradients_are_replaced_has_its_own():
    model = Made(lambda self, x: self.part(x)[:0:-1], part=Made(lambda self, x: (x * 0.5,) * 3))
    x = torch.ones(2, requires_grad=True)

    def tenfold(module, out):
        return tuple(None if grad is None else grad * 10 for grad in out)

    with hookline.register_backward_pre_hook(model, tenfold, "part"):
        rec = recorded(model, x, loss=lambda out: out[0].sum() + 2 * out[1].sum())
    assert firsts(rec[""].calls[0].grad_output) == (1, 2)
    assert firsts(rec["part"].calls[0].grad_output) == (None, 20, 10)
    assert firsts([x.grad]) == (15,)


def test_the_gradient_of_an_input_may_come_before_that_of_the_output():
    def forward(self, a, b):
        out = a * 2
        self.h = b * 3
        return out

    model, x = Made(forward), torch.ones(2, requires_grad=True)
    rec = recorded(model, x, x, loss=lambda out: out.sum() + (model.h * 5).sum())
    assert firsts(rec[""].calls[0].grad_input) == (2, 15)


def test_a_hook_of_a_leaf_waits_for_the_gradients_of_all_outputs():
    class Returning(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(2, 2))

        def forward(self, x):
            return x, self.w.t()

    told = []
    model, x = Returning(), torch.ones(2, requires_grad=True)
    with hookline.register_backward_hook(model, lambda module, given, out: told.append((given, out))):
        first, second = model(x)
        (first * 2).sum().add((second * 3).sum()).backward()
    ((given, out),) = told
    assert firsts(given) == (2,) and [grad.flatten()[0].item() for grad in out] == [2, 3]


@pytest.mark.parametrize("by_name", [False, True])
def test_a_module_that_is_called_with_what_it_returned_has_two_calls(by_name):
    class Handing(nn.Module):
        def forward(self, x):
            return x, x, x

    def forward(self, x):
        for _ in range(2):
            x = (self.part(x=x) if by_name else self.part(x))[2]
        return x

    model = Made(lambda self, x: forward(self, x * 0.5), part=Handing())
    told = []
    with hookline.register_backward_pre_hook(model, lambda module, out: told.append(firsts(out)), "part"):
        model(torch.ones(2, requires_grad=True)).sum().backward()
    assert told == [(None, None, 1), (None, None, 1)]


@pytest.mark.parametrize("also", [False, True])
@pytest.mark.parametrize("is_view", [False, True])
def test_an_input_whose_part_is_written_to_and_that_is_returned_has_its_gradient(is_view, also):
    """A view that left as it came was not looked at after the writing, and its gradient was lost."""

    def forward(self, x):
        x[:1].mul_(0.5)
        return (x * 2, x) if also else x

    x = torch.ones(2, requires_grad=True)
    inner = x * 1
    with hookline.record(model := Made(forward), grads=True) as rec:
        out = model(inner.view_as(inner) if is_view else inner)
        (sum(one.sum() for one in out) if also else out.sum()).backward()
    assert torch.equal(rec[""].grad_input[0], x.grad)


def test_one_tensor_at_two_places_that_is_written_to_is_told_in_the_audit():
    """Which of the places a part of it was taken from, nothing tells."""

    def forward(self, one, two):
        part = two[:1]
        part.mul_(0.5)
        return part * 2

    inner = torch.ones(2, requires_grad=True) * 1
    with hookline.record(model := Made(forward), grads=True) as rec:
        model(inner, inner).sum().backward()
    assert "may be told at another" in rec.audit()[""].why


@pytest.mark.parametrize("taken", [lambda x: x[:1], lambda x: x.view_as(x)])
def test_what_was_handed_on_and_is_written_to_is_told_in_the_audit(taken):
    """Whether it was written to by what left or by what the caller has all the same, nothing tells."""

    def forward(self, x):
        self.part(x)
        of_the_callers = taken(x)
        of_the_callers.mul_(0.5)
        return of_the_callers * 2

    with hookline.record(model := Made(forward, part=nn.Identity()), grads=True) as rec:
        model(torch.ones(2, requires_grad=True) * 1).sum().backward()
    assert "was written to in place later" in rec.audit()["part"].why
