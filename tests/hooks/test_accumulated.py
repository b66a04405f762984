"""register_post_accumulate_grad_hook: which parameters `where` means, when it runs, and what is left of it."""

import copy
import gc
import pickle
import re
import threading
import weakref

import pytest
import torch
from torch import nn

import hookline
from hookline import register_post_accumulate_grad_hook as register
from hookline import where
from hookline.testing import untouched

X = torch.ones(3, 2)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
        self.fc, self.act, self.norm = nn.Linear(2, 2), nn.ReLU(), nn.LayerNorm(2)

    def forward(self, x):
        return self.norm(self.act(self.fc(x * self.scale)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))
        self.block, self.head = Block(), nn.Linear(2, 2)
        self.register_buffer("offset", torch.zeros(2))

    def forward(self, x):
        return (self.head(self.block(x)) + self.offset) * self.temperature


BLOCK = ["block.scale", "block.fc.weight", "block.fc.bias", "block.norm.weight", "block.norm.bias"]
HEAD = ["head.weight", "head.bias"]
EVERY = ["temperature", *BLOCK, *HEAD]


def heard(model, where):
    """The names of the parameters whose hooks ran in one backward, in order of definition."""
    seen, names = [], {id(parameter): name for name, parameter in model.named_parameters()}
    with register(model, lambda parameter: seen.append(names[id(parameter)]), where):
        model(X).sum().backward()
    assert len(seen) == len(set(seen))
    return [name for name in names.values() if name in seen]


# Which ones


MEANT = {
    "None": (None, EVERY),
    "everything": ("**", EVERY),
    "a parameter": ("block.fc.weight", ["block.fc.weight"]),
    "one of the model's own": ("temperature", ["temperature"]),
    "a module": ("block", BLOCK),
    "the model": ("", EVERY),
    "weights": ("**.weight", [name for name in EVERY if name.endswith("weight")]),
    "a glob of both kinds": ("block.*", BLOCK),
    "a glob of modules": ("*.fc", ["block.fc.weight", "block.fc.bias"]),
    "a regex of parameters": (re.compile(r"bias$"), [name for name in EVERY if name.endswith("bias")]),
    "a regex of modules": (re.compile(r"^head$"), HEAD),
    "a type": (nn.Linear, ["block.fc.weight", "block.fc.bias", *HEAD]),
    "types": ((nn.LayerNorm, nn.Linear), [name for name in EVERY if "." in name and name != "block.scale"]),
    "the type of parameters": (nn.Parameter, EVERY),
    "a predicate": (lambda name, parameter: parameter.ndim == 2, ["block.fc.weight", "head.weight"]),
    "a list": (["temperature", "head"], ["temperature", *HEAD]),
    "weights of a type": (where(nn.Linear) & "**.weight", ["block.fc.weight", "head.weight"]),
    "all but biases": (~where("**.bias"), [name for name in EVERY if not name.endswith("bias")]),
    "all but a module": (~where("block"), ["temperature", *HEAD]),
    "a type, but not in a module": (where(nn.Linear) & ~where("head"), ["block.fc.weight", "block.fc.bias"]),
}


@pytest.mark.parametrize(("where", "wanted"), MEANT.values(), ids=MEANT)
def test_what_where_means(where, wanted):
    model = Net()
    with untouched(model):
        assert heard(model, where) == wanted


