"""What a watch notes of how a training hangs together, and what its run keeps of it."""

import gc
import json
import sqlite3
import time
from contextlib import closing

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hookline
from hookline.runfiles.store import RunStore
from hookline.wiring import Change, Wiring

X, Y = torch.randn(8, 3), torch.randint(0, 3, (8,))


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=0.2), nn.Dropout(0.25), nn.Linear(4, 3))


def train(model, optimizer, steps, before=lambda step: None):
    for step in range(steps):
        before(step)
        optimizer.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimizer.step()


def trained(model, optimizer=None, steps=3, before=lambda step: None, **options):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    with hookline.watch(model, **options) as w:
        train(model, optimizer, steps, before)
    return w.wiring


def changes(wiring, what):
    return [one for one in wiring.changes if one.what == what]


def test_parameters_and_modules_are_described():
    wiring = trained(net())
    weight = wiring.params["0.weight"]
    assert (weight.module, weight.shape, weight.dtype, weight.trainable) == ("0", [4, 3], "float32", True)
    assert (weight.groups, weight.steps, weight.grads, weight.zero_grads) == (["0/0"], 3, 3, 0)
    assert (weight.first_grad, weight.last_grad, weight.in_loss, weight.cut) == (0, 2, True, "")
    assert wiring.modules["1"].settings == {
        "momentum": 0.2,
        "eps": pytest.approx(1e-5),
        "track_running_stats": 1.0,
    }
    assert wiring.modules["2"].settings["p"] == 0.25 and wiring.modules["0"].settings == {}
    assert [(one.type, one.calls, one.first_call, one.last_call) for one in wiring.modules.values()] == [
        (kind, 3, 0, 2) for kind in ("Sequential", "Linear", "BatchNorm1d", "Dropout", "Linear")
    ]
    assert wiring.changes == [] and wiring.losses[0].line.startswith("test_wiring.py:")
    assert (wiring.losses[0].shape, wiring.losses[0].calls, wiring.losses[0].first_step) == ([], 3, 0)


def test_only_recorded_steps_are_looked_at():
    wiring = trained(net(), steps=7, every=3)
    assert (wiring.params["0.weight"].steps, wiring.params["0.weight"].last_grad) == (3, 6)
    assert wiring.optimizers[0].steps == 3 and wiring.losses[0].calls == 3


def test_modules_that_are_not_chosen_are_not_counted():
    wiring = trained(net(), where="0")
    assert wiring.modules["0"].counted and not wiring.modules["3"].counted
    assert wiring.params["3.weight"].grads == 3 and wiring.params["3.weight"].in_loss is True


def test_optimizers_and_their_groups():
    model = net()
    groups = [{"params": model[0].parameters()}, {"params": model[3].parameters(), "lr": 0.5}]
    wiring = trained(model, torch.optim.AdamW(groups, lr=0.1, weight_decay=0.3))
    (optimizer,) = wiring.optimizers
    assert optimizer.type == "AdamW" and [one["lr"] for one in optimizer.groups] == [0.1, 0.5]
    assert [one["params"] for one in optimizer.groups] == [2, 2] and optimizer.groups[0]["weight_decay"] == 0.3
    assert [wiring.params[f"{name}.weight"].groups for name in (0, 1, 3)] == [["0/0"], [], ["0/1"]]
    assert optimizer.strangers == optimizer.others == []


def test_two_optimizers_on_one_parameter():
    model = net()
    first, second = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
    with hookline.watch(model) as w:
        for _ in range(3):
            F.cross_entropy(model(X), Y).backward()
            first.step()
            second.step()
    assert w.wiring.params["0.weight"].groups == ["0/0", "1/0"]


def test_an_optimizer_that_is_made_anew_is_no_second_one():
    model = net()
    old = torch.optim.SGD(model.parameters(), lr=0.1)
    new = torch.optim.SGD(model.parameters(), lr=0.01)
    with hookline.watch(model) as w:
        train(model, old, 3)
        train(model, new, 3)
    assert len(w.wiring.optimizers) == 2 and w.wiring.params["0.weight"].groups == ["1/0"]


