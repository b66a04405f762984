"""Looks at a loss: what it depends on by its graph, and what the operators before it show."""

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import hookline
from hookline.backends.torch import compat
from hookline.backends.torch.graph_look import walked

X, T, Y = torch.randn(8, 3), torch.randn(8), torch.randint(0, 3, (8,))


pytestmark = pytest.mark.usefixtures("nothing_was_compiled")


def net(out=3, *more):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, out), *more)


def trained(model, loss, steps=2, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with hookline.watch(model, **options) as w:
        for _ in range(steps):
            optimizer.zero_grad()
            loss(model).backward()
            optimizer.step()
    return w.wiring


def look(model, loss):
    return trained(model, loss).looks[0]


def test_a_loss_depends_on_the_leaves_of_its_graph():
    model, other = net(1), nn.Linear(3, 1)
    found = walked([model(X).mean()])
    assert found.leaves == {id(one) for one in model.parameters()} and found.is_whole
    assert not found.leaves & {id(one) for one in other.parameters()}
    assert found.operators[:2] == ["Mean", "Addmm"] and walked([torch.ones(1)]).leaves == set()


@pytest.mark.parametrize(
    ("finish", "divided"),
    [
        (lambda loss: loss, False),
        (lambda loss: loss / 4, True),
        (lambda loss: loss * 0.25, True),
        (lambda loss: (loss / 4) * torch.tensor(65536.0), True),
        (lambda loss: loss * torch.tensor(65536.0), False),
        (lambda loss: loss + loss, False),
    ],
)
def test_whether_a_loss_was_divided_last_of_all(finish, divided):
    assert walked([finish(F.mse_loss(net(1)(X), T[:, None]))]).divided is divided
    assert walked([net(1)(X).sum() / 8]).divided is None  # a mean, or a part of one


@pytest.mark.parametrize(
    ("loss", "op"),
    [
        (lambda m: F.mse_loss(m(X), T), "mse_loss"),
        (lambda m: nn.L1Loss()(m(X), T), "l1_loss"),
        (lambda m: nn.SmoothL1Loss()(T, m(X)), "smooth_l1_loss"),
        (lambda m: nn.HuberLoss()(m(X), T), "huber_loss"),
        (lambda m: ((m(X) - T) ** 2).mean(), "sub"),
        (lambda m: (m(X) * T).mean(), "mul"),
    ],
)
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_two_tensors_that_stretch_each_other_are_noted(loss, op):
    (place,) = look(net(1), loss).broadcast
    assert place.op == op and place.module == "" and place.line.startswith("test_graph_look.py:")
    assert "(8, 1)" in place.what and "(8,)" in place.what and "gives (8, 8)" in place.what


@pytest.mark.parametrize(
    "loss",
    [
        lambda m: F.mse_loss(m(X), T[:, None]),
        lambda m: (m(X) * torch.ones(1) * torch.tensor(2.0)).mean(),
        lambda m: (m(X) * torch.rand(8, 1)).mean() + (m(X) * torch.rand(1)).sum(),
        lambda m: ((m(X)[:, None] - m(X)[None]) ** 2).mean(),  # all pairs, as contrastive losses have them
        lambda m: (m(X) - torch.rand(8, 5)).abs().mean(),  # quantiles: one of the two is stretched
        lambda m: (m(X) * torch.rand(5)).mean(),  # an outer product with something that is no batch
    ],
)
def test_what_is_stretched_on_purpose_is_not_noted(loss):
    assert look(net(1), loss).broadcast == []


def test_a_softmax_of_a_softmax_is_noted():
    (place,) = look(net(3, nn.Softmax(-1)), lambda m: F.cross_entropy(m(X), Y)).double_softmax
    assert place.op == "cross_entropy" and place.what.startswith("softmax twice, the first at test_graph_look.py:")
    (place,) = look(net(3, nn.LogSoftmax(-1)), lambda m: F.cross_entropy(m(X), Y)).double_softmax
    assert place.what.startswith("log_softmax twice")
    target = (T > 0).float()
    (place,) = look(
        net(1, nn.Sigmoid()), lambda m: F.binary_cross_entropy_with_logits(m(X)[:, 0], target)
    ).double_softmax
    assert place.what.startswith("sigmoid twice")
    probabilities = torch.softmax(torch.randn(8, 3), -1)  # known by their values alone
    (place,) = look(net(3), lambda m: F.cross_entropy(probabilities + 0 * m(X), Y)).double_softmax
    assert place.what == "softmax twice"


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        (lambda: net(3), lambda m: F.cross_entropy(m(X), Y)),
        (lambda: net(3, nn.LogSoftmax(-1)), lambda m: F.nll_loss(m(X), Y)),
        (lambda: net(3, nn.Softmax(-1)), lambda m: -(m(X).log()[range(8), Y]).mean()),
        (lambda: net(3), lambda m: (m(X).softmax(-1) @ torch.randn(3, 3)).softmax(-1).sum()),
        (lambda: net(3), lambda m: m(X).log_softmax(0).log_softmax(1).sum()),  # Sinkhorn
        (lambda: net(1, nn.Sigmoid()), lambda m: F.binary_cross_entropy(m(X)[:, 0], (T > 0).float())),
    ],
)
def test_softmaxes_in_their_place_are_not_noted(model, loss):
    assert look(model(), loss).double_softmax == []


