"""Bad input: each is a clear error that says what was asked and what would do, and leaves nothing attached."""

import re
import warnings
from collections import namedtuple
from contextlib import contextmanager

import pytest
import torch
from torch import nn

import hookline
from hookline import HooklineError, InvalidArgument, NoSuchSite, WrongReplacement, record
from hookline.testing import untouched


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Linear(3, 4)
        self.layer2 = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))
        self.head = Head()

    def forward(self, x):
        return self.head(self.layer2(self.layer1(x)), scale=torch.tensor(2.0))


class Head(nn.Module):
    def forward(self, x, *, scale):
        return x * scale


@pytest.fixture
def net():
    """A model with somebody else's hooks on it, which must stay."""
    net = Net()
    net.layer1.register_forward_hook(lambda module, args, output: None)
    net.layer2[1].register_full_backward_hook(lambda module, grad_input, grad_output: None)
    return net


@pytest.fixture
def x():
    return torch.ones(5, 3, requires_grad=True)


def nothing(*parts):
    return None


def entered(manager):
    with manager:
        raise AssertionError("this block must not be reached")


def hashable(where):
    """The key of a dict can't be a list; a set means the same."""
    return frozenset(map(hashable, where)) if isinstance(where, list) else where


# Everything that takes a `where`, given a model and one.
ATTACH = {
    "register_forward_pre_hook": lambda net, where: hookline.register_forward_pre_hook(net, nothing, where),
    "register_forward_hook": lambda net, where: hookline.register_forward_hook(net, nothing, where),
    "register_backward_pre_hook": lambda net, where: hookline.register_backward_pre_hook(net, nothing, where),
    "register_backward_hook": lambda net, where: hookline.register_backward_hook(net, nothing, where),
    "register_state_dict_pre_hook": lambda net, where: hookline.register_state_dict_pre_hook(net, nothing, where),
    "register_state_dict_post_hook": lambda net, where: hookline.register_state_dict_post_hook(
        net, nothing, where
    ),
    "register_load_state_dict_pre_hook": lambda net, where: hookline.register_load_state_dict_pre_hook(
        net, nothing, where
    ),
    "register_load_state_dict_post_hook": lambda net, where: hookline.register_load_state_dict_post_hook(
        net, nothing, where
    ),
    "record": lambda net, where: entered(record(net, where)),
    "record-grads": lambda net, where: entered(record(net, where, inputs=True, grads=True)),
    "edit": lambda net, where: entered(hookline.edit(net, {(hashable(where), "output"): nothing})),
    "edit-grad": lambda net, where: entered(hookline.edit(net, {(hashable(where), "grad_output"): nothing})),
}
each_way = pytest.mark.parametrize("attach", ATTACH.values(), ids=ATTACH)


# Selections


@each_way
@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("layr1", "layer1"),
        ("layer2.2", "layer2.1"),
        ("Layer1", "layer1"),
        ("layer_1", "layer1"),
        ("heads", "head"),
    ],
)
def test_unknown_name(net, attach, asked, near):
    with untouched(net), pytest.raises(NoSuchSite) as caught:
        attach(net, asked)
    message = str(caught.value)
    assert repr(asked) in message
    assert re.search(f"Did you mean .*'{re.escape(near)}'", message)
    assert re.search(r"The model has (6|10) sites: '', 'layer1', ", message)  # edit counts 4 parameters as well
    assert isinstance(caught.value, LookupError)
    assert hookline.installed(net) == []


EMPTY = {
    "empty list": ([], "no site matches"),
    "empty tuple": ((), "()"),
    "type without modules": (nn.Conv2d, "Conv2d"),
    "types without modules": ((nn.Conv2d, nn.LSTM), "Conv2d"),
    "predicate that is never true": (lambda name, module: False, "lambda"),
    "regex": (re.compile("^conv"), "^conv"),
    "nothing in common": (hookline.where("layer1") & "head", "(where('layer1') & where('head'))"),
    "not everything": (~hookline.where("**"), "~where('**')"),
    "glob": ("layer3.*", "'layer3.*'"),
    "glob for one more part": ("head.*", "'head.*'"),
    "glob for all below": ("head.**", "'head.**'"),
    "foreign module": (nn.ReLU(), "ReLU"),
}


