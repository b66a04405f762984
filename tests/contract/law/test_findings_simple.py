"""Calls that are told by hooks on one or two nodes: where several meet at a node, or a second backward comes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import hookline


class Two(nn.Module):
    """A container that returns the very tensor of its last part."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 3).double(), nn.Tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x))


def gradient(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(model(x).sum(), x)
    return grad


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(4, 3).double()


def test_edits_of_a_part_and_of_its_container_at_one_node_compose(x):
    model = Two()
    plain = gradient(model, x)
    order = []

    def edit(name, factor):
        def change(grad):
            order.append(name)
            return grad * factor

        return change

    with hookline.edit(model, {"last:grad_output": edit("part", 4.0), ":grad_output": edit("container", -2.0)}):
        edited = gradient(model, x)
    assert order == ["container", "part"]  # the gradient comes from outside: through the container first
    torch.testing.assert_close(edited, plain * -8.0, rtol=0, atol=0)
    assert torch.equal(gradient(model, x), plain)


def test_two_edits_of_the_output_of_one_call_apply_one_after_the_other(x):
    model = Two()
    plain = gradient(model, x)
    seen = []
    with (
        hookline.edit(model, {"last:grad_output": lambda grad: grad * 2}),
        hookline.edit(model, {"last:grad_output": lambda grad: seen.append(grad.clone()) or grad * 4}),
        hookline.record(model, grads=True) as rec,
    ):
        edited = gradient(model, x)
    torch.testing.assert_close(edited, plain * 8, rtol=0, atol=0)
    assert torch.equal(seen[0], torch.full_like(seen[0], 2.0))
    # What really went on: the gradient that left the edits.
    torch.testing.assert_close(rec["last"].grad_output, torch.full((4, 3), 8.0).double(), rtol=0, atol=0)


def test_a_gradient_that_is_asked_for_at_a_hooked_output_is_the_one_from_outside(x):
    """As with torch's own hooks: what is asked for comes to the output; the edit is for what goes on."""
    model, theirs = Two(), Two()
    theirs.load_state_dict(model.state_dict())
    theirs.first.register_full_backward_pre_hook(lambda module, grads: (grads[0] * 4,))
    with (
        hookline.edit(model, {"first:grad_output": lambda grad: grad * 4}),
        hookline.record(model, grads=True) as rec,
    ):
        asked = []
        for one in (model, theirs):
            leaf = x.clone().requires_grad_()
            output = one.first(leaf)
            loss = one.last(output).sum()
            asked.append(torch.autograd.grad(loss, [output, leaf]))
    for ours, torchs in zip(*asked, strict=True):
        torch.testing.assert_close(ours, torchs, rtol=0, atol=0)
    torch.testing.assert_close(rec["last"].grad_input[0], asked[0][0], rtol=0, atol=0)
    torch.testing.assert_close(rec["first"].grad_output, asked[0][0] * 4, rtol=0, atol=0)


def test_second_derivatives_are_as_without_hooks_and_told_of_their_own_calls(x):
    torch.manual_seed(1)
    model = Two()

    def penalty():
        leaf = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(model(leaf).sum(), leaf, create_graph=True)
        model.zero_grad()
        grad.square().sum().backward()
        return leaf.grad, model.first.weight.grad

    plain = penalty()
    with hookline.record(model, grads=True) as rec:
        recorded = penalty()
    assert all(torch.equal(a, b) for a, b in zip(plain, recorded, strict=True))
    assert [len(rec[name].calls) for name in ("first", "last", "")] == [1, 1, 1]
    told = []
    with hookline.register_backward_hook(model, lambda module, given, out: told.append((given, out)), "last"):
        hooked = penalty()
    assert all(torch.equal(a, b) for a, b in zip(plain, hooked, strict=True))
    assert told and all(out[0] is not None for _, out in told)


def test_edits_of_a_simple_call_hold_in_second_derivatives(x):
    """Twice the gradient is twice the penalty's root, so four times the penalty."""
    torch.manual_seed(1)
    model = Two()

    def penalty():
        leaf = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(model(leaf).sum(), leaf, create_graph=True)
        return grad.square().sum()

    plain = penalty()
    with hookline.edit(model, {"last:grad_output": lambda grad: grad * 2}):
        edited = penalty()
    torch.testing.assert_close(edited, plain * 4)
