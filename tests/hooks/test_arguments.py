"""Arguments that a pre-hook or an edit adds, changes or leaves out: as in torch, and typed where they stay."""

from functools import wraps

import pytest
import torch
from torch import nn

import hookline
from hookline.testing import untouched

X = torch.arange(6.0).reshape(3, 2)


class Head(nn.Module):
    def forward(self, x, shift=None, *, scale=1.0):
        return x * scale if shift is None else x * scale + shift


class Open(nn.Module):
    def forward(self, x, *more, **options):
        return x + sum(more) + sum(options.values())


class Net(nn.Module):
    def __init__(self, part, **options):
        super().__init__()
        self.part, self.options = part, options

    def forward(self, x):
        return self.part(x, **self.options)


def pre(model, hook, **how):
    return hookline.register_forward_pre_hook(model, hook, "part", **how)


# Keyword arguments, by a hook


def with_kwargs(change, *, in_place=False):
    def hook(module, args, kwargs):
        new = kwargs if in_place else dict(kwargs)
        change(new)
        return args, new

    return hook


CHANGES = {
    "added number": ({}, lambda kwargs: kwargs.update(scale=3.0), X * 3),
    "added tensor": ({}, lambda kwargs: kwargs.update(shift=torch.ones(3, 2)), X + 1),
    "added to another": ({"scale": 2.0}, lambda kwargs: kwargs.update(shift=torch.ones(3, 2)), X * 2 + 1),
    "changed": ({"scale": 2.0}, lambda kwargs: kwargs.update(scale=5.0), X * 5),
    "left out": ({"scale": 2.0}, lambda kwargs: kwargs.pop("scale"), X),
    "in another order": (
        {"scale": 2.0, "shift": X},
        lambda kwargs: kwargs.update(scale=kwargs.pop("scale")),
        X * 3,
    ),
}


@pytest.mark.parametrize("in_place", [False, True], ids=["another dict", "the same dict"])
@pytest.mark.parametrize(("options", "change", "wanted"), CHANGES.values(), ids=CHANGES)
def test_keyword_arguments_come_change_and_go(options, change, wanted, in_place):
    model = Net(Head(), **options)
    hook = with_kwargs(change, in_place=in_place)
    with model.part.register_forward_pre_hook(hook, with_kwargs=True):
        assert torch.equal(model(X), wanted)  # what torch makes of it
    with untouched(model), pre(model, hook, with_kwargs=True):
        assert torch.equal(model(X), wanted)


def test_a_positional_argument_may_become_a_keyword():
    model = Net(Head())
    with pre(model, lambda m, args, kwargs: ((), {"x": args[0], "scale": 4.0}), with_kwargs=True):
        assert torch.equal(model(X), X * 4)


@pytest.mark.parametrize("first", [False, True], ids=["hooked first", "recorded first"])
def test_what_is_recorded_are_the_arguments_after_it(first):
    model, x = Net(Head()), X.clone().requires_grad_()
    shift = torch.ones(3, 2, requires_grad=True)
    hook = lambda m, args, kwargs: ((args[0] * 1,), {**kwargs, "shift": shift * 2})  # noqa: E731
    handle = None if first else pre(model, hook, with_kwargs=True)
    with hookline.record(model, "part", inputs=True, grads=True) as rec:
        handle = handle or pre(model, hook, with_kwargs=True)
        (model(x) * 3).sum().backward()
    handle.remove()
    assert list(rec["part"].kwargs) == ["shift"] and rec["part"].kwargs["shift"].unique().tolist() == [2]
    assert rec["part"].grad_kwargs["shift"].unique().tolist() == [3]
    assert rec["part"].grad_input[0].unique().tolist() == [3]
    assert shift.grad.unique().tolist() == [6]


def test_each_hook_gets_what_the_one_before_it_added():
    model, seen = Net(Open()), []

    def add(name):
        def hook(module, args, kwargs):
            seen.append(sorted(kwargs))
            return args, {**kwargs, name: 1.0}

        return hook

    with pre(model, add("a"), with_kwargs=True), pre(model, add("b"), with_kwargs=True):
        assert torch.equal(model(X), X + 2)
    assert seen == [[], ["a"]]


def test_a_wrapped_forward_takes_what_its_wrapper_takes():
    part = Head()
    inner = part.forward

    @wraps(inner)
    def outer(*args, verbose=False, **kwargs):
        return inner(*args, **kwargs)

    part.forward = outer
    model = Net(part)
    with pre(model, lambda m, args, kwargs: (args, {**kwargs, "verbose": True}), with_kwargs=True):
        assert torch.equal(model(X), X)


