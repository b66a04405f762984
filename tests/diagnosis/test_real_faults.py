"""Faults as people make them, in real trainings: each is told once, at its cause."""

import inspect
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import hookline

STEPS = 30
pytestmark = pytest.mark.usefixtures("nothing_was_compiled")


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(self.act(self.up(x)))


class Net(nn.Module):
    def __init__(self, width=12, detaches=False):
        super().__init__()
        self.stem = nn.Linear(6, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, 3)
        self.detaches = detaches

    def forward(self, x):
        h = self.stem(x)
        for place, block in enumerate(self.blocks):
            h = block(h)
            if self.detaches and place == 1:
                h = h.detach()
        return self.head(h)


TRUTH = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))


def batch(size=16):
    x = torch.randn(size, 6)
    return x, (x @ TRUTH).argmax(-1)


def told(model, optimizer, *, output=None, loss=F.cross_entropy, batches=None, before=lambda step: None):
    """Findings of a training but for notes: (rule, site, step), and how many follow from each."""
    run = output or model
    with hookline.watch(model) as watch:
        for step in range(STEPS):
            before(step)
            x, y = next(batches) if batches is not None else batch()
            optimizer.zero_grad()
            loss(run(x), y).backward()
            optimizer.step()
    return [one for one in hookline.diagnose(watch) if one.severity != "note"]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


def test_a_cut_is_one_finding_next_to_it_with_its_line():
    model = Net(detaches=True)
    [one] = told(model, torch.optim.Adam(model.parameters(), 1e-3))
    assert (one.rule, one.site, one.severity, one.step) == ("no_gradient", "blocks.1", "error", 0)
    assert one.line.startswith("test_real_faults.py:") and "detached" in one.why
    assert {other.site for other in one.consequences} == {"stem", "blocks.0"}


def test_a_part_under_no_grad_is_told_also_where_only_parts_are_called():
    model = Net()

    def output(x):
        with torch.no_grad():
            h = model.stem(x)
        for block in model.blocks:
            h = block(h)
        return model.head(h)

    [one] = told(model, torch.optim.Adam(model.parameters(), 1e-3), output=output)
    assert (one.rule, one.site, one.severity) == ("no_gradient", "stem", "error")
    assert "'stem' has no graph" in one.why


def test_an_optimizer_that_holds_another_model_is_told():
    student, teacher = Net(), Net()
    optimizer = torch.optim.Adam(teacher.parameters(), 1e-3)
    [one] = told(teacher, optimizer, output=student)
    assert (one.rule, one.step) == ("optimizer_without_gradients", 0)
    assert "never called" in one.why
    assert f"stepped at {STEPS - 1} steps" in one.why  # that the model is not called is known at the third


def test_an_optimizer_of_the_first_model_that_goes_on_with_a_second_is_told():
    models = [Net(), Net()]
    optimizer = torch.optim.Adam(models[0].parameters(), 1e-3)
    with hookline.watch(models[0]) as watch:
        for step in range(2 * STEPS):
            x, y = batch()
            optimizer.zero_grad()
            F.cross_entropy(models[step >= STEPS](x), y).backward()
            optimizer.step()
            if step == STEPS - 1:
                models[0].eval()(x)  # a validation after the first fold
    [one] = [one for one in hookline.diagnose(watch) if one.severity != "note"]
    assert one.rule == "optimizer_without_gradients" and abs(one.step - STEPS) <= 1


def test_a_weight_that_its_layer_does_not_use_is_told():
    model = Net()
    copied = model.head.weight.detach().clone()
    model.head.forward = lambda h: F.linear(h, copied, model.head.bias)
    [one] = told(model, torch.optim.Adam(model.parameters(), 1e-3))
    assert (one.rule, one.site) == ("no_gradient", "head.weight")
    assert "something else in its place" in one.why


def test_a_loss_that_reaches_the_weights_by_a_penalty_alone_is_told():
    model = Net()

    def loss(output, y):
        made_up = torch.randn(len(y), 3)
        return F.cross_entropy(made_up, y) + 1e-3 * sum(one.pow(2).sum() for one in model.parameters())

    [one] = told(model, torch.optim.Adam(model.parameters(), 1e-3), loss=loss)
    assert (one.rule, one.site, one.step) == ("in_vain", "", 0)


def test_a_penalty_beside_a_loss_is_no_fault():
    model = Net()

    def loss(output, y):
        return F.cross_entropy(output, y) + 1e-3 * sum(one.pow(2).sum() for one in model.parameters())

    assert told(model, torch.optim.Adam(model.parameters(), 1e-3), loss=loss) == []


def first_batches(loader):
    while True:
        yield next(iter(loader))