def test_a_head_that_is_replaced_after_the_optimizer_was_made():
    model = net()

    def replace(step):
        if step == 2:
            model[3] = nn.Linear(4, 3)

    wiring = trained(model, steps=4, before=replace)
    assert changes(wiring, "replaced")[0] == Change(2, "replaced", "3.weight", "Parameter (3, 4)")
    assert wiring.params["3.weight"].groups == [] and wiring.params["0.weight"].groups == ["0/0"]
    assert wiring.optimizers[0].strangers == ["Parameter (3, 4), was '3.weight'", "Parameter (3,), was '3.bias'"]
    assert Change(2, "optimizer", "3.weight", "none") in wiring.changes


def test_what_an_optimizer_holds_of_nobody_and_of_others():
    model, decoder, scale = net(), nn.Linear(3, 3), torch.zeros(1, requires_grad=True)
    nobodys = nn.Parameter(torch.ones(7))
    optimizer = torch.optim.SGD([*model.parameters(), *decoder.parameters(), scale, nobodys], lr=0.1)
    with hookline.watch(model) as w:
        F.cross_entropy(decoder(model(X)) * scale.exp(), Y).backward()
        optimizer.step()
    (noted,) = w.wiring.optimizers
    assert noted.strangers == ["Parameter (7,)"]
    assert noted.others == ["2 of another module, Linear", "Tensor (1,), on which the loss depends"]


def test_an_optimizer_of_a_copy_is_told():
    model = net()
    optimizer = torch.optim.SGD([nn.Parameter(one.detach().clone()) for one in model.parameters()], lr=0.1)
    wiring = trained(model, optimizer)
    assert len(wiring.optimizers[0].strangers) == 6 and wiring.params["0.weight"].groups == []


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.embedding(x))


def test_tied_weights_and_no_longer_tied_ones():
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hookline.watch(model) as w:
        for step in range(3):
            if step == 1:
                assert w.wiring.params["head.weight"].shares_with == ["embedding.weight"]
                assert w.wiring.params["head.weight"].grads == w.wiring.params["embedding.weight"].grads == 1
                model.head.weight = nn.Parameter(model.head.weight.detach().clone())
            optimizer.zero_grad()
            model(torch.randint(0, 5, (3,))).sum().backward()
            optimizer.step()
    assert w.wiring.params["head.weight"].shares_with == []
    assert {(one.step, one.site) for one in changes(w.wiring, "tied")} == {
        (1, "embedding.weight"),
        (1, "head.weight"),
    }


VIEWS = {
    "rows": lambda whole: (whole[:2], whole[2:]),
    "rows that overlap": lambda whole: (whole[:3], whole[2:]),
    "columns, one between the other's": lambda whole: (whole[:, ::2], whole[:, 1::2]),
    "transposed": lambda whole: (whole.t(), whole[3:]),
    "the last column and the last row": lambda whole: (whole[:, 3], whole[3]),
    "a column and the row behind it": lambda whole: (whole[:3, 0], whole[3]),
    "expanded": lambda whole: (whole[1, 1].expand(5), whole[1]),
    "nothing": lambda whole: (whole[:0], whole),
    "one object": lambda whole: (whole, whole),
}


@pytest.mark.parametrize("cut", VIEWS.values(), ids=VIEWS)
def test_parameters_share_memory_where_the_bytes_from_their_first_to_their_last_value_meet(cut):
    whole = torch.arange(16.0).reshape(4, 4)
    one, other = (nn.Parameter(part) for part in cut(whole))
    model = nn.Module()
    model.register_parameter("one", one)
    model.register_parameter("other", other)

    def span(part):
        offsets = torch.arange(16).as_strided(part.shape, part.stride(), part.storage_offset())
        return range(0) if part.numel() == 0 else range(int(offsets.min()), int(offsets.max()) + 1)

    meet = bool(set(span(one)) & set(span(other)))
    with hookline.watch(model) as w:
        pass
    assert w.wiring.params["one"].shares_with == (["other"] if meet else [])
    assert w.wiring.params["other"].shares_with == (["one"] if meet else [])


