"""prepend and always_call: which hooks run, and when, as torch means it."""

import copy
import io
import itertools
import pickle
import warnings
from contextlib import ExitStack
from functools import partial

import pytest
import torch
from torch import nn

import hookline
from hookline.testing import untouched

X = torch.ones(3, 2)

REGISTER = {
    "forward_pre": (hookline.register_forward_pre_hook, "register_forward_pre_hook"),
    "forward": (hookline.register_forward_hook, "register_forward_hook"),
    "backward_pre": (hookline.register_backward_pre_hook, "register_full_backward_pre_hook"),
    "backward": (hookline.register_backward_hook, "register_full_backward_hook"),
}
each_kind = pytest.mark.parametrize("kind", REGISTER)


class Residual(nn.Module):
    def forward(self, x):
        return x * 2 + x.sin()


class Failing(nn.Module):
    def forward(self, x):
        raise ValueError("of the forward")


def run(model):
    model((X * 1).requires_grad_()).sum().backward()


# prepend

ONE = [(own, prepend) for own in (False, True) for prepend in (False, True)]
"""A hook of hookline or of torch, prepended or not."""


def order_of(model, register, prepends):
    """The numbers of hooks that were registered like that, as they run."""
    seen = []
    handles = [
        register(lambda module, *rest, number=number: seen.append(number), prepend=prepend)
        for number, prepend in enumerate(prepends)
    ]
    run(model)
    for handle in handles:
        handle.remove()
    return seen


@each_kind
@pytest.mark.parametrize("make", [lambda: nn.Linear(2, 2), Residual], ids=["linear", "residual"])
@pytest.mark.parametrize("prepends", list(itertools.product([False, True], repeat=3)), ids=str)
def test_hooks_run_in_the_order_of_torchs(kind, make, prepends):
    ours, theirs = REGISTER[kind]
    model = make()
    orders = [
        order_of(model, partial(ours, model), prepends),
        order_of(model, getattr(model, theirs), prepends),
    ]
    assert orders[0] == orders[1]


@pytest.mark.parametrize("kind", ["forward", "forward_pre"])
@pytest.mark.parametrize("steps", list(itertools.product(ONE, repeat=3)), ids=str)
def test_hooks_of_torch_and_hookline_are_in_one_order(steps, kind):
    ours, theirs = REGISTER[kind]
    mixed, plain = nn.Linear(2, 2), nn.Linear(2, 2)
    orders = {"mixed": [], "plain": []}
    for number, (own, prepend) in enumerate(steps):
        note = lambda *rest, number=number: orders["mixed"].append(number)  # noqa: E731
        if own:
            ours(mixed, note, prepend=prepend)
        else:
            getattr(mixed, theirs)(note, prepend=prepend)
        getattr(plain, theirs)(lambda *rest, number=number: orders["plain"].append(number), prepend=prepend)
    mixed(X)
    plain(X)
    assert orders["mixed"] == orders["plain"]


@pytest.mark.parametrize("first", [True, False], ids=["recorded before", "recorded after"])
def test_a_recording_sees_values_after_prepended_hooks(first):
    model = nn.Sequential(nn.Linear(2, 2))
    with ExitStack() as blocks:
        if first:
            rec = blocks.enter_context(hookline.record(model, "0", inputs=True, grads=True))
        blocks.enter_context(
            hookline.register_forward_hook(model, lambda m, a, out: out * 0 + 5, prepend=True, where="0")
        )
        blocks.enter_context(
            hookline.register_forward_pre_hook(model, lambda m, a: a[0] * 0 + 7, prepend=True, where="0")
        )
        if not first:
            rec = blocks.enter_context(hookline.record(model, "0", inputs=True, grads=True))
        run(model)
    assert rec["0"].output.unique().tolist() == [5] and rec["0"].input[0].unique().tolist() == [7]


def test_a_prepended_hook_comes_before_edits_and_after_the_original_value():
    model = nn.Sequential(nn.Identity())
    grads = []
    with (
        hookline.edit(model, {"0": lambda out: out * 3}),
        hookline.register_forward_hook(model, lambda m, a, out: out + 1, "0", prepend=True),
        hookline.register_backward_hook(model, lambda m, gi, go: grads.append(go[0]), "0", original=True),
        hookline.register_forward_hook(model, lambda m, a, out: out * 10, "0", prepend=True),
    ):
        x = X.clone().requires_grad_()
        out = model(x * 1)
        assert torch.equal(out, (X * 10 + 1) * 3)
        out.sum().backward()
    assert grads[0].unique().tolist() == [30]  # of what the module itself returned


def test_backward_hooks_on_the_original_value_keep_their_order():
    model, seen = nn.Linear(2, 2), []
    handles = [
        hookline.register_backward_hook(
            model, lambda m, gi, go, number=number: seen.append(number), original=True, prepend=number == 3
        )
        for number in range(4)
    ]
    with hookline.record(model):
        run(model)
    assert seen == [3, 0, 1, 2]
    for handle in handles:
        handle.remove()


@pytest.mark.parametrize("kind", ["forward_pre", "forward", "backward_pre"])
def test_prepended_hooks_in_compiled_code(kind):
    ours, _ = REGISTER[kind]
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    compiled(X)
    seen = []
    for number, prepend in enumerate([False, True, False]):
        ours(compiled, lambda *rest, number=number: seen.append(number), "0", prepend=prepend)
    run(compiled)
    assert seen == [1, 0, 2]