@pytest.mark.parametrize(
    ("shuffle", "rows", "expected"), [(False, 64, ["constant_batch"]), (True, 64, []), (False, 16, [])]
)
def test_a_loader_that_is_begun_anew_at_each_step_is_told(shuffle, rows, expected):
    loader = DataLoader(TensorDataset(*batch(rows)), batch_size=16, shuffle=shuffle)
    model = Net()
    found = told(model, torch.optim.Adam(model.parameters(), 1e-3), batches=first_batches(loader))
    assert [one.rule for one in found] == expected
    assert all("begun anew" in one.why for one in found)


def test_units_that_a_jump_of_their_bias_kills_are_dead_first_of_all():
    model = Net()

    def kill(step):
        if step == 12:
            with torch.no_grad():
                model.blocks[1].up.bias.sub_(40)

    [one] = told(model, torch.optim.Adam(model.parameters(), 1e-3), before=kill)
    assert (one.rule, one.site, one.step) == ("dead_units", "blocks.1.act", 12)
    assert ("exploding", "blocks.1.up.bias") in {(other.rule, other.site) for other in one.consequences}


def test_one_mistake_in_several_layers_is_one_finding():
    model = Net()
    for one in (model.stem, *(block.up for block in model.blocks)):
        nn.init.constant_(one.weight, 0.1)
    [one] = told(model, torch.optim.Adam(model.parameters(), 1e-3))
    assert (one.rule, one.site) == ("symmetric", "stem.weight")
    assert sum(other.rule == "symmetric" for other in one.consequences) == 3


def test_a_peak_of_the_learning_rate_is_no_reason_to_call_the_usual_one_nothing():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def peak(step):
        optimizer.param_groups[0]["lr"] = 30.0 if step == 5 else 1e-3

    found = told(model, optimizer, before=peak)
    assert found and "lr_zero" not in {other.rule for one in found for other in (one, *one.consequences)}


def test_a_search_for_nan_is_no_backward_of_the_training():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 1e4)  # overflows within steps
    with warnings.catch_warnings(), hookline.watch(model, diagnose=True) as watch:
        warnings.simplefilter("ignore")
        for _ in range(STEPS):
            x, y = batch()
            optimizer.zero_grad()
            F.mse_loss(model(x), F.one_hot(y, 3).float()).backward()
            optimizer.step()
    assert len(watch.wiring.losses) == 1
    assert watch.wiring.losses[0].calls == STEPS
    assert watch.scalars()["backwards"].values.max() == 1


def test_a_minimum_is_no_fault():
    x = torch.randn(200, 4)
    y = x @ torch.randn(4, 1) + 0.1 * torch.randn(200, 1)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hookline.watch(model) as watch:
        for _ in range(120):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
    assert watch.rows(kind="update")[-1]["absmax"] < 1e-6  # it does stand still
    assert [one.rule for one in hookline.diagnose(watch)] == ["constant_batch"]


def test_backwards_whose_gradients_are_cleared_in_between_do_not_add_up():
    model = Net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=5)
    with hookline.watch(model) as watch:
        for _ in range(8):
            x, y = batch()

            def closure(x=x, y=y):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                return loss

            optimizer.step(closure)
    assert "accumulation_not_divided" not in {one.rule for one in hookline.diagnose(watch)}


@pytest.mark.parametrize(("parts", "divided"), [(4, False), (4, True), (1, False)])
def test_backwards_that_add_up_are_told_where_the_loss_is_not_divided(parts, divided):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with hookline.watch(model) as watch:
        for _ in range(8):
            optimizer.zero_grad()
            for _ in range(parts):
                x, y = batch()
                loss = F.cross_entropy(model(x), y)
                (loss / parts if divided else loss).backward()
            optimizer.step()
    assert watch.scalars()["accumulated"].values.tolist() == [parts] * 8
    rules = {one.rule for one in hookline.diagnose(watch)}
    assert ("accumulation_not_divided" in rules) == (parts > 1 and not divided)


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.skip, self.up = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = F.relu(self.down(x))
        self.skip(h)
        return self.up(h)


def test_an_output_that_own_code_forgets_is_told_and_one_of_a_library_is_a_note():
    model = Unet()
    [one] = told(model, torch.optim.Adam(model.parameters(), 1e-3))
    assert (one.rule, one.site, one.severity) == ("no_gradient", "skip", "warning")
    model = Unet()
    with hookline.watch(model) as watch:
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        for _ in range(10):
            x, y = batch()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        watch.wiring.modules[""].is_own = False
    assert [one.severity for one in hookline.diagnose(watch)] == ["note"]


def test_dead_units_are_told_and_not_that_somebody_clears_gradients():
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3), nn.ReLU())
    nn.init.constant_(model[2].bias, -9.0)
    [one] = told(model, torch.optim.SGD(model.parameters(), lr=0.05))
    assert (one.rule, one.site, one.step) == ("dead_units", "3", 0)