class Encoder(nn.Module):
    """An encoder and a head, between which something may cut the graph."""

    def __init__(self, between):
        super().__init__()
        self.encoder, self.head, self.aside = net(4), nn.Linear(4, 1), nn.Linear(4, 2)
        self.between = between

    def forward(self, x):
        hidden = self.between(self.encoder, x)
        self.aside(hidden)
        return self.head(hidden)


def under_no_grad(encoder, x):
    with torch.no_grad():
        return encoder(x)


def detached(encoder, x):
    return encoder(x).tanh().detach()


def reentrant(encoder, x):
    return checkpoint(encoder, x, use_reentrant=True)


@pytest.mark.parametrize(
    ("between", "words"), [(under_no_grad, "no_grad"), (detached, "detached"), (reentrant, "reentrant checkpoint")]
)
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_the_place_where_the_graph_is_cut(between, words):
    wiring = trained(Encoder(between), lambda m: m(X).sum())
    parameter = wiring.params["encoder.0.weight"]
    assert parameter.in_loss is False and parameter.grads == 0 and parameter.steps == 2
    assert words in parameter.cut
    line = between.__code__.co_firstlineno + (2 if between is under_no_grad else 1)
    assert parameter.cut_line == f"test_graph_look.py:{line}"
    assert wiring.params["head.weight"].in_loss is True and wiring.params["head.weight"].cut == ""
    assert wiring.looks[0].in_vain == ["aside"] and wiring.looks[0].on_params is True


def test_what_is_not_cut_has_no_line():
    wiring = trained(Encoder(lambda encoder, x: encoder(x)), lambda m: m(X).sum())
    assert all(one.in_loss is True for name, one in wiring.params.items() if "aside" not in name)
    aside = wiring.params["aside.weight"]
    assert aside.in_loss is False and aside.cut == "the loss does not depend on the output of 'aside'"
    assert wiring.modules["aside"].in_loss is False and wiring.modules["encoder"].in_loss is True


def test_whether_the_loss_depends_on_the_input():
    assert look(net(1), lambda m: m(X).sum()).on_input is True
    model = net(1)
    assert look(model, lambda m: m(X).sum() * 0 + model[0].weight.sum()).on_input is True
    assert look(model, lambda m: (m(X), model[0].weight.sum())[1]).on_input is False


