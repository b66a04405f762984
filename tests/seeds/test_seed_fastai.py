"""Seed 002, fastai's "Model hooks", as far as hook_outputs; and what hookline promises beyond it."""

import json
import os

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hookline
from hookline import Hook, Hooks, hook_output, hook_outputs
from hookline.testing import untouched

ON_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="the seed's example needs a GPU")


def example_forward_hook(m, i, o):
    print(m, i, o)


@pytest.fixture
def x():
    return torch.randn(4, 5)


@pytest.fixture
def layers():
    return [nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 3)]


# What are hooks?


def test_a_forward_hook_prints_layer_input_and_output(x, capsys):
    tst_model = nn.Linear(5, 3)
    hook = hookline.register_forward_hook(tst_model, example_forward_hook)
    y = tst_model(x)
    hook.remove()
    tst_model(x)
    assert capsys.readouterr().out == f"{tst_model} ({x},) {y}\n"


def test_a_backward_hook_gets_the_gradients_of_input_and_output(x):
    tst_model = nn.Linear(5, 3)
    seen = []
    hook = hookline.register_backward_hook(tst_model, lambda m, gi, go: seen.append((m, gi, go)))
    y = tst_model(x)
    y.pow(2).mean().backward()
    hook.remove()
    # The seed shows torch's old hook, whose grad_input lists bias, input and weight in the order of
    # the kernel. Here it is along the arguments, and x needs no gradient.
    ((module, grad_input, grad_output),) = seen
    assert module is tst_model and grad_input == (None,) and isinstance(grad_output, tuple)
    output = y.detach().requires_grad_()
    (wanted,) = torch.autograd.grad(output.pow(2).mean(), output)
    assert len(grad_output) == 1 and torch.equal(grad_output[0], wanted)


def test_a_backward_hook_gets_the_inputs_gradient_where_there_is_one(x):
    tst_model = nn.Linear(5, 3)
    x.requires_grad_()
    seen = []
    with hookline.register_backward_hook(tst_model, lambda m, gi, go: seen.append((gi, go))):
        tst_model(x).pow(2).mean().backward()
    (((grad_input,), (grad_output,)),) = seen
    assert torch.equal(grad_input, x.grad)
    assert torch.equal(grad_input, grad_output @ tst_model.weight)


# Hook


def test_hook_stores_what_its_function_returns(x):
    tst_model = nn.Linear(5, 3)
    hook = Hook(tst_model, lambda m, i, o: o)
    y = tst_model(x)
    assert torch.equal(hook.stored, y)


def test_hook_starts_empty_and_stores_the_last_call():
    tst_model = nn.Linear(5, 3)
    hook = Hook(tst_model, lambda m, i, o: o)
    assert hook.stored is None and hook.removed is False
    for _ in range(2):
        y = tst_model(torch.randn(1, 5))
    assert torch.equal(hook.stored, y)


def test_hook_fn_applies_the_function_by_hand(x):
    tst_model = nn.Linear(5, 3)
    hook = Hook(tst_model, lambda m, i, o: (m, i[0].sum(), o))
    y = torch.ones(4, 3, requires_grad=True)
    assert hook.hook_fn(tst_model, (x,), y) is None
    module, total, output = hook.stored
    assert module is tst_model
    assert torch.equal(total, x.sum()) and torch.equal(output, y)
    assert not output.requires_grad


def test_hook_hands_over_input_and_output_detached(x, capsys):
    tst_model = nn.Linear(5, 10)
    y = tst_model(x)
    hook = Hook(tst_model, example_forward_hook)
    tst_model(x)
    assert capsys.readouterr().out == f"{tst_model} ({x},) {y.detach()}\n"
    hook.remove()
    tst_model(x)
    assert capsys.readouterr().out == ""


def test_hook_is_a_context_manager(x, capsys):
    tst_model = nn.Linear(5, 10)
    y = tst_model(x)
    with untouched(tst_model):
        with Hook(tst_model, example_forward_hook) as h:
            assert isinstance(h, Hook)
            tst_model(x)
            assert capsys.readouterr().out == f"{tst_model} ({x},) {y.detach()}\n"
        tst_model(x)
        assert capsys.readouterr().out == ""
    assert h.removed


def test_hook_comes_off_when_the_block_is_left_by_an_error():
    tst_model = nn.Linear(5, 10)
    with untouched(tst_model), pytest.raises(KeyboardInterrupt), Hook(tst_model, lambda m, i, o: o) as h:
        raise KeyboardInterrupt
    assert h.removed