@pytest.mark.parametrize("kind", [dict, lambda: {"set_to_none": False}])
def test_gradients_that_are_cleared_before_the_step_are_told(kind):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with hookline.watch(model) as watch:
        for _ in range(10):
            x, y = batch()
            F.cross_entropy(model(x), y).backward()
            optimizer.zero_grad(**kind())
            optimizer.step()
    first = hookline.diagnose(watch)[0]
    assert (first.rule, first.site) == ("gradients_wiped", "")


def test_a_dropout_of_everything_is_told():
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Dropout(1.0), nn.Linear(12, 3))
    [one] = told(model, torch.optim.Adam(model.parameters(), 1e-3))
    assert (one.rule, one.site) == ("drops_all", "2")


def test_a_weight_whose_gradient_somebody_takes_away_is_told():
    model = Net()
    model.blocks[1].up.weight.register_hook(torch.zeros_like)
    [one] = told(model, torch.optim.Adam(model.parameters(), 1e-3))
    assert (one.rule, one.site) == ("zero_gradient", "blocks.1.up.weight")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"lr": 0.1, "weight_decay": 3.0}, ["decay_large"]),
        ({"lr": 0.1, "weight_decay": 1e-2}, []),
    ],
)
def test_weight_decay_that_takes_the_weights_away_is_told(options, expected):
    model = Net()
    found = told(model, torch.optim.SGD(model.parameters(), **options))
    assert [one.rule for one in found] == expected


def test_a_learning_rate_below_zero_is_told():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer.param_groups[0]["lr"] = -0.05
    [one] = told(model, optimizer)
    assert (one.rule, one.step) == ("lr_negative", 0)


def test_nll_loss_of_probabilities_is_told():
    model = nn.Sequential(Net(), nn.Softmax(-1))
    [one] = told(model, torch.optim.Adam(model.parameters(), 1e-3), loss=F.nll_loss)
    assert one.rule == "loss_sign" and "logarithms" in one.why
    model = nn.Sequential(Net(), nn.LogSoftmax(-1))
    assert told(model, torch.optim.Adam(model.parameters(), 1e-3), loss=F.nll_loss) == []


def test_tanh_that_is_flat_from_the_start_is_told_once():
    model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 3))
    for layer in (model[0], model[2]):
        nn.init.normal_(layer.weight, 0.0, 12.0)
    [one] = told(model, torch.optim.SGD(model.parameters(), lr=0.01))
    assert (one.rule, one.site, one.step) == ("saturated", "1", 0)


def distance(rolled):
    return torch.sqrt((rolled**2).sum(1)).mean()


def angle(rolled):
    return torch.acos((1 - (rolled**2).sum(1)).clamp(-1, 1)).mean()


def logarithm(rolled):
    return -(rolled**2).sum(1).log().mean()


@pytest.mark.parametrize(("term", "op"), [(distance, "sqrt"), (angle, "acos"), (logarithm, "log")])
def test_nan_that_the_loss_makes_is_told_with_its_line(term, op):
    model = Net()

    count = iter(range(STEPS))

    def loss(output, y):
        away = 1 if next(count) < 12 else 0  # from then on a sample is compared with itself
        return F.cross_entropy(output, y) + 0.01 * term(output - output.roll(away, 0))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = told(model, torch.optim.SGD(model.parameters(), lr=0.01), loss=loss)
    one = found[0]
    assert (one.rule, one.step) == ("nan_origin", 12)
    assert f"It was born in the loss: {op} at {one.line}" in one.why.replace("one of ", "")
    source, first = inspect.getsourcelines(term)
    assert one.line == f"test_real_faults.py:{first + 1}" and op in source[1]


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_what_came_in_with_the_data_is_told_of_the_first_layer(value):
    model = Net()

    def batches():
        for step in range(STEPS):
            x, y = batch()
            if step >= 12:
                x[3, 2] = float(value)
            yield x, y

    found = told(model, torch.optim.SGD(model.parameters(), lr=0.01), batches=batches())
    assert (found[0].rule, found[0].site, found[0].step) == ("nan_origin", "stem", 12)
    assert "what came into the model may be the cause" in found[0].why


def test_pixels_are_the_cause_where_they_kill_layers_and_a_note_where_a_norm_takes_them():
    def pixels():
        while True:
            x, y = batch()
            yield x * 60 + 128, y

    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 3))
    first = told(model, torch.optim.SGD(model.parameters(), lr=0.1), batches=pixels())[0]
    assert (first.rule, first.site, first.step) == ("input_scale", "", 0) and first.consequences
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))
    assert told(model, torch.optim.SGD(model.parameters(), lr=0.1), batches=pixels()) == []


