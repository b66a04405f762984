"""Seeds 003 and 004, two texts on PyTorch's hooks: their examples, and the state-dict hooks they name."""

import copy
import pickle

import pytest
import torch
from torch import nn

import hookline
from hookline.testing import untouched
from tests.support.resnet import ResNet18

# Seed 003, first example: hooks that double the input and the output


class M(nn.Module):
    """The seed's module: it hooks its own parts and keeps the handles."""

    def __init__(self):
        super().__init__()
        self.hooks = {}
        self.l1 = nn.Linear(1, 2)
        self.seen = []
        kinds = (nn.Conv2d, nn.BatchNorm2d, nn.Linear)
        self.hooks["pre"] = hookline.register_forward_pre_hook(self, self.forward_pre_hook, kinds)
        self.hooks["post"] = hookline.register_forward_hook(self, self.forward_hook, kinds)

    def forward(self, x):
        return self.l1(x)

    def forward_pre_hook(self, module, input):
        self.seen.append(("pre", module, input))
        return 2 * input[0]  # double the input

    def forward_hook(self, module, input, output):
        self.seen.append(("post", module, input, output))
        return 2 * output  # double the output for the next layer


def test_hooks_double_the_input_and_the_output():
    model = M().train()
    x = torch.randn(1)
    output = model(x)
    inner = nn.functional.linear(2 * x, model.l1.weight, model.l1.bias)
    assert torch.equal(output, 2 * inner)
    (pre, module, (given,)), (post, again, (doubled,), returned) = model.seen
    assert (pre, post) == ("pre", "post") and module is again is model.l1
    assert torch.equal(given, x)
    assert torch.equal(doubled, 2 * x)
    assert torch.equal(returned, inner)


def test_hooks_that_a_model_placed_on_itself_come_off_by_their_handles():
    model = M()
    for handle in model.hooks.values():
        handle.remove()
    x = torch.randn(1)
    assert torch.equal(model(x), nn.functional.linear(x, model.l1.weight, model.l1.bias))
    assert model.seen == [] and hookline.installed(model) == []


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["deepcopy", "pickle"]
)
def test_a_model_that_keeps_its_own_handles_can_be_copied(copied):
    model = M()
    twin = copied(model)
    x = torch.randn(1)
    assert torch.equal(twin(x), nn.functional.linear(x, model.l1.weight, model.l1.bias))
    assert twin.seen == [] and model.seen == [] and hookline.installed(twin) == []
    for handle in twin.hooks.values():  # the copy's handles hold nothing of the original's
        handle.remove()
    assert len(hookline.installed(model)) == 2


# Seed 003, second example: parameters edited inside a hook


class OneLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(1, 2)

    def forward(self, x):
        return self.l1(x)


def double_new(layer):
    layer.weight = nn.Parameter(layer.weight * 2)
    layer.bias = nn.Parameter(layer.bias * 2)


def double_in_place(layer):
    with torch.no_grad():
        layer.weight.mul_(2)
        layer.bias.mul_(2)


@pytest.mark.parametrize("double", [double_new, double_in_place])
def test_parameters_edited_inside_a_hook_double_with_each_batch(double):
    model = OneLayer().train()
    model.passedbatches = 0
    first = [parameter.detach().clone() for parameter in model.parameters()]
    seen = []

    def batch_print(module, inp, outp):
        module.passedbatches += 1
        seen.append((module.l1.weight.detach().clone(), module.l1.bias.detach().clone(), inp[0], outp))
        double(module.l1)

    handle = hookline.register_forward_hook(model, batch_print)
    for _ in range(3):
        model(torch.randn(1))
    handle.remove()
    model(torch.randn(1))

    assert model.passedbatches == 3
    for factor, (weight, bias, inp, outp) in zip((1, 2, 4), seen, strict=True):
        assert torch.equal(weight, first[0] * factor)
        assert torch.equal(bias, first[1] * factor)
        assert torch.equal(outp, nn.functional.linear(inp, weight, bias))  # made before the edit
    assert torch.equal(model.l1.weight, first[0] * 8) and torch.equal(model.l1.bias, first[1] * 8)
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in model.parameters())


# Seed 003, third example: all modules of a ResNet-18, in order of execution