class Drops(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.drop = nn.Linear(3, 4), nn.Dropout(0.5)

    def forward(self, x):
        return F.dropout(self.drop(self.fc(x)), 0.5)


@pytest.mark.parametrize("grads", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_dropout_that_drops_in_eval_mode_is_noted(grads):
    with hookline.watch(Drops().eval()) as w, grads():
        w._model(X)
    (place,) = w.wiring.dropout_in_eval
    assert (
        place.op == "dropout" and place.line == f"test_graph_look.py:{Drops.forward.__code__.co_firstlineno + 1}"
    )


def test_dropout_in_its_place_is_not_noted():
    with hookline.watch(net(3, nn.Dropout(0.5)).eval()) as w, torch.no_grad():
        w._model(X)
    assert w.wiring.dropout_in_eval == []
    monte_carlo = Drops().eval()
    monte_carlo.drop.train()
    with hookline.watch(monte_carlo) as w, torch.no_grad():
        w._model(X)
    assert w.wiring.dropout_in_eval == []


@pytest.mark.parametrize("way", ["plain", "autocast", "checkpoint", "reentrant", "dropout"])
def test_a_look_changes_no_bit(way):
    def run(watched):
        torch.manual_seed(0)
        model = nn.Sequential(net(4, nn.BatchNorm1d(4), nn.Dropout(0.3)), nn.Linear(4, 3))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        block = hookline.watch(model) if watched else torch.enable_grad()
        found = []
        with block:
            for _ in range(3):
                x = torch.randn(8, 3, requires_grad=way == "reentrant")
                with torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
                    if "e" in way and way != "plain":
                        hidden = checkpoint(model[0], x, use_reentrant=way == "reentrant")
                        out = model[1](F.dropout(hidden, 0.2))
                    else:
                        out = model(x)
                    loss = F.cross_entropy(out.softmax(-1), Y)
                optimizer.zero_grad()
                loss.backward()
                found += [loss.detach().clone(), *(one.grad.clone() for one in model.parameters())]
                optimizer.step()
                found += [x._version, out._version, *(one._version for one in model.parameters())]
        return [*found, *model.state_dict().values(), torch.get_rng_state()], block

    (plain, _), (seen, w) = run(False), run(True)
    assert len(plain) == len(seen)
    assert all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(plain, seen, strict=True)
    )
    assert len(w.wiring.looks) == 1 and compat.dispatch_modes() == []


def test_rows_are_the_same_with_a_look_and_without():
    def rows(looks):
        model = net(3)
        with hookline.watch(model) as w:
            if not looks:
                w._wired.looking.switch(False, {}, lambda *told: None)
            F.cross_entropy(model(X), Y).backward()
        return [{**row, "hist": row["hist"].tolist()} for row in w.rows()]

    assert rows(True) == rows(False)


def test_others_modes_are_left_alone():
    from torch.utils.flop_counter import FlopCounterMode

    model = net(3)
    counter = FlopCounterMode(display=False)
    with hookline.watch(model) as w:
        out = model(X)
        with counter:  # it is put on above the look and taken off after it
            F.cross_entropy(out @ torch.ones(3, 3), Y).backward()
    assert counter.get_total_flops() > 0 and compat.dispatch_modes() == [] and w.wiring.looks
    with counter, hookline.watch(model) as w:  # where there is a mode already, the operators are not looked at
        F.cross_entropy(model(X), Y).backward()
        assert len(compat.dispatch_modes()) == 1
    assert w.wiring.looks[0].on_params is True and w.wiring.looks[0].on_input is None


def test_a_forward_that_raises_leaves_no_mode_behind():
    model = net(3)
    with pytest.raises(RuntimeError), hookline.watch(model):
        model(torch.randn(8, 7))
    assert compat.dispatch_modes() == []


def test_compiled_code_is_not_looked_into():
    model = torch.compile(net(3), backend="aot_eager")
    wiring = trained(model, lambda m: F.cross_entropy(m(X), Y))
    assert {one.in_loss for one in wiring.params.values()} == {True}  # by their gradients
    assert wiring.looks[0].on_input is None and wiring.looks[0].in_vain == []


def test_looks_in_several_threads_leave_no_mode_behind():
    model, left = net(3, nn.Dropout(0.5)).eval(), []

    def calls():
        with torch.no_grad():
            for _ in range(20):
                model(X)
        left.append(compat.dispatch_modes())

    with hookline.watch(model):
        threads = [threading.Thread(target=calls) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert left == [[]] * 4