@each_way
@pytest.mark.parametrize(("where", "shown"), EMPTY.values(), ids=EMPTY)
def test_empty_selection(net, attach, where, shown):
    with untouched(net), pytest.raises(NoSuchSite) as caught:
        attach(net, where)
    assert shown in str(caught.value)
    assert re.search(r"The model has (6|10) sites: '', 'layer1', ", str(caught.value))
    assert hookline.installed(net) == []


@each_way
@pytest.mark.parametrize(
    ("where", "shown"),
    [
        (["layer1", "layr2"], "'layr2'"),
        (["layr2", "layer1"], "'layr2'"),
        ([nn.Linear, nn.Conv2d], "Conv2d"),
        (["layer1", "conv*"], "'conv*'"),
        (["layer1", ["head", "tail"]], "'tail'"),
        (hookline.where("layer1") | "tail", "'tail'"),
        (["layer1", re.compile("conv")], "conv"),
    ],
    ids=["name", "name first", "type", "glob", "nested", "or", "regex"],
)
def test_one_wrong_entry_of_several(net, attach, where, shown):
    with untouched(net), pytest.raises(NoSuchSite) as caught:
        attach(net, where)
    assert shown in str(caught.value)
    assert hookline.installed(net) == []


def test_a_near_name_is_told_for_an_entry_of_a_list(net):
    with pytest.raises(NoSuchSite, match="Did you mean 'layer1'"):
        record(net, ["head", "layr1"])


@each_way
def test_a_predicate_that_raises(net, attach):
    def predicate(name, module):
        raise ZeroDivisionError("in the predicate")

    with untouched(net), pytest.raises(ZeroDivisionError, match="in the predicate"):
        attach(net, predicate)
    assert hookline.installed(net) == []


# Models

NO_MODELS = {
    "None": None,
    "text": "model",
    "class": nn.Linear,
    "function": nothing,
    "tensor": torch.ones(2),
    "parameter": nn.Parameter(torch.ones(2)),
    "list of modules": [nn.Linear(1, 1)],
    "state dict": {"weight": torch.ones(1)},
    "optimizer": torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1),
}


@each_way
@pytest.mark.parametrize("thing", NO_MODELS.values(), ids=NO_MODELS)
def test_not_a_model(attach, thing):
    with pytest.raises(InvalidArgument, match=r"expected a model, got a .*torch\.nn\.Module") as caught:
        attach(thing, None)
    assert type(thing).__qualname__ in str(caught.value)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("thing", NO_MODELS.values(), ids=NO_MODELS)
def test_not_a_model_to_list_or_hook(thing):
    with pytest.raises(InvalidArgument, match="expected a model"):
        hookline.installed(thing)
    with pytest.raises(InvalidArgument, match="expected a model"):
        hookline.Hook(thing, nothing)


def test_model_and_hook_in_the_wrong_order(net):
    with untouched(net), pytest.raises(InvalidArgument, match=r"expected a model, got a .*function"):
        hookline.register_forward_hook(nothing, net)