def test_removing_twice_does_nothing(x):
    tst_model = nn.Linear(5, 10)
    hook, other = Hook(tst_model, lambda m, i, o: 1), Hook(tst_model, lambda m, i, o: 2)
    hook.remove()
    hook.remove()
    tst_model(x)
    assert (hook.stored, other.stored) == (None, 2)


@pytest.mark.parametrize("is_forward", [True, False], ids=["forward", "backward"])
def test_the_functions_result_does_not_replace_anything(x, is_forward):
    tst_model = nn.Linear(5, 3)
    y = tst_model(x)
    y.sum().backward()
    grad = tst_model.weight.grad.clone()
    tst_model.zero_grad()
    with Hook(tst_model, lambda m, i, o: torch.zeros(7), is_forward=is_forward) as hook:
        again = tst_model(x)
        again.sum().backward()
    assert torch.equal(again, y) and torch.equal(tst_model.weight.grad, grad)
    assert hook.stored.tolist() == [0] * 7


def test_a_backward_hook_object_gets_gradients(x):
    tst_model = nn.Linear(5, 3)
    x.requires_grad_()
    with Hook(tst_model, lambda m, gi, go: (gi, go), is_forward=False) as hook:
        y = tst_model(x)
        y.sum().backward()
    ((grad_input,), (grad_output,)) = hook.stored
    assert torch.equal(grad_input, x.grad) and torch.equal(grad_output, torch.ones(4, 3))


def test_structures_are_detached_leaf_by_leaf():
    class Pair(nn.Module):
        def forward(self, x, *, factor):
            return {"twice": x * factor, "rest": [x + 1, None, "text"]}

    model = Pair()
    x = torch.ones(2, requires_grad=True)
    with Hook(model, lambda m, i, o: (i, o)) as hook:
        model(x, factor=2)
    (given,), output = hook.stored
    assert not given.requires_grad and given.tolist() == [1, 1]
    assert not output["twice"].requires_grad and output["twice"].tolist() == [2, 2]
    assert not output["rest"][0].requires_grad and output["rest"][1:] == [None, "text"]


# hook_output


def test_hook_output_stores_the_output_detached(x):
    tst_model = nn.Linear(5, 10)
    with hook_output(tst_model) as h:
        y = tst_model(x)
        assert torch.equal(y, h.stored)
        assert not h.stored.requires_grad


def test_hook_output_with_grad_stores_the_gradients_of_the_output(x):
    tst_model = nn.Linear(5, 10)
    with hook_output(tst_model, grad=True) as h:
        y = tst_model(x)
        loss = y.pow(2).mean()
        loss.backward()
        assert isinstance(h.stored, tuple) and len(h.stored) == 1
        torch.testing.assert_close(2 * y.detach() / y.numel(), h.stored[0])


@pytest.mark.parametrize("detach", [True, False])
def test_hook_output_with_detach_false_keeps_the_history(x, detach):
    tst_model = nn.Linear(5, 10)
    with hook_output(tst_model, detach=detach) as h:
        tst_model(x)
    assert h.stored.requires_grad is not detach
    assert (h.stored.grad_fn is None) is detach


def test_history_that_was_kept_can_be_run_backwards(x):
    tst_model = nn.Linear(5, 10)
    with hook_output(tst_model, detach=False) as h:
        tst_model(x)
    h.stored.sum().backward()
    assert torch.equal(tst_model.bias.grad, torch.full((10,), 4.0))


@pytest.mark.parametrize("cpu", [True, False])
def test_cpu_moves_what_the_function_gets(x, cpu, monkeypatch):
    moved = []
    to_cpu = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: moved.append(tensor.shape) or to_cpu(tensor))
    tst_model = nn.Linear(5, 10)
    with hook_output(tst_model, cpu=cpu):
        tst_model(x)
    assert moved == ([(4, 5), (4, 10)] if cpu else [])


@ON_CUDA
def test_hook_output_with_cpu_stores_on_the_cpu(x):
    tst_model = nn.Linear(5, 10)
    with hook_output(tst_model, cpu=True) as h:
        tst_model.cuda()(x.cuda())
    assert h.stored.device == torch.device("cpu")


@ON_CUDA
def test_hook_outputs_with_cpu_store_on_the_cpu(x, layers):
    tst_model = nn.Sequential(*layers)
    with hook_outputs(tst_model, cpu=True) as h:
        tst_model.cuda()(x.cuda())
    assert [s.device for s in h.stored] == [torch.device("cpu")] * 3


# Hooks


