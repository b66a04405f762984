"""watch: rows of an unedited training loop, and nothing changed by looking."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

import hookline
from hookline.backends.torch import BACKEND
from hookline.lines.registry import forget, statistic
from hookline.rows import IDENTITY, HasRows
from hookline.schedule import any_of, every, first, logspaced
from hookline.testing import ZOO, untouched
from hookline.watching.watch import watch
from tests.support.compare import same_bits, tensors


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Linear(4, 2))


@pytest.fixture
def model():
    return make()


def train(model, steps=5, accumulate=1, clip=None, optimizer=None):
    torch.manual_seed(1)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(accumulate):
            (model(torch.randn(6, 3)).square().mean() / accumulate).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize(
    "options",
    [{}, {"inputs": True}, {"every": 2}, {"grads": False, "params": False}, {"histogram": False}],
    ids=str,
)
def test_training_with_a_watch_gives_bitwise_the_same_weights(options):
    plain = make()
    expected = train(plain)
    model = make()
    with untouched(model, parameters=False, rng=False), watch(model, **options) as w:
        got = train(model)
    assert same_bits(expected, got) and w.rows()
    assert same_bits(plain.state_dict(), model.state_dict())
    assert hookline.installed(model) == []


def test_rows_hold_the_statistics_of_what_flowed(model):
    reference = copy.deepcopy(model)
    x = torch.randn(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with hookline.record(reference, inputs=True, grads=True) as rec:
        reference(x).square().mean().backward()
    with watch(model, inputs=True) as w:
        model(x).square().mean().backward()
        optimizer.step()
    checked = 0
    for row in w.rows():
        name, kind = row["site"], row["kind"]
        assert row["step"] == 0 and row["rank"] == 0 and row["call"] == 0 and row["mode"] == "train"
        if kind in ("output", "grad_output", "input", "grad_input"):
            values = torch.cat([t.flatten() for t in tensors(getattr(rec[name], kind))]).double()
        elif kind == "param":
            values = reference.get_parameter(name).detach().flatten().double()
        elif kind == "param_grad":
            values = reference.get_parameter(name).grad.flatten().double()
        else:
            before, after = reference.get_parameter(name).detach(), model.get_parameter(name).detach()
            values = (after - before).flatten().double()
            if before.any():
                ratio = (after - before).norm().item() / before.norm().item()
                assert row["ratio"] == pytest.approx(ratio, rel=1e-5)
            else:
                assert math.isnan(row["ratio"])
        assert row["count"] == len(values)
        for stat, expected in {
            "mean": values.mean(),
            "std": values.std(),
            "min": values.min(),
            "max": values.max(),
            "absmax": values.abs().max(),
            "l2": values.norm(),
            "near_zero": (values.abs() <= 0.05).double().mean(),
        }.items():
            assert row[stat] == pytest.approx(expected.item(), rel=1e-9, abs=1e-12), (name, kind, stat)
        assert row["hist"].sum() == len(values)
        checked += 1
    kinds = {row["kind"] for row in w.rows()}
    assert kinds == {"output", "grad_output", "input", "grad_input", "param", "param_grad", "update"}
    assert checked == len(w.rows()) > 20


def test_steps_are_optimizer_steps_chosen_by_a_schedule(model):
    with watch(model, every=3) as w:
        train(model, steps=8)
    assert sorted({row["step"] for row in w.rows()}) == [0, 3, 6]
    with watch(model, every=any_of(first(2), every(4))) as w:
        train(model, steps=8)
    assert sorted({row["step"] for row in w.rows()}) == [0, 1, 4]
    with watch(model, every=logspaced(3)) as w:
        train(model, steps=8)
    assert sorted({row["step"] for row in w.rows()}) == [0, 1, 2, 4]


def test_a_step_that_is_not_recorded_has_no_taps_on_the_modules(model):
    seen = []
    with watch(model, every=2):
        for _ in range(4):
            seen.append(len([label for label in hookline.installed(model) if label.kind == "watching"]))
            train(model, steps=1)
    assert seen == [5, 0, 5, 0]


def test_micro_batches_merge_to_one_row_per_step(model):
    with watch(model) as w:
        train(model, steps=2, accumulate=3)
    rows = w.rows("0", kind="output")
    assert [row["step"] for row in rows] == [0, 1] and [row["count"] for row in rows] == [3 * 6 * 4] * 2
    assert [row["count"] for row in w.rows("0.weight", kind="param_grad")] == [12, 12]


def test_parameter_gradients_are_those_the_optimizer_uses(model):
    with watch(model) as w:
        train(model, steps=3, clip=1e-3)
    norms = [math.sqrt(sum(row["l2"] ** 2 for row in w.rows(kind="param_grad", step=s))) for s in range(3)]
    assert all(norm <= 1.0001e-3 for norm in norms)


def test_calls_of_one_module_are_told_apart():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            return self.fc(self.fc(x) * 100)

    model = Twice()
    with watch(model) as w:
        train(model, steps=2)
    assert [(row["step"], row["call"]) for row in w.rows("fc", kind="output")] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert w.rows("fc", "output", 0)[1]["absmax"] > w.rows("fc", "output", 0)[0]["absmax"]
    assert [row["call"] for row in w.rows("fc", kind="grad_output", step=0)] == [1, 0]


def test_training_and_validation_are_told_apart(model):
    with watch(model) as w:
        train(model, steps=2)
        model.eval()
        with torch.no_grad():
            for _ in range(3):
                model(torch.randn(10, 3))
        model.train()
        train(model, steps=1)
    modes = [(row["step"], row["mode"], row["count"]) for row in w.rows("0", kind="output")]
    assert modes == [(0, "train", 24), (1, "train", 24), (2, "eval", 120), (2, "train", 24)]


def test_forward_only_use_counts_calls(model):
    model.eval()
    with torch.no_grad(), watch(model, every=2) as w:
        for _ in range(5):
            model(torch.randn(4, 3))
    assert [row["step"] for row in w.rows("3", kind="output")] == [0, 2, 4]
    assert [row["step"] for row in w.rows("", kind="output")] == [0, 2, 4]


def test_steps_can_be_set_by_hand(model):
    with torch.no_grad(), watch(model) as w:
        w.step(100)
        model(torch.randn(4, 3))
    assert {row["step"] for row in w.rows()} == {100}


def test_nan_and_inf_are_counted_and_do_not_poison(model):
    with torch.no_grad():
        model[0].weight[0, 0] = float("nan")
        model[0].weight[1, 0] = float("inf")
    model.eval()
    with torch.no_grad(), watch(model) as w:
        model(torch.ones(4, 3))
    (row,) = w.rows("0", kind="output")
    assert row["nan"] == 4 and row["inf"] == 4 and row["count"] == 16 and math.isfinite(row["mean"])


def test_memory_keeps_the_last_steps_and_sinks_get_all(model):
    class Sink:
        def __init__(self):
            self.rows, self.closed = [], False

        def write(self, rows):
            self.rows += rows

        def close(self):
            self.closed = True

    sink = Sink()
    with watch(model, history=2, to=[sink]) as w:
        train(model, steps=5)
    assert sorted({row["step"] for row in w.rows()}) == [3, 4]
    assert sorted({row["step"] for row in sink.rows}) == [0, 1, 2, 3, 4] and sink.closed


def test_memory_of_rows_is_small(model):
    with watch(model) as w:
        train(model, steps=20)
    rows = w.rows()
    assert w._table.history.nbytes / len(rows) < 500 < rows[0]["hist"].nbytes


def test_a_sink_that_fails_is_reported_once_and_training_goes_on(model):
    class Broken:
        def write(self, rows):
            raise OSError("disk full")

        def close(self):
            raise OSError("still full")

    with pytest.warns(UserWarning, match="disk full") as caught, watch(model, to=Broken()) as w:
        train(model, steps=3)
    assert len(caught) == 1 and {row["step"] for row in w.rows()} == {0, 1, 2}


def test_a_statistic_that_fails_is_reported_once_with_its_site():
    class Sparse(nn.Module):
        def forward(self, x):
            return x.to_sparse()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.sparse, self.fc = Sparse(), nn.Linear(3, 3)

        def forward(self, x):
            self.sparse(x.detach())
            return self.fc(x)

    model = Net()
    with pytest.warns(UserWarning, match=r"watching 'sparse' \(output\) failed") as caught, watch(model) as w:
        train(model, steps=3)
    assert len(caught) == 1 and len(w.rows("fc", kind="output")) == 3


def test_an_exception_leaves_nothing(model):
    def interrupted(w):
        with w:
            model(torch.randn(4, 3))
            raise KeyboardInterrupt

    w = watch(model)
    with untouched(model, parameters=False, rng=False), pytest.raises(KeyboardInterrupt):
        interrupted(w)
    assert w.rows("0", kind="output") and hookline.installed(model) == []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    assert {row["step"] for row in w.rows()} == {0}


def test_several_optimizers_between_two_forwards_make_one_step():
    model = make()
    head = torch.optim.SGD(model[3].parameters(), lr=0.1)
    body = torch.optim.SGD(model[0].parameters(), lr=0.1)
    other = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    with watch(model) as w:
        for _ in range(3):
            model(torch.randn(4, 3)).sum().backward()
            other.step()
            head.step()
            body.step()
    assert [row["step"] for row in w.rows("0", kind="output")] == [0, 1, 2]
    assert [row["step"] for row in w.rows("0.weight", kind="update")] == [0, 1, 2]
    assert [row["step"] for row in w.rows("3.weight", kind="update")] == [0, 1, 2]
    assert all(row["l2"] > 0 for row in w.rows(kind="update"))
    assert w.rows("1.weight", kind="update") == []


def test_rows_can_be_read_between_steps_and_after_another_optimizer_took_over(model):
    with watch(model) as w:
        train(model, steps=2)
        assert {row["step"] for row in w.rows()} == {0, 1}
        train(model, steps=1)
        assert {row["step"] for row in w.rows()} == {0, 1, 2}


@pytest.mark.parametrize("by_keyword", [True, False])
def test_gradients_that_a_closure_makes_are_seen(by_keyword):
    model = make()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 3) * torch.arange(4.0)[:, None]).square().mean()
        loss.backward()
        return loss

    with watch(model) as w:
        for _ in range(2):
            optimizer.step(closure=closure) if by_keyword else optimizer.step(closure)
    assert [row["step"] for row in w.rows("3.weight", kind="param_grad")] == [0, 1]
    assert all(row["l2"] > 0 for row in w.rows("3.weight", kind="update"))


def test_a_new_optimizer_is_heard_also_where_an_old_one_was_freed():
    model = make()
    with watch(model) as w:
        for _ in range(20):
            other = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
            other.step()
            del other
            train(model, steps=1)
    assert [row["step"] for row in w.rows("0", kind="output")] == list(range(20))


def test_bf16_updates_that_get_lost_are_counted():
    model = nn.Linear(64, 64, bias=False).to(torch.bfloat16)
    with torch.no_grad():
        model.weight.fill_(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    with watch(model) as w:
        model(torch.ones(1, 64, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
    (row,) = w.rows("weight", kind="update")
    assert row["lost"] == 1.0 and row["ratio"] == 0.0


@pytest.mark.parametrize("histogram", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_updates_are_the_same_whether_they_are_made_or_not(monkeypatch, dtype, histogram):
    def updates():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(2, 40, 3), nn.Flatten(), nn.Linear(40 * 9, 60)).to(dtype)
        model[0].to(memory_format=torch.channels_last)
        model[2].weight = nn.Parameter(torch.randn(40 * 9, 60, dtype=dtype).t())  # it has gaps, or seems to
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with watch(model, histogram=histogram) as w:
            for _ in range(3):
                model(torch.ones(2, 2, 5, 5, dtype=dtype)).square().mean().backward()
                optimizer.step()
        return w.rows(kind="update")

    found = updates()
    monkeypatch.setattr(BACKEND, "side_by_side", lambda after, before: None)
    wanted = updates()
    assert len(found) == 12
    assert [repr(row) for row in found] == [repr(row) for row in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one["hist"] is other["hist"] is None or (one["hist"] == other["hist"]).all()


def test_gradients_under_a_scaler_are_given_unscaled(model):
    torch.manual_seed(3)
    x = torch.randn(4, 3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    plain, scaled = copy.deepcopy(model), model
    results = []
    for net, used in ((plain, None), (scaled, scaler)):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with watch(net, scaler=used) as w:
            loss = net(x).square().mean()
            if used is None:
                loss.backward()
                optimizer.step()
            else:
                used.scale(loss).backward()
                used.step(optimizer)
                used.update()
        results.append(w)
    for kind in ("grad_output", "param_grad"):
        for a, b in zip(results[0].rows(kind=kind), results[1].rows(kind=kind), strict=True):
            assert a["site"] == b["site"] and b["l2"] == pytest.approx(a["l2"], rel=1e-5)


@pytest.mark.parametrize("specimen", [s for s in ZOO if "checkpoint" in s.name], ids=str)
def test_checkpointing_counts_once_and_has_gradients(specimen):
    model, args, kwargs = specimen.seeded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model) as w:
        model(*args, **kwargs).sum().backward()
        optimizer.step()
    assert len(w.rows("two.0", kind="output")) == 1
    assert len(w.rows("two.0", kind="grad_output")) == 1


def test_every_specimen_can_be_watched(specimen):
    model, args, kwargs = specimen.seeded()
    if not specimen.steady:
        model(*args, **kwargs)
    with untouched(model, parameters=False, rng=False), watch(model, inputs=True) as w:
        output = model(*args, **kwargs)
        if specimen.trains:
            sum(t.abs().sum() for t in tensors(output) if t.requires_grad).backward()
    assert w.rows(kind="output")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"every": 0}, "whole number"),
        ({"every": "often"}, "no schedule"),
        ({"where": "nope"}, "no site"),
        ({"to": 3}, "no sink"),
    ],
    ids=str,
)
def test_bad_input_is_refused_and_leaves_nothing(model, options, word):
    with untouched(model), pytest.raises(hookline.HooklineError, match=word):
        watch(model, **options)


def test_added_statistics_are_columns(model):
    @statistic("test_peak", merge="max")
    def peak(x, xp):
        return x.abs().max() * 2

    try:
        with watch(model, stats=["p99", "test_peak"]) as w:
            train(model, steps=1, accumulate=2)
    finally:
        forget("test_peak")
    row = w.rows("0", kind="output")[0]
    assert row["min"] <= row["p99"] <= row["max"] and row["test_peak"] == pytest.approx(2 * row["absmax"])
    with pytest.raises(hookline.InvalidArgument, match="Did you mean 'p99'"):
        watch(model, stats=["p9"])


def test_channels_are_reduced_one_by_one_on_request():
    model = nn.Conv2d(2, 3, 3)
    x = torch.randn(4, 2, 6, 6)
    with torch.no_grad(), watch(model, channels=1) as w:
        out = model(x)
    channels = w.rows("", kind="output")[0]["channels"]
    assert channels["mean"] == pytest.approx(out.mean(dim=(0, 2, 3)).tolist(), rel=1e-5)
    assert channels["std"] == pytest.approx(out.transpose(0, 1).flatten(1).std(dim=1).tolist(), rel=1e-5)


class Parts(nn.Module):
    """Called only part by part, as Lightning's training_step does it."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def training_step(self, x):
        return self.head(self.body(x)).square().mean()