@contextmanager
def silence():
    """Torch's compiler warns of torch's own deprecated names when it is first used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def compiled_whole(net):
    return torch.compile(net)


def compiled_in_place(net):
    net.compile()
    return net


def compiled_part(net):
    net.layer2 = torch.compile(net.layer2)
    return net


def compiled_part_in_place(net):
    net.layer2[1].compile()
    return net


# Hooks that can't be called

REGISTER = {
    "register_forward_pre_hook": (hookline.register_forward_pre_hook, 2),
    "register_forward_hook": (hookline.register_forward_hook, 3),
    "register_backward_pre_hook": (hookline.register_backward_pre_hook, 2),
    "register_backward_hook": (hookline.register_backward_hook, 3),
    "register_state_dict_pre_hook": (hookline.register_state_dict_pre_hook, 3),
    "register_state_dict_post_hook": (hookline.register_state_dict_post_hook, 4),
    "register_load_state_dict_pre_hook": (hookline.register_load_state_dict_pre_hook, 8),
    "register_load_state_dict_post_hook": (hookline.register_load_state_dict_post_hook, 2),
    "register_forward_pre_hook-kwargs": (
        lambda net, hook: hookline.register_forward_pre_hook(net, hook, with_kwargs=True),
        3,
    ),
    "register_forward_hook-kwargs": (
        lambda net, hook: hookline.register_forward_hook(net, hook, with_kwargs=True),
        4,
    ),
}
each_register = pytest.mark.parametrize(("register", "count"), REGISTER.values(), ids=REGISTER)


@each_register
@pytest.mark.parametrize("hook", [None, 3, "print", [print], torch.ones(1)], ids=repr)
def test_a_hook_that_is_no_callable(net, register, count, hook):
    with untouched(net), pytest.raises(InvalidArgument, match="expected a function for hook") as caught:
        register(net, hook)
    assert type(hook).__name__ in str(caught.value)
    assert hookline.installed(net) == []


def taking(count):
    """A function of just `count` arguments."""
    return eval(f"lambda {', '.join(f'a{i}' for i in range(count))}: None")


@each_register
@pytest.mark.parametrize("difference", [-1, 1], ids=["one too few", "one too many"])
def test_a_hook_of_the_wrong_arity(net, register, count, difference):
    with untouched(net), pytest.raises(InvalidArgument, match=f"with {count} arguments") as caught:
        register(net, taking(count + difference))
    assert "lambda" in str(caught.value)
    assert hookline.installed(net) == []


@each_register
def test_a_hook_with_a_keyword_that_nobody_gives(net, register, count):
    def hook(*parts, needed):
        return None

    with untouched(net), pytest.raises(InvalidArgument, match="needed"):
        register(net, hook)


@each_register
def test_a_hook_of_the_right_arity_is_taken(net, register, count):
    for hook in (taking(count), nothing, lambda *parts, extra=1: None):
        with untouched(net), register(net, hook):
            assert len(hookline.installed(net)) > 0


@pytest.mark.parametrize("fn", [None, "text", lambda: None, lambda a, b: None], ids=["None", "text", "0", "2"])
def test_hookbackward_needs_a_function_of_one_argument(fn):
    with pytest.raises(InvalidArgument, match="HookBackward"):
        hookline.HookBackward(fn)


@pytest.mark.parametrize(
    "given", [(), ("text",), (None,), (torch.ones(1), 3)], ids=["none", "text", "None", "mixed"]
)
def test_hookbackward_needs_tensors(given):
    with pytest.raises(InvalidArgument, match="tensor"):
        hookline.HookBackward(nothing)(*given)


# What a hook returns

Pair = namedtuple("Pair", "a b")

WRONG_OUTPUT = {
    "False": lambda t: False,
    "True": lambda t: True,
    "zero": lambda t: 0,
    "text": lambda t: "",
    "list": lambda t: [t],
    "tuple": lambda t: (t,),
    "dict": lambda t: {"output": t},
    "array": lambda t: t.detach().numpy(),
    "fewer rows": lambda t: t[:1],
    "one dimension more": lambda t: t[None],
    "scalar": lambda t: t.sum(),
    "other dtype": lambda t: t.double(),
}


def raises_wrong(site, run):
    with pytest.raises(WrongReplacement, match=f"at site '{site}'") as caught:
        run()
    assert caught.value.site == site
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, hookline.HookError)
    return str(caught.value)


@pytest.mark.parametrize("wrong", WRONG_OUTPUT.values(), ids=WRONG_OUTPUT)
@pytest.mark.parametrize("with_kwargs", [False, True], ids=["plain", "kwargs"])
def test_a_forward_hook_that_returns_what_can_not_stand_there(net, x, wrong, with_kwargs):
    hook = (lambda m, a, k, out: wrong(out)) if with_kwargs else (lambda m, a, out: wrong(out))
    with untouched(net):
        with hookline.register_forward_hook(net, hook, "layer2.1", with_kwargs=with_kwargs):
            raises_wrong("layer2.1", lambda: net(x))
        net(x)
    assert hookline.installed(net) == []


@pytest.mark.parametrize("name", [name for name in WRONG_OUTPUT if name != "tuple"])
def test_a_forward_pre_hook_that_returns_what_can_not_stand_there(net, x, name):
    with untouched(net):
        with hookline.register_forward_pre_hook(net, lambda m, args: WRONG_OUTPUT[name](args[0]), "layer2.1"):
            raises_wrong("layer2.1", lambda: net(x))
        net(x)
    assert hookline.installed(net) == []


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a: (),
        lambda a: (*a, *a),
        lambda a: (a,),
        lambda a: (None,),
        lambda a: (a[0][:1],),
        lambda a: Pair(a[0], 1),
    ],
    ids=["none", "two", "nested", "None", "shape", "namedtuple"],
)
def test_a_forward_pre_hook_that_returns_other_arguments(net, x, wrong):
    with untouched(net), hookline.register_forward_pre_hook(net, lambda m, args: wrong(args), "layer2.1"):
        raises_wrong("layer2.1", lambda: net(x))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a, k: a,
        lambda a, k: k,
        lambda a, k: (a, {}),
        lambda a, k: (a, {**k, "other": 1}),
        lambda a, k: ((), k),
        lambda a, k: (a, {"scale": 2.0}),
        lambda a, k: False,
    ],
    ids=["args only", "kwargs only", "kwarg gone", "kwarg more", "args gone", "no tensor", "False"],
)
def test_a_forward_pre_hook_with_kwargs_that_returns_other_ones(net, x, wrong):
    hook = lambda m, args, kwargs: wrong(args, kwargs)  # noqa: E731
    with untouched(net), hookline.register_forward_pre_hook(net, hook, "head", with_kwargs=True):
        raises_wrong("head", lambda: net(x))


WRONG_GRADS = {
    "nothing": lambda grads: (),
    "one too many": lambda grads: (*grads, *grads),
    "nested": lambda grads: (grads,),
    "dict": lambda grads: {"x": grads[0]},
    "False": lambda grads: False,
    "number": lambda grads: 0,
    "text": lambda grads: "none",
    "tuple of numbers": lambda grads: (1.0,),
    "array": lambda grads: (grads[0].numpy(),),
    "fewer rows": lambda grads: (grads[0][:1],),
    "transposed": lambda grads: (grads[0].t(),),
    "tensor of another shape": lambda grads: grads[0].sum(),
    "other dtype": lambda grads: (grads[0].double(),),
}
each_wrong_grad = pytest.mark.parametrize("wrong", WRONG_GRADS.values(), ids=WRONG_GRADS)


@each_wrong_grad
@pytest.mark.parametrize("original", [False, True], ids=["leaving", "original"])
def test_a_backward_hook_that_returns_what_can_not_stand_there(net, x, wrong, original):
    hook = lambda m, grad_input, grad_output: wrong(grad_input)  # noqa: E731
    with untouched(net):
        with hookline.register_backward_hook(net, hook, "layer2.1", original=original):
            loss = net(x).sum()
            raises_wrong("layer2.1", loss.backward)
        assert x.grad is None
        net(x).sum().backward()
    assert hookline.installed(net) == []


@each_wrong_grad
def test_a_backward_pre_hook_that_returns_what_can_not_stand_there(net, x, wrong):
    with untouched(net):
        with hookline.register_backward_pre_hook(net, lambda m, grad_output: wrong(grad_output), "layer2.1"):
            loss = net(x).sum()
            raises_wrong("layer2.1", loss.backward)
        net(x).sum().backward()
    assert hookline.installed(net) == []


@each_wrong_grad
def test_hookbackward_that_returns_what_can_not_stand_there(wrong):
    x = torch.ones(2, 3, requires_grad=True)
    z = hookline.HookBackward(wrong)(x * 2)
    with pytest.raises(WrongReplacement, match="HookBackward"):
        z.sum().backward()


def test_a_backward_hook_that_returns_a_gradient_for_an_input_that_needs_none(net):
    """Torch raises here as well; to drop the value would be a silent change."""
    hook = lambda m, grad_input, grad_output: (torch.ones(2, 3),)  # noqa: E731
    with untouched(net), hookline.register_backward_hook(net, hook, "layer1"):
        loss = net(torch.ones(2, 3)).sum()
        raises_wrong("layer1", loss.backward)


def test_a_backward_hook_that_returns_nones_for_an_input_that_needs_none(net):
    with hookline.register_backward_hook(net, lambda m, grad_input, grad_output: grad_input, "layer1"):
        net(torch.ones(2, 3)).sum().backward()
    assert net.layer1.weight.grad is not None


@pytest.mark.parametrize("kind", ["pre", "post", "backward pre", "backward"])
def test_a_hook_that_raises_names_its_site(net, x, kind):
    def broken(*parts):
        raise ZeroDivisionError("by zero")

    register = {
        "pre": hookline.register_forward_pre_hook,
        "post": hookline.register_forward_hook,
        "backward pre": hookline.register_backward_pre_hook,
        "backward": hookline.register_backward_hook,
    }[kind]
    with untouched(net):
        with (
            register(net, broken, "layer2.1"),
            pytest.raises(hookline.HookError, match=r"'layer2\.1'.*by zero") as e,
        ):
            net(x).sum().backward()
        assert isinstance(e.value.__cause__, ZeroDivisionError)
        assert "broken" in str(e.value)


# record

LIMITS = [
    "",
    " ",
    "GB",
    "B",
    "two gigabytes",
    "2 parsecs",
    "2GB2",
    "2 GB RAM",
    "2,000MB",
    "2_000",
    "1e9",
    "1.5.2GB",
    ".5GB",
    "5.GB",
    "-1GB",
    "-1",
    "+1GB",
    "0",
    "0GB",
    "0.1",
    "0.0001KB",
    "2iB",
    "2Gi B",
    "2KGB",
    "nan",
    "inf",
    "9" * 400 + "GB",
    "9" * 5000,
    "2GB\x00",
    0,
    -1,
    -(10**9),
    True,
    False,
    2.0,
    1.5,
    float("inf"),
    float("nan"),
    b"2GB",
    [2],
    ("2", "GB"),
    {},
    object,
    2 + 0j,
]


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: repr(limit)[:24].replace("\\", "/"))
@pytest.mark.parametrize("spill", [False, True], ids=["stop", "spill"])
def test_a_limit_that_can_not_be_parsed(net, limit, spill, tmp_path):
    with untouched(net), pytest.raises(InvalidArgument, match=r"(?s)limit=.*is not a size.*'2GB'"):
        record(net, limit=limit, spill=tmp_path / "spill" if spill else None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("limit", "size"),
    [
        (1, 1),
        ("1", 1),
        ("1B", 1),
        ("4096", 4096),
        ("2KB", 2000),
        ("2kb", 2000),
        ("2k", 2000),
        ("2KiB", 2048),
        ("2Ki", 2048),
        ("0.5 MB", 500_000),
        (" 1.5 MiB ", 1_572_864),
        ("2GB", 2 * 10**9),
        ("2GiB", 2**31),
        ("1TB", 10**12),
        ("1TiB", 2**40),
        (10**15, 10**15),
    ],
    ids=repr,
)
def test_a_limit_that_can_be_parsed(net, limit, size):
    recorder = record(net, limit=limit)
    with recorder:
        assert recorder._store.budget.limit == size


@pytest.mark.parametrize("reduce", [3, "mean", (), torch.ones(1), lambda: 1, lambda a, b: a])
def test_reduce_that_is_no_function_of_one_argument(net, reduce):
    with untouched(net), pytest.raises(InvalidArgument, match=r"record:? .*reduce"):
        record(net, reduce=reduce)


def test_reduce_that_raises_names_the_site(net, x):
    def broken(tensor):
        raise ZeroDivisionError("by zero")

    with (
        untouched(net),
        pytest.warns(UserWarning, match=r"'layer1'.*broken.*by zero") as told,
        record(net, ["layer1", "layer2"], reduce=broken),
    ):
        net(x)
    assert len(told) == 1


def test_stop_with_grads(net):
    with untouched(net), pytest.raises(InvalidArgument, match="stop=True, grads=True"):
        record(net, stop=True, grads=True)


def test_spill_without_limit(net, tmp_path):
    with untouched(net), pytest.raises(InvalidArgument, match=r"spill=.* needs limit="):
        record(net, spill=tmp_path / "spill")
    assert list(tmp_path.iterdir()) == []


def test_spill_into_a_file(net, tmp_path):
    (tmp_path / "file").write_text("here already")
    with untouched(net), pytest.raises(HooklineError, match="file"):
        record(net, limit="1MB", spill=tmp_path / "file")
    assert (tmp_path / "file").read_text() == "here already"


@pytest.mark.parametrize("spill", [3, True, b"folder", ["a"]], ids=repr)
def test_spill_that_is_no_path(net, spill):
    with untouched(net), pytest.raises(InvalidArgument, match="spill"):
        record(net, limit="1MB", spill=spill)


def test_a_record_that_can_not_be_made_makes_no_folder(net, tmp_path):
    with untouched(net), pytest.raises(NoSuchSite):
        record(net, "layr1", limit="1MB", spill=tmp_path / "spill")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dtype", ["float33", "nn", 3, float, "Tensor"], ids=repr)
def test_a_dtype_that_is_none(net, dtype):
    with untouched(net), pytest.raises(InvalidArgument, match="dtype="):
        record(net, dtype=dtype)


@pytest.mark.parametrize("device", ["nowhere", "cuda:x", [], "cpu:-3"], ids=repr)
def test_a_device_that_does_not_exist(net, device):
    with untouched(net), pytest.raises(InvalidArgument, match="device="):
        record(net, device=device)


def test_a_record_block_entered_twice(net, x):
    block = record(net, "layer1")
    with block as rec:
        net(x)
    with untouched(net), pytest.raises(InvalidArgument, match="used already"), block:
        pass
    assert hookline.installed(net) == []
    assert len(rec["layer1"].calls) == 1


def test_a_record_block_entered_while_it_is_open(net, x):
    block = record(net, "layer1")
    with untouched(net):
        with block as rec:
            with pytest.raises(InvalidArgument), block:
                pass
            assert len(hookline.installed(net)) == 1
            net(x)
        assert len(rec["layer1"].calls) == 1


def test_reading_what_was_not_asked_for(net, x):
    with record(net, "layer1") as rec:
        net(x)
    with pytest.raises(NoSuchSite, match="Did you mean 'layer1'"):
        rec["layer2"]
    with pytest.raises(hookline.NotRecorded, match="inputs=True"):
        _ = rec["layer1"].input
    with pytest.raises(hookline.NotRecorded, match="inputs=True"):
        _ = rec["layer1"].kwargs
    for kind in ("grad_output", "grad_input", "grad_kwargs", "param_grads"):
        with pytest.raises(hookline.NotRecorded, match="grads=True"):
            getattr(rec["layer1"], kind)


def test_reading_a_site_that_never_fired(net):
    with record(net, "layer1", inputs=True, grads=True) as rec:
        pass
    for kind in ("output", "input", "kwargs", "grad_output", "grad_input", "grad_kwargs"):
        with pytest.raises(hookline.NotRecorded, match="'layer1' never fired: the model was not called"):
            getattr(rec["layer1"], kind)


# edit


@pytest.mark.parametrize("edits", [None, {}, [], "layer1", ["layer1"], [("layer1", nothing)], nothing, 3])
def test_edits_that_are_no_dict_of_edits(net, edits):
    with untouched(net), pytest.raises(InvalidArgument, match="edit: expected a dict"):
        hookline.edit(net, edits)


def test_an_edit_that_is_none(net):
    with untouched(net), pytest.raises(InvalidArgument, match="the edit of 'layer1' is None"):
        hookline.edit(net, {"head": nothing, "layer1": None})


@pytest.mark.parametrize("site", ["layer1:outputs", "layer1:grad", "layer1:", "layer1:weight", ":"])
def test_an_edit_of_an_unknown_kind(net, site):
    with untouched(net), pytest.raises(HooklineError) as caught:
        hookline.edit(net, {site: nothing})
    assert repr(site) in str(caught.value)
    assert hookline.installed(net) == []


def test_an_unknown_kind_is_told_the_kinds(net):
    with pytest.raises(InvalidArgument, match="input, kwargs, output, grad_input, grad_kwargs, grad_output"):
        hookline.edit(net, {"layer1:outputs": nothing})


def test_an_edit_of_grad_kwargs(net):
    with untouched(net), pytest.raises(InvalidArgument, match="not edited"):
        hookline.edit(net, {"head:grad_kwargs": nothing})


@pytest.mark.parametrize("change", [lambda: None, lambda a, b: None], ids=["none", "two"])
def test_an_edit_by_a_function_of_the_wrong_arity(net, change):
    with untouched(net), pytest.raises(InvalidArgument, match="with 1 argument"):
        hookline.edit(net, {"layer1": change})


def test_an_edit_of_an_unknown_weight_is_told_the_near_ones(net):
    with untouched(net), pytest.raises(NoSuchSite, match=r"Did you mean .*'layer1\.weight'"):
        hookline.edit(net, {"layer1.weigth": torch.zeros(4, 3)})


def edited(net, x, edits):
    """A forward and backward under these edits; what is wrong with them must surface on the way."""
    with hookline.edit(net, edits):
        net(x).sum().backward()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": torch.ones(())}, "colour"),
        (lambda kwargs: {"colour": torch.ones(())}, "colour"),
        (lambda kwargs: {**kwargs, "colour": 1}, "colour"),
        (lambda kwargs: [1], "list"),
        (torch.ones(()), "Tensor"),
        ({"scale": torch.ones(3)}, "shape"),
        (lambda kwargs: {"scale": torch.ones(3)}, "shape"),
        ({"scale": "text"}, "str"),
    ],
    ids=["key", "key by function", "key more", "list", "tensor", "shape", "shape by function", "text"],
)
def test_an_edit_of_kwargs_that_do_not_fit(net, x, change, message):
    with untouched(net), pytest.raises(WrongReplacement, match=message) as caught:
        edited(net, x, {"head:kwargs": change})
    assert caught.value.site == "head:kwargs"
    assert hookline.installed(net) == []


WRONG_EDITS = {
    "output value": ("layer1", torch.ones(2, 5), "layer1"),
    "output function": ("layer1", lambda out: out[:1], "layer1"),
    "output text": ("layer1", "text", "layer1"),
    "output False": ("layer1", lambda out: False, "layer1"),
    "output tuple": ("layer1", lambda out: (out,), "layer1"),
    "output dtype by function": ("layer1", lambda out: out.double(), "layer1"),
    "input value": ("layer1:input", torch.ones(2, 5), "layer1:input"),
    "input function": ("layer1:input", lambda args: args[0].t(), "layer1:input"),
    "input two": ("layer1:input", lambda args: (*args, *args), "layer1:input"),
    "weight value": ("layer1.weight", torch.ones(3, 4), "layer1.weight"),
    "weight function": ("layer1.weight", lambda weight: weight.t(), "layer1.weight"),
    "weight text": ("layer1.weight", "text", "layer1.weight"),
    "grad_output value": ("layer1:grad_output", torch.ones(2, 5), "layer1"),
    "grad_output function": ("layer1:grad_output", lambda grad: grad[:1], "layer1"),
    "grad_output text": ("layer1:grad_output", lambda grad: "text", "layer1"),
    "grad_input value": ("layer1:grad_input", torch.ones(2, 5), "layer1"),
    "grad_input function": ("layer1:grad_input", lambda grads: (*grads, *grads), "layer1"),
}


@pytest.mark.parametrize(("site", "change", "named"), WRONG_EDITS.values(), ids=WRONG_EDITS)
def test_an_edit_that_does_not_fit(net, x, site, change, named):
    with untouched(net), pytest.raises(WrongReplacement, match=f"at site '{named}"):
        edited(net, x, {"head": nothing, site: change})
    assert hookline.installed(net) == []


def test_an_edit_that_raises_names_its_site(net, x):
    def broken(value):
        raise ZeroDivisionError("by zero")

    for site in (
        "layer1",
        "layer1:input",
        "head:kwargs",
        "layer1:grad_output",
        "layer1:grad_input",
        "layer1.weight",
    ):
        name = site.removesuffix(":grad_output").removesuffix(":grad_input")
        with untouched(net), pytest.raises(hookline.HookError, match=f"'{name}.*by zero") as caught:
            edited(net, x, {site: broken})
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert hookline.installed(net) == []


def test_a_weight_edit_that_fails_takes_the_earlier_ones_back(net, x):
    edits = {"layer1.bias": torch.zeros(4), "layer2.1.bias": torch.zeros(2), "layer1.weight": torch.ones(1)}
    with untouched(net), pytest.raises(WrongReplacement):
        edited(net, x, edits)


def test_a_patch_from_a_recording_that_does_not_fit(net, x):
    with record(net, "layer1") as rec:
        net(torch.ones(7, 3))
    with untouched(net), pytest.raises(WrongReplacement, match=r"'layer1'.*shape"):
        edited(net, x, {"layer1": rec["layer1"]})


def test_a_patch_from_a_site_that_never_fired(net):
    with record(net, "layer1") as rec:
        pass
    with untouched(net), pytest.raises(hookline.NotRecorded, match="never fired"):
        hookline.edit(net, {"layer1": rec["layer1"]})


def test_a_skip_without_anything_to_hand_on(net):
    with (
        untouched(net),
        hookline.edit(net, {"head": hookline.skip}),
        pytest.raises(WrongReplacement, match="'head'"),
    ):
        net.head(x=torch.ones(1), scale=torch.ones(1))