SEED_ORDER = [
    "conv1",
    "bn1",
    "relu",
    "maxpool",
    "layer1.0.conv1",
    "layer1.0.bn1",
    "layer1.0.relu",
    "layer1.0.conv2",
    "layer1.0.bn2",
    "layer1.0.relu",
    "layer1.0",
    "layer1.1.conv1",
    "layer1.1.bn1",
    "layer1.1.relu",
    "layer1.1.conv2",
    "layer1.1.bn2",
    "layer1.1.relu",
    "layer1.1",
    "layer1",
    "layer2.0.conv1",
    "layer2.0.bn1",
    "layer2.0.relu",
    "layer2.0.conv2",
    "layer2.0.bn2",
    "layer2.0.downsample.0",
    "layer2.0.downsample.1",
    "layer2.0.downsample",
    "layer2.0.relu",
    "layer2.0",
    "layer2.1.conv1",
    "layer2.1.bn1",
    "layer2.1.relu",
    "layer2.1.conv2",
    "layer2.1.bn2",
    "layer2.1.relu",
    "layer2.1",
    "layer2",
    "layer3.0.conv1",
    "layer3.0.bn1",
    "layer3.0.relu",
    "layer3.0.conv2",
    "layer3.0.bn2",
    "layer3.0.downsample.0",
    "layer3.0.downsample.1",
    "layer3.0.downsample",
    "layer3.0.relu",
    "layer3.0",
    "layer3.1.conv1",
    "layer3.1.bn1",
    "layer3.1.relu",
    "layer3.1.conv2",
    "layer3.1.bn2",
    "layer3.1.relu",
    "layer3.1",
    "layer3",
    "layer4.0.conv1",
    "layer4.0.bn1",
    "layer4.0.relu",
    "layer4.0.conv2",
    "layer4.0.bn2",
    "layer4.0.downsample.0",
    "layer4.0.downsample.1",
    "layer4.0.downsample",
    "layer4.0.relu",
    "layer4.0",
    "layer4.1.conv1",
    "layer4.1.bn1",
    "layer4.1.relu",
    "layer4.1.conv2",
    "layer4.1.bn2",
    "layer4.1.relu",
    "layer4.1",
    "layer4",
    "avgpool",
    "fc",
]


@pytest.fixture(scope="module")
def resnet():
    return ResNet18(width=8, num_classes=10).eval()


def test_traversal_of_all_modules_of_a_resnet18_is_the_seeds(resnet):
    names = {module: name for name, module in resnet.named_modules()}
    order = []

    def hook(module, inp, outp):
        if names[module]:
            order.append(names[module])

    with hookline.register_forward_hook(resnet, hook, where="**"):
        resnet(torch.randn(1, 3, 64, 64))
    assert len(order) == 75
    assert order == SEED_ORDER
    assert hookline.installed(resnet) == []


def test_a_recordings_names_follow_the_same_order(resnet):
    with hookline.record(resnet, reduce=lambda value: value.mean()) as rec:
        resnet(torch.randn(1, 3, 64, 64))
    assert rec.names == [*dict.fromkeys(SEED_ORDER), ""]
    assert {name: len(rec[name].calls) for name in rec.names} == {
        name: SEED_ORDER.count(name) if name else 1 for name in rec.names
    }


# Seed 004: one hook on layer1.1.conv2


def test_hook_on_one_convolution_of_a_residual_net(resnet):
    with untouched(resnet):
        seen = []

        def hook_fn(module, input, output):
            seen.append((module, len(input), input[0].shape, len(output), output[0].shape, output[1].shape))

        with hookline.register_forward_hook(resnet, hook_fn, "layer1.1.conv2"):
            outputs = resnet(torch.ones(2, 3, 64, 64))
        assert outputs.shape == (2, 10)
        assert seen == [(resnet.layer1[1].conv2, 1, (2, 8, 16, 16), 2, (8, 16, 16), (8, 16, 16))]


def test_a_forward_hook_can_change_the_output_but_not_the_input(resnet):
    """Seed 004: "only changes of the output take effect, for it runs after forward()"."""
    x = torch.randn(1, 3, 64, 64)
    plain = resnet(x)

    def change_input(module, input, output):
        input = (input[0] * 0,)

    def change_output(module, input, output):
        return output * 0

    with hookline.register_forward_hook(resnet, change_input, "fc"):
        assert torch.equal(resnet(x), plain)
    with hookline.register_forward_hook(resnet, change_output, "fc"):
        assert torch.equal(resnet(x), torch.zeros(1, 10))


# State-dict hooks, the third kind that seed 003 names


@pytest.fixture
def net():
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))