def test_hooks_store_one_result_per_module(x, layers):
    tst_model = nn.Sequential(*layers)
    hooks = Hooks(tst_model, lambda m, i, o: o)
    y = tst_model(x)
    first, second, third = list(hooks.stored)
    hooks.remove()
    assert torch.equal(first, layers[0](x))
    assert torch.equal(second, F.relu(layers[0](x)))
    assert torch.equal(third, y)
    assert hookline.installed(tst_model) == []


def test_hooks_are_a_context_manager(x, layers):
    tst_model = nn.Sequential(*layers)
    with untouched(tst_model), Hooks(layers, lambda m, i, o: o) as h:
        assert isinstance(h, Hooks)
        y = tst_model(x)
        # Called again by itself, a layer stores again: the same value, as in the seed.
        assert torch.equal(h.stored[0], layers[0](x))
        assert torch.equal(h.stored[1], F.relu(layers[0](x)))
        assert torch.equal(h.stored[2], y)
    assert all(hook.removed for hook in h)


def test_hooks_are_a_sequence_of_hooks(layers):
    with Hooks(layers, lambda m, i, o: o) as hooks:
        assert len(hooks) == 3
        assert [hook.module for hook in hooks] == layers
        assert hooks[2].module is layers[2]


@pytest.mark.parametrize(
    ("detach", "cpu", "is_forward"), [(True, False, True), (False, False, True), (True, True, False)]
)
def test_hooks_pass_their_options_on(layers, detach, cpu, is_forward):
    with Hooks(layers, lambda m, i, o: o, is_forward, detach, cpu) as hooks:
        assert [(h.is_forward, h.detach, h.cpu) for h in hooks] == [(is_forward, detach, cpu)] * 3


@pytest.mark.parametrize("wrong", ["text", None, 3, nn.ReLU, torch.ones(1)], ids=repr)
@pytest.mark.parametrize("position", [0, 1, 3])
def test_hooks_place_all_or_none(layers, wrong, position):
    tst_model = nn.Sequential(*layers)
    with untouched(tst_model):
        modules = [*layers[:position], wrong, *layers[position:]]
        with pytest.raises(hookline.InvalidArgument, match="expected a model"):
            Hooks(modules, lambda m, i, o: o)


def test_hooks_place_none_when_listing_the_modules_fails(layers):
    tst_model = nn.Sequential(*layers)
    with untouched(tst_model):

        def modules():
            yield layers[0]
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Hooks(modules(), lambda m, i, o: o)


@pytest.mark.parametrize("make", [Hook, lambda m, f: Hooks([m], f)], ids=["Hook", "Hooks"])
@pytest.mark.parametrize("function", [None, "text", lambda m, i: i], ids=["None", "text", "two arguments"])
def test_a_function_that_cannot_be_called_with_three_arguments_is_refused(make, function):
    tst_model = nn.Linear(5, 3)
    with untouched(tst_model), pytest.raises(hookline.InvalidArgument):
        make(tst_model, function)


# hook_outputs


def test_hook_outputs_store_the_outputs_detached(x, layers):
    tst_model = nn.Sequential(*layers)
    with hook_outputs(layers) as h:
        y = tst_model(x)
        assert torch.equal(h.stored[0], layers[0](x))
        assert torch.equal(h.stored[1], F.relu(layers[0](x)))
        assert torch.equal(h.stored[2], y)
        for s in h.stored:
            assert not s.requires_grad


def test_hook_outputs_with_grad_store_the_gradients(x, layers):
    tst_model = nn.Sequential(*layers)
    with hook_outputs(layers, grad=True) as h:
        y = tst_model(x)
        loss = y.pow(2).mean()
        loss.backward()
        stored = [s[0] for s in h.stored]
    with torch.no_grad():
        g = 2 * y / y.numel()
        torch.testing.assert_close(g, stored[2])
        g = g @ layers[2].weight.data
        torch.testing.assert_close(g, stored[1])
        g = g * (layers[0](x) > 0).float()
        torch.testing.assert_close(g, stored[0])


def test_hook_outputs_with_detach_false_keep_the_history(x, layers):
    with hook_outputs(layers, detach=False) as h:
        nn.Sequential(*layers)(x)
    assert [s.requires_grad for s in h.stored] == [True] * 3


# Beyond the seed: an operation in place behind the module (fastai raises or stores what comes after)


def twins():
    """Two nets with the same weights: with and without in-place ReLU."""
    plain = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 8), nn.BatchNorm1d(8), nn.ReLU())
    in_place = nn.Sequential(*[nn.ReLU(inplace=True) if isinstance(m, nn.ReLU) else m for m in plain])
    return plain, in_place.eval()


FUNCTIONS = {
    "output": lambda m, i, o: o,
    "view": lambda m, i, o: o.t()[1:],
    "nested": lambda m, i, o: {"in": [i], "out": (o, o[0])},
}