@each_kind
def test_prepend_is_by_keyword(kind):
    ours, _ = REGISTER[kind]
    with pytest.raises(TypeError):
        ours(nn.ReLU(), lambda *rest: None, None, True)


# always_call


def both(make, hook, **how):
    """What happens with torch's own hook and with hookline's: (error, warnings) each."""
    for register in ("torch", "hookline"):
        model = make()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if register == "torch":
                handle = model.register_forward_hook(hook, always_call=True, **how)
            else:
                handle = hookline.register_forward_hook(model, hook, always_call=True, **how)
            try:
                result = model(X)
            except Exception as error:
                result = error
            handle.remove()
        yield result, [str(warning.message) for warning in caught]


def test_it_runs_when_the_forward_raises():
    seen = []
    for error, told in both(Failing, lambda m, a, out: seen.append((a, out))):
        assert str(error) == "of the forward" and not told
    assert seen[0] == seen[1] == ((X,), None)


def test_it_runs_with_keyword_arguments():
    class Keyword(nn.Module):
        def forward(self, x=None, *, y=1):
            raise ValueError("of the forward")

    model, seen = Keyword(), []
    hook = lambda m, args, kwargs, out: seen.append((args, kwargs, out))  # noqa: E731
    with (
        hookline.register_forward_hook(model, hook, always_call=True, with_kwargs=True),
        pytest.raises(ValueError, match="of the forward"),
    ):
        model(y=2)
    assert seen == [((), {"y": 2}, None)]


def test_it_runs_once_where_nothing_raises_and_may_replace():
    for result, told in both(nn.Identity, lambda m, a, out: out * 2):
        assert torch.equal(result, X * 2) and not told


@pytest.mark.parametrize("result", [torch.zeros(7), "text", (1, 2)], ids=["tensor", "text", "tuple"])
def test_what_it_returns_after_an_error_is_dropped(result):
    for error, told in both(Failing, lambda m, a, out: result):
        assert str(error) == "of the forward" and not told


def test_what_it_raises_after_an_error_is_a_warning_with_the_site():
    model = nn.Sequential(nn.Identity(), Failing())
    with (
        hookline.register_forward_hook(model, lambda m, a, out: 1 / 0, "1", always_call=True),
        pytest.warns(UserWarning, match="silenced.*at site '1'.*ZeroDivisionError"),
        pytest.raises(ValueError, match="of the forward"),
    ):
        model(X)


def raising(*rest):
    raise KeyError("of a hook")


@pytest.mark.parametrize("before", [True, False], ids=["pre-hook", "hook"])
def test_it_runs_when_another_hook_raises_and_sees_how_far_it_got(before):
    model, seen = nn.Identity(), []
    register = hookline.register_forward_pre_hook if before else hookline.register_forward_hook
    with (
        hookline.register_forward_hook(model, lambda m, a, out: out * 2),
        register(model, raising),
        hookline.register_forward_hook(model, lambda m, a, out: seen.append(out), always_call=True),
        pytest.raises(hookline.HookError, match="of a hook"),
    ):
        model(X)
    assert seen == [None] if before else torch.equal(seen[0], X * 2)


def test_its_own_error_surfaces_once():
    model, seen = nn.Identity(), []

    def fails(*rest):
        seen.append(1)
        raise KeyError("its own")

    with hookline.register_forward_hook(model, fails, always_call=True), pytest.raises(hookline.HookError):
        model(X)
    assert seen == [1]


def test_hooks_without_it_do_not_run_then():
    model, seen = nn.Sequential(nn.Identity(), Failing()), []
    with (
        hookline.register_forward_hook(model, lambda m, a, o: seen.append(("always", o)), "**", always_call=True),
        hookline.register_forward_hook(model, lambda m, a, o: seen.append(("usual", o)), "**"),
        hookline.record(model) as rec,
        pytest.raises(ValueError, match="of the forward"),
    ):
        model(X)
    assert [name for name, _ in seen] == ["always", "usual", "always", "always"]
    assert rec.names == ["0"]


def test_nothing_is_left_of_it():
    model = nn.Sequential(nn.Identity(), Failing())
    with (
        untouched(model),
        pytest.raises(ValueError, match="of the forward"),
        hookline.register_forward_hook(model, lambda m, a, o: None, "**", always_call=True),
    ):
        model(X)
    assert not any(module._forward_hooks_always_called for module in model.modules())


def pickled(model):
    return pickle.loads(pickle.dumps(model))


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled, saved])
def test_a_copy_fails_as_the_model_does(copied):
    model, seen = nn.Sequential(nn.Identity(), Failing()), []
    with (
        hookline.register_forward_hook(model, lambda m, a, o: seen.append(o), "**", always_call=True),
        hookline.register_forward_hook(model, lambda m, a, o: seen.append(o), "**", always_call=True),
    ):
        twin = copied(model)
    for _ in range(2):
        with pytest.raises(ValueError, match="of the forward"):
            twin(X)
    assert torch.equal(copied(model)[0](X), X) and seen == []