@pytest.mark.parametrize("schedule", [1, 3])
def test_a_model_that_is_only_called_part_by_part_has_its_steps(schedule):
    model = Parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, every=schedule) as w:
        for _ in range(7):
            optimizer.zero_grad()
            model.training_step(torch.randn(5, 3)).backward()
            optimizer.step()
    assert [row["step"] for row in w.rows("body", kind="output")] == list(range(0, 7, schedule))
    assert [row["count"] for row in w.rows("body", kind="output")] == [20] * len(range(0, 7, schedule))
    assert {row["call"] for row in w.rows()} == {0}


def test_steps_may_be_told_by_a_trainer():
    model = make()
    with watch(model) as w:
        w.steps_by_hand()
        for _ in range(3):
            loss = model(torch.randn(6, 3)).square().mean()
            grads = torch.autograd.grad(loss, list(model.parameters()))
            w.before_step({id(p): g for p, g in zip(model.parameters(), grads, strict=True)})
            with torch.no_grad():
                for p, g in zip(model.parameters(), grads, strict=True):
                    p -= 0.1 * g
            w.after_step()
    assert [row["step"] for row in w.rows("0", kind="output")] == [0, 1, 2]
    update, grad = w.rows("0.weight", kind="update")[1], w.rows("0.weight", kind="param_grad")[1]
    assert update["l2"] == pytest.approx(0.1 * grad["l2"], rel=1e-4)