def flat(tree):
    if isinstance(tree, torch.Tensor):
        return [tree]
    values = tree.values() if isinstance(tree, dict) else tree
    return [leaf for value in values for leaf in flat(value)]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_in_place_relu_does_not_falsify_what_is_stored(x, function):
    plain, in_place = twins()
    with Hooks([plain[0], plain[2], plain[3]], FUNCTIONS[function]) as expected:
        plain(x)
    with Hooks([in_place[0], in_place[2], in_place[3]], FUNCTIONS[function]) as hooks:
        in_place(x)
    for found, wanted in zip(flat(hooks.stored), flat(expected.stored), strict=True):
        assert torch.equal(found, wanted)
    assert any((tensor < 0).any() for tensor in flat(expected.stored))  # a ReLU would have shown


def test_an_in_place_relu_neither_raises_nor_falsifies_in_the_backward(x):
    plain, in_place = twins()
    x.requires_grad_()
    with Hooks(plain, lambda m, gi, go: (gi, go), is_forward=False) as expected:
        plain(x).pow(2).sum().backward()
    (grad, x.grad) = (x.grad, None)
    with Hooks(in_place, lambda m, gi, go: (gi, go), is_forward=False) as hooks:
        in_place(x).pow(2).sum().backward()
    assert torch.equal(x.grad, grad)
    assert len(hooks) == 5
    for found, wanted in zip(hooks.stored, expected.stored, strict=True):
        assert [g.shape for g in flat(found)] == [g.shape for g in flat(wanted)]
        for one, other in zip(flat(found), flat(wanted), strict=True):
            assert torch.equal(one, other)


def test_an_in_place_relu_behind_a_hook_that_keeps_history_does_not_raise(x):
    plain, in_place = twins()
    plain(x).sum().backward()
    wanted = plain[0].weight.grad.clone()
    plain.zero_grad()
    with hook_outputs(in_place, detach=False):
        in_place(x).sum().backward()
    assert torch.equal(in_place[0].weight.grad, wanted)


# gather: the results of all processes


class Measured(nn.Module):
    def forward(self, x):
        return {"rows": x * 10, "scalar": x.sum(), "count": len(x)}


def gathering(rank, folder):
    """Runs in each of two processes; writes what it stored to a file of its own."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    try:
        model = Measured()
        x = torch.full((1, 2), float(rank + 1))
        with Hook(model, lambda m, i, o: (i, o), gather=True) as gathered:
            model(x)
        with Hook(model, lambda m, i, o: (i, o), gather=False) as own:
            model(x)
        linear = nn.Linear(2, 1, bias=False)
        with Hook(linear, lambda m, gi, go: go, is_forward=False, gather=True) as grads:
            (linear(x) * (rank + 1)).sum().backward()
        (given,), output = gathered.stored
        (own_given,), own_output = own.stored
        found = {
            "input": given.tolist(),
            "rows": output["rows"].tolist(),
            "scalar": output["scalar"].tolist(),
            "count": output["count"],
            "own input": own_given.tolist(),
            "own rows": own_output["rows"].tolist(),
            "gradient": grads.stored[0].tolist(),
        }
        with open(f"{folder}/{rank}.json", "w") as file:  # noqa: PTH123
            json.dump(found, file)
    finally:
        torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    if not torch.distributed.is_available():
        pytest.skip("this torch is built without distributed")
    folder = tmp_path_factory.mktemp("gather")
    torch.multiprocessing.spawn(gathering, args=(str(folder),), nprocs=2)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def test_gather_gives_every_process_the_rows_of_all(both):
    for found in both:
        assert found["input"] == [[1, 1], [2, 2]]
        assert found["rows"] == [[10, 10], [20, 20]]
        assert found["count"] == 1


def test_gather_of_a_scalar_is_the_mean_over_the_processes(both):
    # As fastai's maybe_gather has it: a scalar stays a scalar, which averages losses and metrics.
    assert [found["scalar"] for found in both] == [3.0, 3.0]


def test_gather_works_on_gradients(both):
    assert [found["gradient"] for found in both] == [[[1], [2]]] * 2


def test_without_gather_each_process_stores_its_own(both):
    assert [found["own input"] for found in both] == [[[1, 1]], [[2, 2]]]
    assert [found["own rows"] for found in both] == [[[10, 10]], [[20, 20]]]


def test_gather_in_a_single_process_changes_nothing(x):
    tst_model = nn.Linear(5, 3)
    with Hook(tst_model, lambda m, i, o: o, gather=True) as h:
        y = tst_model(x)
    assert torch.equal(h.stored, y)