def test_what_is_frozen_and_put_into_eval_mode_at_a_step():
    model = net()

    def change(step):
        if step == 2:
            model[0].requires_grad_(False)
            model[1].eval()

    wiring = trained(model, steps=5, before=change)
    assert changes(wiring, "trainable")[0] == Change(2, "trainable", "0.weight", "False")
    assert changes(wiring, "mode") == [Change(2, "mode", "1", "eval")] and wiring.modules["1"].training
    assert wiring.params["0.weight"].last_grad == 1 and len(wiring.looks) == 2


def test_validation_between_steps_is_no_change_of_mode():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hookline.watch(model) as w:
        for _ in range(3):
            train(model.train(), optimizer, 2)
            with torch.no_grad():
                model.eval()(X)
    assert w.wiring.changes == [] and all(one.training for one in w.wiring.modules.values())


def test_gradients_that_are_zero_all_over():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))
    with torch.no_grad():
        model[0].bias.fill_(-100)
    wiring = trained(model)
    assert wiring.params["0.weight"].zero_grads == wiring.params["0.weight"].grads == 3
    assert wiring.params["2.bias"].zero_grads == 0 and wiring.params["0.weight"].in_loss is True


class Lists(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.layers = [nn.Linear(3, 4), nn.Linear(9, 9)]
        self.more = {"a": (nn.Parameter(torch.ones(4)),)}

    def forward(self, x):
        return self.head(self.layers[0](x) * self.more["a"][0])


def test_modules_and_parameters_that_are_in_a_list_only():
    wiring = trained(Lists())
    assert wiring.modules["layers[0]"].outside == "layers[0]" and "layers[1]" not in wiring.modules
    outside = wiring.params["layers[0].weight"]
    assert (outside.module, outside.groups, outside.grads, outside.in_loss) == ("layers[0]", [], 3, True)
    assert "more['a'][0]" in wiring.params
    model = Lists()
    optimizer = torch.optim.SGD([*model.parameters(), *model.layers[0].parameters()], lr=0.1)
    assert trained(model, optimizer).params["layers[0].weight"].groups == ["0/0"]


def test_heads_that_are_used_in_turn_are_in_the_loss():
    class Turns(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads, self.step, self.never = (
                nn.ModuleList(nn.Linear(3, 3) for _ in range(2)),
                0,
                nn.Linear(3, 3),
            )

        def forward(self, x):
            self.step += 1
            return self.heads[self.step % 2](x)

    wiring = trained(Turns(), steps=6)
    assert wiring.params["heads.0.weight"].in_loss is wiring.params["heads.1.weight"].in_loss is True
    assert wiring.params["heads.0.weight"].cut == "" and wiring.params["never.weight"].in_loss is False
    assert wiring.params["heads.0.weight"].grads == 3 and wiring.modules["never"].calls == 0
    assert len(wiring.looks) <= 5


def test_a_lazy_model_is_described_once_it_has_a_shape():
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyLinear(3))
    with hookline.watch(model) as w:
        assert w.wiring.params == {}
        loss = F.cross_entropy(model(X), Y)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss.backward()
        optimizer.step()
    assert w.wiring.params["0.weight"].shape == [4, 3] and w.wiring.params["0.weight"].in_loss is True
    assert w.wiring.modules["0"].type == "Linear" and changes(w.wiring, "replaced") == []


def test_two_networks_that_train_in_turn():
    generator, critic = nn.Linear(3, 3), nn.Linear(3, 1)
    steps = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (generator, critic)]
    with hookline.watch(generator) as g, hookline.watch(critic) as c:
        for _ in range(3):
            critic(generator(X).detach()).mean().backward()
            steps[1].step()
            critic(generator(X)).mean().backward()
            steps[0].step()
    for w in (g, c):
        assert all(one.in_loss is True and one.groups == ["0/0"] for one in w.wiring.params.values())
        assert len(w.wiring.optimizers) == 1 and w.wiring.optimizers[0].strangers == []