def test_a_watch_and_its_run_answer_alike(model, tmp_path):
    with watch(model, to=tmp_path / "run") as w:
        train(model, steps=4)
    with hookline.open_run(tmp_path / "run") as run:
        assert isinstance(w, HasRows) and isinstance(run, HasRows)
        assert w.sites == run.sites and w.steps == run.steps == [0, 1, 2, 3]
        questions = [{}, {"site": "0*", "kind": "output"}, {"stat": "mean"}, {"steps": (1, 2)}]
        for asked in [*questions, {"steps": range(0, 4, 3)}]:
            mine, kept = w.rows(**asked), run.rows(**asked)
            assert len(mine) == len(kept) > 0
            key = lambda row: [str(row[name]) for name in IDENTITY]  # noqa: E731
            for a, b in zip(sorted(mine, key=key), sorted(kept, key=key), strict=True):
                assert a.keys() == b.keys()
                assert all(
                    np.array_equal(a[name], b[name], equal_nan=not isinstance(a[name], str)) for name in a
                ), asked
        with pytest.raises(hookline.InvalidArgument, match="'mean'"):
            w.rows(stat="meam")
        frames = w.to_pandas(), run.to_pandas()
        with_scalars = len(w.rows()) + len(w.rows(kind="scalar"))
        assert set(frames[0]) == set(frames[1]) and len(frames[0]) == len(frames[1]) == with_scalars
        assert len(w.plot("0*").axes) == len(run.plot("0*").axes)