def test_a_batch_that_stays_for_long_is_told():
    def slow():
        for step in range(STEPS):
            if step % 15 == 0:
                kept = batch()
            yield kept

    model = Net()
    [one] = told(model, torch.optim.SGD(model.parameters(), lr=0.05), batches=slow())
    assert one.rule == "constant_batch" and "15 records at a time: 2 batches" in one.why


def test_a_warm_up_without_an_end_is_told():
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def warm(step):
        optimizer.param_groups[0]["lr"] = 1e-3 * (step + 1) / 400_000

    [one] = told(model, optimizer, before=warm)
    assert one.rule == "lr_warmup"


@pytest.mark.parametrize(("clears", "expected"), [(False, ["zero_grad_missing"]), (True, [])])
def test_gradients_that_one_of_two_models_never_clears_are_told(clears, expected):
    actor, critic = Net(), Net()
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.01) for one in (actor, critic)]
    with hookline.watch(critic) as watch:
        for _ in range(STEPS):
            x, y = batch()
            optimizers[0].zero_grad()
            if clears:
                optimizers[1].zero_grad()
            F.cross_entropy(critic(x), y).backward()
            F.cross_entropy(actor(x), y).backward()
            for one in optimizers:
                one.step()
    assert [one.rule for one in hookline.diagnose(watch) if one.severity != "note"] == expected


def test_adapters_that_are_zero_on_both_sides_are_symmetric_and_nobody_clears_them():
    class Adapter(nn.Module):
        def __init__(self, around):
            super().__init__()
            self.around = around.requires_grad_(False)
            self.a, self.b = nn.Parameter(torch.zeros(2, 6)), nn.Parameter(torch.zeros(3, 2))

        def forward(self, x):
            return self.around(x) + x @ self.a.T @ self.b.T

    model = Adapter(nn.Linear(6, 3))
    found = told(model, torch.optim.Adam([model.a, model.b], 1e-2))
    assert found[0].rule == "symmetric"
    assert "gradients_wiped" not in [one.rule for one in found]


class Attention(nn.Module):
    def __init__(self, knows_mode):
        super().__init__()
        self.embed, self.project, self.head = nn.Linear(6, 8), nn.Linear(8, 24), nn.Linear(8, 3)
        self.knows_mode = knows_mode

    def forward(self, x):
        parts = self.project(self.embed(x.unflatten(0, (4, 4)))).unflatten(-1, (3, 2, 4)).movedim(-2, 1)
        q, k, v = parts.unbind(-2)
        dropped = 0.2 if self.training or not self.knows_mode else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropped)
        return self.head(mixed.transpose(1, 2).flatten(2).flatten(0, 1))


@pytest.mark.parametrize(("knows_mode", "expected"), [(False, ["dropout_in_eval"]), (True, [])])
def test_attention_that_drops_in_eval_mode_is_told(knows_mode, expected):
    model = Attention(knows_mode)

    def evaluate(step):
        if step in (10, 20):
            model.eval()
            with torch.no_grad():
                model(batch()[0])
            model.train()

    found = told(model, torch.optim.Adam(model.parameters(), 1e-3), before=evaluate)
    assert [one.rule for one in found] == expected


def test_a_minimum_that_is_reached_at_once_is_no_fault():
    x = torch.linspace(0, 10, 50)[:, None]
    y = torch.sin(x) * 0.5 + 0.01 * torch.randn(50, 1)
    model = nn.Sequential(nn.Linear(1, 1, bias=False))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5)
    with hookline.watch(model) as watch:
        for _ in range(40):

            def closure():
                optimizer.zero_grad()
                loss = F.mse_loss(torch.sin(x) * model(torch.ones(1, 1)), y)
                loss.backward()
                return loss

            optimizer.step(closure)
    assert [one.rule for one in hookline.diagnose(watch) if one.severity != "note"] == []


def test_one_batch_is_a_note_also_where_the_training_breaks_on_it_later():
    kept = batch()
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3), nn.ReLU())
    nn.init.constant_(model[2].bias, 1.0)

    def kill(step):
        if step == 20:
            with torch.no_grad():
                model[2].bias.sub_(50)

    with hookline.watch(model) as watch:
        optimizer = torch.optim.Adam(model.parameters(), 2e-2)
        for step in range(40):
            kill(step)
            optimizer.zero_grad()
            F.cross_entropy(model(kept[0]), kept[1]).backward()
            optimizer.step()
    found = hookline.diagnose(watch)
    assert [(one.rule, one.site) for one in found if one.severity != "note"] == [("dead_units", "3")]
    assert [one.rule for one in found if one.severity == "note"] == ["constant_batch"]