WRONG = {
    "unknown name": (lambda args, kwargs: (args, {**kwargs, "colour": 1}), r"Head\.forward\(x, .*'colour'"),
    "needed one left out": (lambda args, kwargs: ((), kwargs), "missing a required argument: 'x'"),
    "given twice": (lambda args, kwargs: (args, {**kwargs, "x": X}), "multiple values for argument 'x'"),
    "too many": (lambda args, kwargs: ((*args, X, X), kwargs), "too many positional"),
    "added, and another of a wrong shape": (lambda args, kwargs: ((args[0][:1], X), kwargs), "shape"),
    "added, and another of a wrong type": (lambda args, kwargs: ((args[0], X), {"scale": X}), "no Tensor"),
    "no pair": (lambda args, kwargs: args, "expected a pair .* got a tuple of Tensor"),
    "three": (lambda args, kwargs: (args, kwargs, None), "a pair"),
    "a list": (lambda args, kwargs: (list(args), kwargs), "a pair"),
    "not a dict": (lambda args, kwargs: (args, [("scale", 1.0)]), "a pair"),
}


@pytest.mark.parametrize(("wrong", "message"), WRONG.values(), ids=WRONG)
def test_what_the_forward_can_not_take_is_refused(wrong, message):
    model = Net(Head(), scale=2.0)
    with (
        untouched(model),
        pre(model, lambda m, args, kwargs: wrong(args, kwargs), with_kwargs=True),
        pytest.raises(hookline.WrongReplacement, match=message) as caught,
    ):
        model(X)
    assert caught.value.site == "part"


# Positional arguments, by a hook and by an edit


def hooked(model, change):
    return pre(model, lambda module, args: change(args))


def edited(model, change):
    return hookline.edit(model, {"part:input": change})


each_way = pytest.mark.parametrize("place", [hooked, edited])


@each_way
def test_positional_arguments_may_be_added(place):
    model = Net(Head())
    with place(model, lambda args: (*args, X)), hookline.record(model, "part", inputs=True) as rec:
        assert torch.equal(model(X), X * 2)
    assert len(rec["part"].input) == 2
    model = Net(Open())
    with place(model, lambda args: (*args, 1, 2.0)):
        assert torch.equal(model(X), X + 3)


@each_way
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda args: (*args, X, X), "too many positional"),
        (lambda args: (args[0][:1], X), "shape"),
        (lambda args: (None, X), "expected Tensor"),
        (lambda args: (), "entries"),
    ],
    ids=["too many", "shape", "None", "none"],
)
def test_positional_arguments_that_can_not_be(place, change, message):
    model = Net(Head())
    with untouched(model), place(model, change), pytest.raises(hookline.WrongReplacement, match=message):
        model(X)


@each_way
def test_of_several_positional_arguments_none_is_left_out(place):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Head()

        def forward(self, x):
            return self.part(x, x)

    model = Two()
    with (
        place(model, lambda args: args[0]),
        pytest.raises(hookline.WrongReplacement, match=r"expected the entries \[0, 1\]"),
    ):
        model(X)


# Keyword arguments, by an edit


@pytest.mark.parametrize("function", [False, True], ids=["value", "function"])
def test_an_edit_adds_keyword_arguments(function):
    model = Net(Head(), scale=2.0)
    new = {"shift": torch.ones(3, 2)}
    with (
        untouched(model),
        hookline.edit(model, {"part:kwargs": (lambda kwargs: new) if function else new}) as edits,
        hookline.record(model, "part", inputs=True) as rec,
    ):
        assert torch.equal(model(X), X * 2 + 1)
    assert edits.audit()[0].fired == 1
    assert sorted(rec["part"].kwargs) == ["scale", "shift"]


def test_an_edit_of_an_unknown_keyword_names_it_and_the_signature():
    model = Net(Head(), scale=2.0)
    with (
        untouched(model),
        hookline.edit(model, {"part:kwargs": {"scal": 1.0}}),
        pytest.raises(hookline.WrongReplacement, match=r"'scal'.*Head\.forward\(x, shift=None, \*, scale=1\.0\)"),
    ):
        model(X)


# Compiled


@pytest.mark.parametrize(
    "hook",
    [
        lambda m, args, kwargs: (args, {**kwargs, "shift": X}),
        lambda m, args, kwargs: (args, {**kwargs, "scale": 3.0}),
        lambda m, args, kwargs: ((*args, X), kwargs),
    ],
    ids=["tensor", "number", "positional"],
)
def test_a_graph_has_the_arguments_that_it_was_made_with(hook):
    model = Net(Head())
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    compiled(X)
    with (
        pre(compiled, hook, with_kwargs=True),
        pytest.raises(hookline.Unsupported, match=r"compiled.*Instead: run the model eagerly"),
    ):
        compiled(X)
    assert torch.equal(compiled(X), X)


def test_the_model_itself_may_get_more_since_its_hooks_run_outside_of_the_graph():
    compiled = torch.compile(Head(), backend="aot_eager", fullgraph=True)
    with hookline.register_forward_pre_hook(
        compiled, lambda m, args, kwargs: (args, {"scale": 3.0}), with_kwargs=True
    ):
        assert torch.equal(compiled(X), X * 3)