KINDS = {
    "save-pre": (hookline.register_state_dict_pre_hook, 3),
    "save-post": (hookline.register_state_dict_post_hook, 4),
    "load-pre": (hookline.register_load_state_dict_pre_hook, 8),
    "load-post": (hookline.register_load_state_dict_post_hook, 2),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def register(net, kind, hook, where):
    return KINDS[kind][0](net, hook, where)


def use(net, kind):
    """Has torch run the hooks of this kind, and nothing else that changes the model."""
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    if kind.startswith("load"):
        net.load_state_dict(state)


def test_a_save_pre_hook_runs_before_the_module_writes(net):
    calls = []

    def hook(module, prefix, keep_vars):
        calls.append((module, prefix, keep_vars))
        with torch.no_grad():
            module.weight.fill_(7)

    with hookline.register_state_dict_pre_hook(net, hook, nn.Linear):
        state = net.state_dict()
    assert calls == [(net[0], "0.", False), (net[2], "2.", False)]
    assert state["0.weight"].unique().tolist() == [7] and state["2.weight"].unique().tolist() == [7]


def test_a_save_post_hook_may_change_what_is_saved(net):
    def hook(module, state_dict, prefix, local_metadata):
        state_dict[f"{prefix}note"] = torch.tensor(5)
        del state_dict[f"{prefix}bias"]

    plain = list(net.state_dict())
    with hookline.register_state_dict_post_hook(net, hook, "2"):
        state = net.state_dict()
    assert list(state) == [*(name for name in plain if name != "2.bias"), "2.note"]
    assert list(net.state_dict()) == plain


def test_a_load_pre_hook_may_change_what_is_loaded(net):
    state = {name: torch.ones_like(tensor) for name, tensor in net.state_dict().items()}
    state["old.weight"] = torch.full((1, 3), 4.0)
    del state["2.weight"]

    def rename(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        assert module is net
        state_dict["2.weight"] = state_dict.pop("old.weight")

    with hookline.register_load_state_dict_pre_hook(net, rename):
        assert net.load_state_dict(state) == ([], [])
    assert net[2].weight.tolist() == [[4.0] * 3]
    with pytest.raises(RuntimeError, match=r"old\.weight"):
        net.load_state_dict({**net.state_dict(), "old.weight": torch.ones(1)})


def test_a_load_post_hook_sees_and_may_change_the_incompatible_keys(net):
    state = net.state_dict()
    del state["2.bias"]
    seen = []

    def hook(module, incompatible_keys):
        seen.append((module, list(incompatible_keys.missing_keys)))
        incompatible_keys.missing_keys.clear()

    with hookline.register_load_state_dict_post_hook(net, hook, "2"):
        assert net.load_state_dict(state) == ([], [])  # strict, and without complaint
    assert seen == [(net[2], ["2.bias"])]
    with pytest.raises(RuntimeError, match=r"2\.bias"):
        net.load_state_dict(state)


@each_kind
def test_state_hooks_have_one_handle_for_all_places(net, kind):
    calls = []
    with untouched(net, parameters=False):
        handle = register(net, kind, lambda module, *rest: calls.append(module), "*")
        assert [label.site for label in hookline.installed(net)] == ["0", "1", "2"]
        use(net, kind)
        assert calls == [net[0], net[1], net[2]]
        handle.remove()
        handle.remove()
    use(net, kind)
    assert len(calls) == 3


@each_kind
def test_installed_tells_the_kind_of_a_state_hook(net, kind):
    with register(net, kind, lambda *parts: None, "1"):
        (label,) = hookline.installed(net)
    when, side = kind.split("-")
    assert label.site == "1" and side in label.kind and when in label.kind
    assert label.placed_at.startswith("test_seed_pytorch.py:")


@each_kind
def test_an_error_in_a_state_hook_names_the_site(net, kind):
    def broken(*parts):
        raise KeyError("lost")

    with untouched(net, parameters=False):
        with register(net, kind, broken, "2"), pytest.raises(hookline.HookError, match="'2'") as caught:
            use(net, kind)
        assert caught.value.site == "2"
        assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("kind", ["save-post", "load-post"])
def test_a_state_hook_that_returns_a_value_is_an_error_with_the_site(net, kind):
    # Torch has these two change what they get in place, and complains about a result without saying where.
    with register(net, kind, lambda *parts: {}, "2"), pytest.raises(hookline.HookError, match="'2'"):
        use(net, kind)


@each_kind
def test_state_hooks_stand_beside_other_peoples(net, kind):
    ours, theirs = [], []
    torch_names = {
        "save-pre": "register_state_dict_pre_hook",
        "save-post": "register_state_dict_post_hook",
        "load-pre": "register_load_state_dict_pre_hook",
        "load-post": "register_load_state_dict_post_hook",
    }
    getattr(net[0], torch_names[kind])(lambda *parts: theirs.append(1))
    with register(net, kind, lambda *parts: ours.append(1), "0"):
        use(net, kind)
    use(net, kind)
    assert (len(ours), len(theirs)) == (1, 2)


@each_kind
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["deepcopy", "pickle"]
)
def test_a_copy_of_a_model_with_state_hooks_has_no_live_one(net, kind, copied):
    calls = []
    with register(net, kind, lambda module, *rest: calls.append(module), "*"):
        twin = copied(net)
        use(twin, kind)
        assert calls == []
        assert hookline.installed(twin) == []
        use(net, kind)
        assert calls == [net[0], net[1], net[2]]
    for name, tensor in twin.state_dict().items():
        assert torch.equal(tensor, net.state_dict()[name])
