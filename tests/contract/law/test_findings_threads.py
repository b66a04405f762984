"""Findings of the law's: calls of several threads, each of which numbers the nodes of the graph from zero."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest
import torch
from torch import nn

import hookline


class Layer(nn.Module):
    def forward(self, h, w):
        return nn.functional.linear(h, w).tanh()


class Parts(nn.Module):
    """Two outputs, the second made of the first."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        first = self.fc(x)
        return first, first[:, :2] * 3


def in_a_thread(fn, *args):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, fn, *args).result()


def made_many_nodes(count=500):
    x = torch.ones(1, requires_grad=True)
    for _ in range(count):
        x = x * 1


def test_nodes_of_the_main_thread_are_not_of_a_call_in_another():
    """`w` is made of `h` here, by nodes whose numbers are those of the call there."""
    model, fc = Layer(), nn.Linear(4, 4)
    h = fc(torch.randn(2, 4))
    w = (h.t() @ h).sin()
    with hookline.record(model, grads=True) as rec:
        in_a_thread(model, h, w).sum().backward()
    right = [h.detach().requires_grad_(), w.detach().requires_grad_()]
    model(*right).sum().backward()
    assert all(torch.equal(got, one.grad) for got, one in zip(rec[""].grad_input, right, strict=True))
    assert "several threads" in rec.audit()[""].why


@pytest.mark.parametrize("there", [True, False])
def test_what_another_thread_does_with_an_output_counts(there):
    """The call is in a thread that has made many nodes, and the loss is made in one that has not."""
    model, x = Parts(), torch.randn(2, 4, requires_grad=True)

    def call():
        made_many_nodes()
        return model(x)

    with hookline.record(model, "", grads=True) as rec:
        first, second = in_a_thread(call) if there else call()
        loss = lambda: (first * 5).sum() + second.sum()  # noqa: E731
        (loss() if there else in_a_thread(loss)).backward()
    assert [grad.unique().tolist() for grad in rec[""].grad_output] == [[5.0], [1.0]]


def test_calls_of_two_threads_with_one_input_have_a_gradient_each():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(2, 4, requires_grad=True)
    outputs, barrier = {}, threading.Barrier(2)

    def call(factor):
        barrier.wait()
        outputs[factor] = model(x) * factor

    with hookline.record(model, "", grads=True) as rec:
        threads = [threading.Thread(target=copy_context().run, args=(call, factor)) for factor in (2.0, 3.0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sum(output.sum() for output in outputs.values()).backward()
    calls = rec[""].calls
    factors = [call.grad_output.unique().item() for call in calls]
    assert sorted(factors) == [2.0, 3.0]
    for call, factor in zip(calls, factors, strict=True):
        assert torch.allclose(call.grad_input[0], x.grad * factor / 5)


def test_calls_of_the_main_thread_alone_get_no_view():
    model, seen = nn.Linear(4, 4), []
    model.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    with hookline.record(model, grads=True):
        x = torch.randn(2, 4, requires_grad=True) * 1
        model(x).sum().backward()
    assert seen[0] is x


def test_a_recording_beside_an_edit_sees_what_went_on_in_a_thread():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(2, 4, requires_grad=True)
    seen = []
    double = {("0", "grad_output"): lambda grad: grad * 2, ("1", "grad_input"): lambda grads: (grads[0] * 3,)}
    hook = hookline.register_backward_hook(model[0], lambda module, given, out: seen.append((given[0], out[0])))
    with hook, hookline.edit(model, double), hookline.record(model, grads=True) as rec:
        in_a_thread(model, x).sum().backward()
    ((given, out),) = seen
    assert torch.equal(rec["0"].grad_output, rec["1"].grad_input[0] * 2)
    assert torch.equal(given, rec["0"].grad_input[0]) and torch.equal(out, rec["0"].grad_output)
    assert torch.equal(rec["0"].grad_input[0], x.grad)


def test_a_long_chain_of_identities_in_a_thread_has_its_gradients():
    """Each of them hands a view on, and each view is one of a view."""
    model, x = nn.Sequential(*(nn.Identity() for _ in range(1500))), torch.ones(2, requires_grad=True)
    with hookline.record(model, grads=True) as rec:
        out = in_a_thread(model, x)
        (out.sum() + (out * 2).sum()).backward()
    assert rec["1499"].grad_output.tolist() == [3, 3] and x.grad.tolist() == [3, 3]