def test_a_training_without_loss_and_one_that_is_frozen():
    model = net()
    with hookline.watch(model) as w, torch.no_grad():
        model(X)
    assert w.wiring.looks == [] and w.wiring.modules["0"].calls == 1
    model.requires_grad_(False)
    with hookline.watch(model) as w, pytest.raises(RuntimeError, match="does not require grad"):
        model(X).sum().backward()
    assert [one.on_params for one in w.wiring.looks] == [False]


def test_what_fails_is_told_once_and_the_training_goes_on(monkeypatch):
    from hookline.backends.torch.wired import TorchWiring

    def fails(self, optimizer):
        raise ValueError("no groups")

    monkeypatch.setattr(TorchWiring, "groups", fails)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        pytest.warns(UserWarning, match="wired failed and stops: ValueError: no groups") as told,
        hookline.watch(model) as w,
    ):
        train(model, optimizer, 3)
    assert len(told) == 1 and w.steps == [0, 1, 2]


# In the run


def test_the_run_has_the_same(tmp_path):
    wiring = trained(net(), to=tmp_path / "a")
    run = hookline.open_run(tmp_path / "a")
    assert run.wiring == wiring and run.damage == [] and "wiring" not in run.meta


def test_it_is_kept_soon_and_after_an_exception(tmp_path):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def breaks_off(step):
        if step == 2:
            until = time.monotonic() + 20
            while not hookline.open_run(tmp_path / "a").wiring.params and time.monotonic() < until:
                time.sleep(0.05)
            assert hookline.open_run(tmp_path / "a").wiring.params["0.weight"].grads >= 1
        if step == 4:
            raise KeyError

    with pytest.raises(KeyError), hookline.watch(model, to=tmp_path / "a"):
        train(model, optimizer, 5, breaks_off)
    assert hookline.open_run(tmp_path / "a").wiring.params["0.weight"].grads == 4


@pytest.mark.parametrize("wrong", [{"params": 3}, [], {"params": {"a": {"module": "", "shape": "x"}}}])
def test_a_wiring_that_is_none_is_left_out_and_told(tmp_path, wrong):
    store = RunStore(tmp_path / "a")
    store.open()
    store.note({"wiring": wrong})
    store.close()
    with pytest.warns(UserWarning, match="the fact 'wiring' is left out: expected what Wiring.to_json gives"):
        run = hookline.open_run(tmp_path / "a")
    assert run.wiring == Wiring() and len(run.damage) == 1


def test_a_damaged_wiring_is_left_out_and_told(tmp_path):
    trained(net(), to=tmp_path / "a")
    (file,) = (tmp_path / "a").glob("*.sqlite")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE meta SET value = '{}' WHERE name = 'wiring'")
    with pytest.warns(UserWarning, match="the fact 'wiring' is damaged and left out"):
        run = hookline.open_run(tmp_path / "a")
    assert run.wiring == Wiring() and len(run.damage) == 1 and run.steps == [0, 1, 2]


def test_a_run_without_it_has_an_empty_one(tmp_path):
    store = RunStore(tmp_path / "a")
    store.open()
    store.close()
    run = hookline.open_run(tmp_path / "a")
    assert run.wiring == Wiring() and run.damage == []


def test_json_is_that_of_dataclasses():
    from dataclasses import asdict

    wiring = trained(net())
    assert wiring.to_json() == asdict(wiring)
    assert Wiring.from_json(json.loads(json.dumps(wiring.to_json()))) == wiring
    assert wiring.to_json()["params"]["0.weight"]["groups"] is not wiring.params["0.weight"].groups


def test_an_optimizer_that_went_with_its_function_has_trained_the_model(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))

    def fit():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.rand(8, 4)).square().mean().backward()
            optimizer.step()

    with hookline.watch(model) as w:
        fit()
        gc.collect()
        model(torch.rand(8, 4)).square().mean().backward()  # gradients to look at
        model(torch.rand(8, 4))
    assert {parameter.groups[0] for parameter in w.wiring.params.values()} == {"0/0"}
    assert not [one for one in w.diagnose() if one.rule == "not_in_optimizer"]