def test_a_module_or_a_parameter_itself():
    model = Net()
    assert heard(model, model.block.fc) == ["block.fc.weight", "block.fc.bias"]
    assert heard(model, model.head.bias) == ["head.bias"]
    assert heard(model, [model.head, model.temperature]) == ["temperature", *HEAD]
    with pytest.raises(hookline.NoSuchSite, match="not part of this model"):
        heard(model, nn.Linear(1, 1))
    with pytest.raises(hookline.InvalidArgument):
        heard(model, nn.Parameter(torch.ones(1)))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("block.fc.weigth", r"Did you mean 'block\.fc\.weight'"),
        ("haed", "Did you mean 'head'"),
        ("offset", "no site matches"),
        ("block.act", "'block.act' is a module without parameters"),
        ("*.gamma", "no site matches"),
        (nn.ReLU, "no site matches"),
        (lambda name, parameter: False, "no site matches"),
        (["head", "nothing"], "'nothing'"),
    ],
    ids=["parameter", "module", "buffer", "module without", "glob", "type", "predicate", "list"],
)
def test_what_is_not_there_is_told(asked, message):
    model = Net()
    with untouched(model), pytest.raises(hookline.NoSuchSite, match=message):
        register(model, lambda parameter: None, asked)
    assert hookline.installed(model) == []


def test_a_tied_parameter_has_one_hook_under_its_first_name():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.out = nn.Embedding(5, 2), nn.Linear(2, 5, bias=False)
            self.out.weight = self.embedding.weight

        def forward(self, x):
            return self.out(self.embedding(x))

    model, seen = Tied(), []
    for asked, site in (("**", "embedding.weight"), ("out", "out.weight"), (model.out.weight, "embedding.weight")):
        with register(model, lambda parameter: seen.append(parameter.grad.clone()), asked):
            assert [label.site for label in hookline.installed(model)] == [site]
            model(torch.tensor([1])).sum().backward()
        assert len(seen) == 1 and torch.equal(seen.pop(), model.out.weight.grad)  # the sum of both uses
        model.zero_grad()


def test_shared_modules_and_cycles():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model.append(model[0])
    vars(model[1])["_modules"]["up"] = model  # a module that holds its parent
    seen = []
    with register(model, lambda parameter: seen.append(tuple(parameter.shape))):
        model[2](model[0](X)).sum().backward()
    assert sorted(seen) == [(2,), (2, 2)]


def test_frozen_parameters_have_no_hook():
    model = Net()
    model.block.requires_grad_(False)
    assert heard(model, "**") == ["temperature", *HEAD]
    with pytest.raises(hookline.InvalidArgument, match=r"5 parameters.*requires_grad_\(True\)"):
        register(model, lambda parameter: None, "block")
    with pytest.raises(hookline.InvalidArgument, match="the model has 0 parameters"):
        register(nn.ReLU(), lambda parameter: None)


def test_a_lazy_parameter_is_told_and_nothing_is_attached():
    model = nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(3))
    with untouched(model), pytest.raises(hookline.InvalidArgument, match=r"'1\.\w+' is lazy.*Call the model once"):
        register(model, lambda parameter: None)
    assert hookline.installed(model) == []
    model(X)
    assert heard(model, "1") == ["1.weight", "1.bias"]


# When, and what it may do


def test_it_runs_once_a_backward_when_the_gradient_is_there():
    model, seen = nn.Linear(2, 1, bias=False), []
    with register(model, lambda parameter: seen.append((parameter is model.weight, parameter.grad.tolist()))):
        for _ in range(2):
            (model(X).sum() + model(X).sum()).backward()
    model(X).sum().backward()
    assert seen == [(True, [[6, 6]]), (True, [[12, 12]])]


def test_an_optimizer_in_the_backward_is_the_one_after_it():
    torch.manual_seed(0)
    plain = Net()
    model = copy.deepcopy(plain)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    with register(model, step):
        for _ in range(3):
            plain(X).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            model(X).sum().backward()
            assert all(parameter.grad is None for parameter in model.parameters())
    for one, other in zip(plain.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_an_error_names_the_parameter():
    model = Net()
    with register(model, lambda parameter: 1 / 0, "block.fc.bias"), pytest.raises(hookline.HookError) as caught:
        model(X).sum().backward()
    assert caught.value.site == "block.fc.bias" and isinstance(caught.value.__cause__, ZeroDivisionError)
    assert hookline.installed(model) == []


@pytest.mark.parametrize("result", [lambda p: p.grad * 2, lambda p: p.grad.mul_(2), lambda p: p.data, lambda p: 0])
def test_what_it_returns_replaces_nothing(result):
    model = Net()
    with (
        register(model, result, "head.weight"),
        pytest.raises(hookline.WrongReplacement, match=r"'head\.weight'.*replaces nothing"),
    ):
        model(X).sum().backward()


def test_it_may_return_the_parameter_as_an_operation_in_place_does():
    model = nn.Linear(2, 1, bias=False)
    before = model.weight.detach().clone()
    with register(model, lambda parameter: parameter.add_(parameter.grad, alpha=-0.1)):  # torch's own example
        model(X).sum().backward()
    assert torch.equal(model.weight, before.add(model.weight.grad, alpha=-0.1))


@pytest.mark.parametrize("wrong", [None, "text", lambda: None, lambda a, b: None], ids=["None", "text", "0", "2"])
def test_a_hook_that_can_not_be_called_is_refused(wrong):
    model = Net()
    with untouched(model), pytest.raises(hookline.InvalidArgument, match="register_post_accumulate_grad_hook"):
        register(model, wrong)


# What is left


def test_installed_names_them_and_the_handle_takes_all_off():
    model = Net()
    foreign = model.head.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    with untouched(model):
        handle = register(model, lambda parameter: None, "head")
        labels = hookline.installed(model)
        assert [(label.owner, label.kind, label.site) for label in labels] == [
            ("register_post_accumulate_grad_hook", "post-accumulate-grad hook", name) for name in HEAD
        ]
        assert all(label.placed_at.startswith("test_accumulated.py:") for label in labels)
        handle.remove()
        handle.detach()
        assert hookline.installed(model) == []
    foreign.remove()


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"]
)
def test_a_copy_has_no_live_hook(copied):
    model, seen = Net(), []
    with register(model, seen.append):
        twin = copied(model)
        assert hookline.installed(twin) == []
        twin(X).sum().backward()
        assert seen == []
        model(X).sum().backward()
        assert len(seen) == len(EVERY)


def test_a_hook_may_remove_itself():
    model, seen = Net(), []

    def once(parameter):
        seen.append(parameter)
        handle.remove()

    handle = register(model, once, "head.weight")
    for _ in range(2):
        model(X).sum().backward()
    assert len(seen) == 1 and hookline.installed(model) == []


def test_a_dropped_model_is_gone():
    model = Net()
    handle = register(model, lambda parameter: None)
    model(X).sum().backward()
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    handle.remove()


def test_threads_that_attach_while_others_train():
    model, errors = Net(), []

    def attaching():
        try:
            for _ in range(50):
                with register(model, lambda parameter: None):
                    pass
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=attaching) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        model(X).sum().backward()
    for thread in threads:
        thread.join()
    assert not errors and hookline.installed(model) == []


# Beside others


def test_a_recording_sees_the_gradients_before_it():
    def zero(parameter):
        parameter.grad.zero_()

    model = Net()
    with hookline.record(model, "head", grads=True) as plain:
        model(X).sum().backward()
    model.zero_grad()
    with (
        register(model, zero),
        hookline.record(model, "head", grads=True) as rec,
    ):
        model(X).sum().backward()
    for name, grad in plain["head"].param_grads.items():
        assert torch.equal(rec["head"].param_grads[name], grad)  # what the backward brought, before it was changed
    assert not any(parameter.grad.any() for parameter in model.parameters())


def test_a_compiled_model():
    model, seen = Net(), []
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    compiled(X)
    with register(compiled, lambda parameter: seen.append(parameter.grad is not None), "**.weight"):
        assert {label.site for label in hookline.installed(compiled)} == {
            name for name in EVERY if name.endswith("weight")
        }
        compiled(X).sum().backward()
    compiled(X).sum().backward()
    assert seen == [True] * 3
