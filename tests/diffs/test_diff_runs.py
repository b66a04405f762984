"""Two stored runs, compared step by step: the first step and site at which they part, and why."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch
from torch import nn

import hookline
from hookline import InvalidArgument, NoSuchSite, RunError
from hookline.diffs.run_histograms import moved
from hookline.diffs.run_measuring import rounding, step_of_values
from hookline.diffs.runs import diff_runs
from hookline.histograms import Histograms
from hookline.rows import COUNTS, FLOATS, Rows
from tests.support.rows import row

STEPS = 10


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


class Block(nn.Module):
    """Attention and its like: the gradient of a key's bias is nothing but rounding."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(x)


def transformer():
    return nn.Sequential(nn.Linear(8, 16), Block(16), nn.Linear(16, 4))


def train(
    folder,
    net=mlp,
    *,
    seed=0,
    steps=STEPS,
    lr=0.1,
    optimizer=torch.optim.SGD,
    before=None,
    after=None,
    noise=0.0,
    batch=None,
    config=None,
    fingerprint=True,
    first=0,
    wrap=lambda model: model,
    **how,
):
    """Trains a small model and keeps the run; `before` gets (step, model, x), `after` (step, model)."""
    torch.manual_seed(seed)
    model = net()
    inner = wrap(model)
    stepper = optimizer(model.parameters(), lr=lr)
    data, rounding_ = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)

    def shake(module, args, output):
        signs = torch.randn(output.shape, generator=rounding_).sign()
        return output * (1 + noise * signs)

    if noise:
        for module in model.modules():
            if not list(module.children()) and not isinstance(
                module, nn.modules.linear.NonDynamicallyQuantizableLinear
            ):
                module.register_forward_hook(shake)
    shape = (8, 6, 8) if net is transformer else (32, 8)
    with hookline.watch(inner, to=folder, progress=False, fingerprint=fingerprint, config=config, **how) as w:
        for step in range(steps):
            x = torch.randn(shape, generator=data)
            if step < first:
                continue
            if before is not None:
                before(step, model, x)
            stepper.zero_grad()
            inner(x).square().mean().backward()
            if after is not None:
                after(step, model)
            stepper.step()
    return w


def at(step, change):
    """A change of the batch or the model at one step."""
    return lambda now, model, x: change(model, x) if now == step else None


def scaled(site, factor):
    def change(model, x):
        with torch.no_grad():
            model.get_submodule(site).weight.mul_(factor)

    return change


def cause(diff, name):
    (found,) = [one for one in diff.causes if one.name == name]
    return found


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    train(folder / "bits")
    train(folder / "stats", fingerprint=False)
    train(folder / "adam", optimizer=torch.optim.Adam, lr=1e-3, fingerprint=False, steps=40)
    return folder


# Bits


def test_the_same_training_twice_is_the_same_to_the_bit(base, tmp_path):
    train(tmp_path / "b")
    diff = diff_runs(base / "bits", tmp_path / "b")
    assert not diff and diff.first is None and diff.causes == [] and diff.unmatched == []
    assert {one.verdict for one in diff.sites if one.kind != "scalar"} == {"equal"} and diff.bound < 1e-4
    assert diff.notes[0].startswith("the bits of 280 rows of 28 series were compared")
    assert [one.site for one in diff.sites if one.kind == "output"] == ["0", "1", "2", "3", ""]


def test_the_last_bit_of_one_value_is_seen_at_its_step_and_site(base, tmp_path):
    def nudge(model, x):
        with torch.no_grad():
            weight = model[3].weight
            weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(9.0))

    train(tmp_path / "b", before=at(6, nudge))
    diff = diff_runs(base / "bits", tmp_path / "b")
    assert (diff.first.step, diff.first.site, diff.first.kind, diff.first.metric) == (6, "3", "output", "bits")
    assert diff.first.type == "Linear" and diff.first.verdict == "different" and diff.first.tolerance == 0
    assert {one.site for one in diff.sites if one.kind == "output" and one.differs} >= {"3", ""}
    assert "step 6" in str(diff)


def test_values_in_another_order_have_the_same_statistics_and_other_bits(base, tmp_path):
    def turn(model, x):
        x.copy_(x.flip(0))

    train(tmp_path / "b", before=at(4, turn), where="0")
    diff = diff_runs(base / "bits", tmp_path / "b", where="0")
    assert (diff.first.step, diff.first.site) == (4, "0") and cause(diff, "inputs").evidence["step"] == 4


def test_gradients_that_part_with_equal_outputs_are_told_as_such(base, tmp_path):
    def change(step, model):
        if step == 5:
            model[0].weight.grad.mul_(1.0001)

    train(tmp_path / "b", after=change)
    diff = diff_runs(base / "bits", tmp_path / "b")
    assert (diff.first.step, diff.first.label) == (5, "0.weight:param_grad")
    assert "all outputs of step 5 are the same" in cause(diff, "backward").sentence


def test_an_optimizer_that_does_something_else_parts_at_the_update(base, tmp_path):
    train(tmp_path / "b", optimizer=lambda params, lr: torch.optim.SGD(params, lr=lr, momentum=0.9))
    diff = diff_runs(base / "bits", tmp_path / "b")
    assert (diff.first.step, diff.first.kind) == (1, "update")  # the first step of momentum is a plain one
    assert {one.sentence for one in diff.causes if one.name == "setting"} == {
        "the optimizer's momentum is 0.0 in A and 0.9 in B."
    }


@pytest.mark.parametrize("kind", ["bits", "stats"])
def test_weights_inputs_and_settings_are_named(base, tmp_path, kind):
    bits = kind == "bits"
    train(tmp_path / "seed", seed=1, fingerprint=bits)
    diff = diff_runs(base / kind, tmp_path / "seed")
    assert (diff.first.step, diff.first.site) == (0, "0")
    assert set(cause(diff, "weights").evidence["weights"]) == {"0.weight", "0.bias", "3.weight", "3.bias"}

    train(tmp_path / "data", before=at(3, lambda model, x: x.mul_(1.5)), fingerprint=bits)
    diff = diff_runs(base / kind, tmp_path / "data")
    assert (diff.first.step, diff.first.site) == (3, "0")
    assert cause(diff, "inputs").evidence["step"] == 3 and "at that step" in cause(diff, "inputs").sentence

    train(tmp_path / "lr", lr=0.101, fingerprint=bits)
    diff = diff_runs(base / kind, tmp_path / "lr")
    assert (diff.first.step, diff.first.kind) == (0, "update")
    assert any("lr is 0.1 in A and 0.101 in B" in one.sentence for one in diff.causes)


def test_settings_of_modules_and_of_the_config(tmp_path):
    train(tmp_path / "a", config={"data": {"seed": 1, "path": "x"}})

    def other():
        net = mlp()
        net[1].eps = 1e-3
        return net

    train(tmp_path / "b", other, config={"data": {"seed": 2, "path": "x"}})
    diff = diff_runs(tmp_path / "a", tmp_path / "b")
    assert (diff.first.step, diff.first.site) == (0, "1")
    told = [one.sentence for one in diff.causes if one.name == "setting"]
    assert "config: data.seed is 1 in A and 2 in B." in told and any(
        "1's eps is 1e-05 in A" in one for one in told
    )


def test_dropout_without_a_seed(tmp_path):
    net = lambda: nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 4))  # noqa: E731
    train(tmp_path / "a", net)
    train(tmp_path / "b", net, before=at(2, lambda model, x: torch.rand(1)))
    diff = diff_runs(tmp_path / "a", tmp_path / "b")
    assert (diff.first.step, diff.first.site) == (2, "1") and cause(diff, "random numbers").site == "1"


def test_a_loss_alone_that_parts(base, tmp_path):
    torch.manual_seed(0)
    model = mlp()
    stepper = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(1)
    with hookline.watch(model, to=tmp_path / "b", fingerprint=True, progress=False):
        for _ in range(STEPS):
            stepper.zero_grad()
            (model(torch.randn(32, 8, generator=data)).square().mean() + 1.0).backward()  # the same gradients
            stepper.step()
    diff = diff_runs(base / "bits", tmp_path / "b")
    assert (diff.first.step, diff.first.site, diff.first.kind) == (0, "loss", "scalar")
    assert "the loss is not" in cause(diff, "loss").sentence


def test_an_equal_input_says_that_the_error_is_born_here(tmp_path):
    train(tmp_path / "a", inputs=True)
    train(tmp_path / "b", inputs=True, before=at(3, scaled("3", 1.001)))
    diff = diff_runs(tmp_path / "a", tmp_path / "b")
    assert (diff.first.step, diff.first.label) == (3, "3") and diff.first.born is True and diff.first.estimated
    train(tmp_path / "c", inputs=True, before=at(3, lambda model, x: x.mul_(2)))
    diff = diff_runs(tmp_path / "a", tmp_path / "c")
    assert (diff.first.step, diff.first.label) == (3, "(model):input")


# Statistics


def test_without_fingerprints_the_bound_is_told(base, tmp_path):
    train(tmp_path / "b", fingerprint=False)
    diff = diff_runs(base / "stats", tmp_path / "b")
    assert not diff and {one.verdict for one in diff.sites} == {"within"} and 0 < diff.bound < 1e-3
    assert "no fingerprints of bits" in diff.notes[0] and "rounding of the dtype" in diff.notes[1]
    mixed = diff_runs(base / "bits", tmp_path / "b")
    assert not mixed and "statistics of" in mixed.notes[0]


@pytest.mark.parametrize(("site", "factor"), [("0", 1.01), ("3", 1.0005)])
def test_a_change_that_is_no_rounding_is_found_by_statistics(base, tmp_path, site, factor):
    train(tmp_path / "b", before=at(6, scaled(site, factor)), fingerprint=False)
    diff = diff_runs(base / "stats", tmp_path / "b")
    assert (diff.first.step, diff.first.site, diff.first.metric) == (6, site, "stat")
    assert diff.first.error > diff.first.tolerance > 0 and " in A and " in diff.first.why


@pytest.mark.parametrize("net", [mlp, transformer], ids=["mlp", "transformer"])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam], ids=["SGD", "Adam"])
def test_rounding_that_a_training_amplifies_is_no_alarm_and_hides_no_change(tmp_path, net, optimizer):
    how = {"net": net, "optimizer": optimizer, "lr": 0.02 if optimizer is torch.optim.SGD else 1e-3}
    how |= {"steps": 60, "fingerprint": False}
    train(tmp_path / "a", **how)
    train(tmp_path / "b", noise=1.2e-7, **how)
    diff = diff_runs(tmp_path / "a", tmp_path / "b")
    assert not diff, (diff.first.step, diff.first.label, diff.first.error, diff.first.tolerance, diff.first.why)
    assert any("outputs are apart by no more than that: from step 0 on" in note for note in diff.notes)
    train(tmp_path / "c", noise=1.2e-7, before=at(40, scaled("0", 1.1)), **how)
    diff = diff_runs(tmp_path / "a", tmp_path / "c")
    assert diff.first.step == 40 and diff.first.site in ("0", "0.weight", "")


def test_halves_that_round_otherwise_are_no_alarm_and_hide_no_change(tmp_path):
    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = transformer()

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.net(x)

    def run(folder, noise=0.0, change=None):
        torch.manual_seed(0)
        model = Cast()
        stepper = torch.optim.Adam(model.parameters(), lr=1e-3)
        data, chance = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)

        def shake(module, args, output):
            signs = torch.randn(output.shape, generator=chance).sign()
            return (output.float() * (1 + noise * signs)).to(output.dtype)

        for name, module in model.named_modules():
            if noise and not list(module.children()) and not name.endswith("out_proj"):
                module.register_forward_hook(shake)
        with hookline.watch(model, to=folder, progress=False):
            for step in range(30):
                if step == change:
                    scaled("net.0", 1.3)(model, None)
                stepper.zero_grad()
                model(torch.randn(8, 6, 8, generator=data)).float().square().mean().backward()
                stepper.step()

    run(tmp_path / "a"), run(tmp_path / "b", noise=2.0**-8), run(tmp_path / "c", noise=2.0**-8, change=20)
    diff = diff_runs(tmp_path / "a", tmp_path / "b")
    assert not diff, (diff.first.step, diff.first.label, diff.first.error, diff.first.tolerance, diff.first.why)
    assert diff_runs(tmp_path / "a", tmp_path / "c").first.step == 20


def test_tolerances_of_a_user_come_first(base, tmp_path):
    train(tmp_path / "b", before=at(6, scaled("3", 1.01)))
    assert diff_runs(base / "bits", tmp_path / "b", rtol=1e-6).first.step == 6
    assert not diff_runs(base / "bits", tmp_path / "b", rtol=10.0, atol=10.0)
    only = diff_runs(base / "bits", tmp_path / "b", rtol={"**": 10.0}, atol={"3": 0.0, "**": 10.0})
    assert not only or only.first.site != "0"
    strict = diff_runs(base / "bits", tmp_path / "b", rtol={"3": 1e-9, "**": 10.0})
    assert (strict.first.step, strict.first.site) == (6, "3")
    assert "rtol=0.5" in diff_runs(base / "bits", tmp_path / "b", rtol=0.5).notes[0]
    with pytest.raises(InvalidArgument, match="rtol=-1"):
        diff_runs(base / "bits", tmp_path / "b", rtol=-1)


def test_nan_rows(base, tmp_path):
    def spoil(model, x):
        x[0, 0] = float("nan")

    for name in ("a", "b"):
        train(tmp_path / name, before=at(5, spoil), fingerprint=False)
    assert not diff_runs(tmp_path / "a", tmp_path / "b")
    diff = diff_runs(base / "stats", tmp_path / "a")
    assert (diff.first.step, diff.first.site) == (5, "0") and diff.first.why == "it has 0 NaN in A and 16 in B"
    assert diff.first.measure.nan_mismatch == 16 and diff.first.error == float("inf")
    assert diff.to_json()["first"]["error"] == "inf"


def test_another_batch_size_is_another_shape(base, tmp_path):
    def half(step, model, x):
        if step == 4:
            x.set_(x[:16].clone())

    train(tmp_path / "b", before=half)
    diff = diff_runs(base / "bits", tmp_path / "b")
    assert (diff.first.step, diff.first.site, diff.first.verdict) == (4, "0", "shape")
    assert diff.first.why == "it has 512 values in A and 256 in B"


def test_bf16_is_given_more_room_than_fp32(tmp_path):
    rng = np.random.default_rng(0)
    for dtype, mask in (("bf16", 0xFFFF0000), ("fp32", 0xFFFFFFFF)):
        values = rng.standard_normal(500).astype(np.float32)
        for name, factor in (("a", 1.0), ("b", 1.003)):
            bits = (values * np.float32(factor)).view(np.uint32) & np.uint32(mask)
            store(tmp_path / f"{dtype}-{name}", [row("fc", 0, values=bits.view(np.float32).astype(np.float64))])
    assert not diff_runs(tmp_path / "bf16-a", tmp_path / "bf16-b")
    assert diff_runs(tmp_path / "fp32-a", tmp_path / "fp32-b").first.site == "fc"


def test_places_of_other_names_are_paired_by_type_and_order_which_is_told(tmp_path):
    one = store(tmp_path / "one", [row(site, step) for step in range(3) for site in ("enc.0", "enc.1")])
    two = store(tmp_path / "two", [row(site, step) for step in range(3) for site in ("blocks.0", "blocks.1")])
    diff = diff_runs(one, two)
    assert not diff and any(
        "2 sites were paired by their type and order: enc.0 = blocks.0" in n for n in diff.notes
    )


def test_the_step_of_a_dtype_is_seen_by_its_values():
    values = np.random.default_rng(0).standard_normal(20)
    assert step_of_values(values) == 2.0**-52
    assert step_of_values(values.astype(np.float32).astype(np.float64)) == 2.0**-23
    assert step_of_values(values.astype(np.float16).astype(np.float64)) == 2.0**-10
    assert step_of_values(np.asarray([0.0, 1.0, -2.0, np.nan, np.inf])) == 2.0**-23
    assert rounding(2.0**-23, 1e12) == rounding(2.0**-23, 1e6) < 4e-5


def test_values_in_other_bins_are_counted_and_small_ones_left_out():
    def hist(**counts):
        dense = np.zeros(1113, np.int64)
        for place, count in counts.items():
            dense[int(place[1:])] = count
        return Histograms.of([dense, None])

    one, other = hist(b700=50, b600=50), hist(b700=40, b601=60)
    assert moved(one, other, np.asarray([2.0**-120, 1.0])).tolist() == [60.0, 0.0]
    assert moved(one, other, np.asarray([2.0**60, 1.0])).tolist() == [0.0, 0.0]


# What only one run has


def store(folder, rows, **facts):
    """A run that has these rows, without a model."""
    kept = hookline.RunStore(folder)
    kept.open({"sites": [[name, "Linear"] for name in dict.fromkeys(one["site"] for one in rows)], **facts})
    if rows:
        kept.write(rows)
    kept.close()
    return folder


def test_other_steps_are_told_and_the_common_ones_compared(base, tmp_path):
    train(tmp_path / "every", every=3)
    diff = diff_runs(base / "bits", tmp_path / "every")
    assert not diff and diff.sites[0].step == 9
    assert any("A has 10 steps from 0 to 9, B has 4 steps from 0 to 9: the 4 that" in note for note in diff.notes)
    train(tmp_path / "short", steps=6, before=at(5, scaled("3", 2.0)))
    diff = diff_runs(tmp_path / "short", base / "bits")
    assert diff.first.step == 5 and any("the 6 that both have, from 0 to 5" in note for note in diff.notes)


def test_no_common_step_site_or_row(base, tmp_path):
    late = store(tmp_path / "late", [row("0", step) for step in range(50, 55)])
    with pytest.raises(
        RunError, match=r"no step in common: .* has 10 steps from 0 to 9, .* 5 steps from 50 to 54"
    ):
        diff_runs(base / "stats", late)
    other = store(tmp_path / "other", [row("conv", step) for step in range(5)])
    fc = store(tmp_path / "fc", [{**row("fc", step), "kind": "input"} for step in range(5)])
    with pytest.raises(InvalidArgument, match="no site in common"):
        diff_runs(other, store(tmp_path / "odd", [row("fc", 0, "param")]))
    assert not diff_runs(other, store(tmp_path / "conv", [row("conv", step) for step in range(5)]))
    with pytest.raises(InvalidArgument, match="no site in common"):
        diff_runs(other, fc)
    with pytest.raises(RunError, match=r"the run in .*empty has no rows"):
        diff_runs(base / "stats", store(tmp_path / "empty", []))
    with pytest.raises(RunError, match="there is no run in"):
        diff_runs(base / "stats", tmp_path / "none")
    with pytest.raises(InvalidArgument, match="expected a Run or the folder of one, got a int"):
        diff_runs(base / "stats", 3)


def test_missing_and_extra_sites_calls_kinds_modes_are_told(base, tmp_path):
    rows = [
        row(site, step, kind) for step in range(3) for site in ("a", "b") for kind in ("output", "grad_output")
    ]
    one = store(tmp_path / "one", rows)
    two = store(
        tmp_path / "two",
        [
            *(r for r in rows if r["kind"] == "output" and r["site"] == "a"),
            *(row("a", s, call=1) for s in range(3)),
        ],
    )
    diff = diff_runs(one, two)
    assert not diff  # what both have is the same
    assert [(u.verdict, u.site, u.kind) for u in diff.unmatched] == [
        ("missing", "b", "output"),
        ("calls", "a", "output"),
    ]
    assert "only A has rows of kind 'grad_output'; these are not compared." in diff.notes
    assert [u.verdict for u in diff_runs(two, one).unmatched] == ["calls", "extra"]
    text = str(diff)
    assert "missing: b" in text and "calls: a" in text


def test_train_against_eval_is_a_mode(tmp_path):
    def run(folder, mode):
        torch.manual_seed(0)
        model = mlp().train(mode == "train")
        with hookline.watch(model, to=folder, progress=False, fingerprint=True), torch.no_grad():
            model(torch.ones(4, 8))

    run(tmp_path / "a", "train"), run(tmp_path / "b", "eval")
    diff = diff_runs(tmp_path / "a", tmp_path / "b")
    assert diff.first.site == "1" and cause(diff, "mode").evidence == {"a": "train", "b": "eval"}


# Names


def test_wrappers_are_no_other_names(base, tmp_path):
    train(tmp_path / "b", wrap=nn.DataParallel, before=at(7, scaled("3", 1.1)))
    diff = diff_runs(base / "bits", tmp_path / "b")
    assert (diff.first.step, diff.first.site, diff.first.other) == (7, "3", "module.3")
    assert not [one for one in diff.unmatched if one.verdict != "extra" or one.site not in ("", "module")]
    weights = [one for one in diff.sites if one.kind == "param"]
    assert {one.other for one in weights} == {f"module.{one.site}" for one in weights} and len(weights) == 6


def test_a_map_names_what_has_other_names(tmp_path):
    one = store(tmp_path / "one", [row(site, step) for step in range(3) for site in ("enc.0", "enc.1")])
    two = store(
        tmp_path / "two",
        [row(site, step, "output", (1.0, float(step))) for step in range(3) for site in ("blocks.0", "blocks.1")],
        sites=[["blocks.0", "Conv2d"], ["blocks.1", "Conv2d"]],
    )
    with pytest.raises(InvalidArgument, match="no site in common"):
        diff_runs(one, two)
    diff = diff_runs(one, two, map={"enc.*": "blocks.*"})
    assert (diff.first.step, diff.first.site, diff.first.other) == (0, "enc.0", "blocks.0")
    with pytest.raises(InvalidArgument, match="the map names nothing"):
        diff_runs(one, two, map={"x": "y"})


def test_where_chooses_sites(base, tmp_path):
    train(tmp_path / "b", before=at(2, scaled("0", 1.1)))
    diff = diff_runs(base / "bits", tmp_path / "b", where="3")
    assert {one.site for one in diff.sites if one.kind != "scalar"} == {"3", "3.weight", "3.bias"}
    assert (diff.first.step, diff.first.site) == (2, "3")
    with pytest.raises(NoSuchSite, match="no site matches 'fc'"):
        diff_runs(base / "bits", tmp_path / "b", where="fc")
    with pytest.raises(InvalidArgument, match="where=3"):
        diff_runs(base / "bits", tmp_path / "b", where=3)


# Runs that are not as they should be


def test_runs_of_several_ranks(tmp_path):
    for name, value in (("a", 1.0), ("b", 2.0)):
        for rank in range(2):
            rows = [
                row("fc", step, "output", (1.0, value if rank and step == 2 else 1.0), rank=rank)
                for step in range(4)
            ]
            kept = hookline.RunStore(tmp_path / name)
            kept.open({"sites": [["fc", "Linear"]], "rank": rank})
            kept.write(rows)
            kept.close()
    diff = diff_runs(tmp_path / "a", tmp_path / "b")
    assert (diff.first.step, diff.first.site, diff.first.part) == (2, "fc", "rank 1")
    assert [one.part for one in diff.sites] == ["rank 0", "rank 1"]
    alone = store(tmp_path / "alone", [row("fc", step, "output", (1.0, 1.0)) for step in range(4)])
    diff = diff_runs(tmp_path / "a", alone)
    assert not diff and "only A has rows of rank 1; these are not compared." in diff.notes


def test_a_resumed_run_is_one(base, tmp_path):
    train(tmp_path / "b", steps=5)
    torch.manual_seed(0)
    model = mlp()
    stepper = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        if step == 5:
            w = hookline.watch(model, to=tmp_path / "b", resume=True, fingerprint=True, progress=False).start()
        stepper.zero_grad()
        model(torch.randn(32, 8, generator=data)).square().mean().backward()
        stepper.step()
    w.stop()
    diff = diff_runs(base / "bits", tmp_path / "b")
    assert not diff and sum("280 rows of 28 series" in note for note in diff.notes) == 1


def test_a_killed_run_is_compared_as_far_as_it_goes(base, tmp_path):
    code = """
        import sys, time, torch
        from tests.diffs.test_diff_runs import train
        torch.set_num_threads(int(sys.argv[2]))  # with others, sums round otherwise
        train(sys.argv[1], steps=10, before=lambda step, model, x: time.sleep(60) if step == 7 else None)
        """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "b"), str(torch.get_num_threads())],
        env={**os.environ, "PYTHONPATH": "."},
    )
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            time.sleep(0.2)
            try:
                if hookline.open_run(tmp_path / "b").steps[-1:] == [6]:
                    break
            except (RunError, IndexError):
                continue
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    diff = diff_runs(base / "bits", tmp_path / "b")
    assert not diff and any(
        note.startswith("B may be only a part of a run: it is still being") for note in diff.notes
    )
    assert any("the 7 that both have, from 0 to 6" in note for note in diff.notes)


@pytest.mark.filterwarnings("ignore:a part of the run")
def test_a_damaged_run_is_compared_without_what_is_damaged(base, tmp_path):
    train(tmp_path / "b")
    (file,) = (tmp_path / "b").glob("*.sqlite")
    with sqlite3.connect(file) as connection:
        numbers = [number for (number,) in connection.execute("SELECT number FROM block ORDER BY number")]
        connection.execute("UPDATE block SET stats = ? WHERE number = ?", (b"nonsense", numbers[0]))
    diff = diff_runs(base / "bits", tmp_path / "b")
    assert not diff and any(note.startswith("B is damaged: ") and "frame" in note for note in diff.notes)
    file.write_bytes(file.read_bytes()[:3000])
    with pytest.raises(RunError, match="damaged"):
        diff_runs(base / "bits", tmp_path / "b")


def test_a_run_of_a_newer_format_says_so(base, tmp_path):
    train(tmp_path / "b", steps=1)
    (file,) = (tmp_path / "b").glob("*.sqlite")
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE name = 'version'")
    with pytest.raises(RunError, match="newer hookline"):
        diff_runs(base / "bits", tmp_path / "b")


def test_whatever_stands_in_the_place_of_a_fingerprint(tmp_path):
    values = ["x", "0" * 15, "g" * 16, 3, None, ["a"], "0123456789abcdef", "-123456789abcdef"]
    for name in ("a", "b"):
        store(tmp_path / name, [row("fc", step, fingerprint=value) for step, value in enumerate(values)])
    diff = diff_runs(tmp_path / "a", tmp_path / "b")
    assert not diff and diff.notes[0].startswith("the bits of 1 of 8 rows")


def test_open_runs_stay_open(base):
    with hookline.open_run(base / "bits") as run:
        assert not diff_runs(run, run)
        assert run.rows("0", "output")


def test_numbers_that_somebody_logs_are_told_and_make_no_difference(tmp_path):
    for name, seconds in (("a", 1.5), ("b", 2.5)):
        torch.manual_seed(0)
        model = mlp()
        stepper = torch.optim.SGD(model.parameters(), lr=0.1)
        with hookline.watch(model, to=tmp_path / name, fingerprint=True, progress=False) as w:
            model(torch.ones(4, 8)).sum().backward()
            stepper.step()
            w.log(seconds=seconds)
    diff = diff_runs(tmp_path / "a", tmp_path / "b")
    assert not diff and any("seconds was logged, and is 1.5 in A and 2.5 in B" in note for note in diff.notes)


def test_a_thousand_sites_take_seconds_and_little_memory(tmp_path):
    sites, steps = 1000, 100
    for name in ("a", "b"):
        rng = np.random.default_rng(0)
        series = [(f"layer{at}", "output", 0, "train") for at in range(sites)]
        kept = hookline.RunStore(tmp_path / name)
        kept.open({"sites": [[one[0], "Linear"] for one in series]})
        for step in range(steps):
            numbers = np.abs(rng.standard_normal((len(FLOATS), sites))) + 1
            if name == "b" and step == 70:
                numbers[:, 321] *= 2
            counts = np.zeros((len(COUNTS), sites), np.int64)
            counts[COUNTS.index("count")] = 5000
            kept.write(Rows(series, np.full(sites, step), counts, numbers, Histograms.none(sites), [{}] * sites))
        kept.close()
    begun = time.process_time()
    diff = diff_runs(tmp_path / "a", tmp_path / "b")
    assert (diff.first.step, diff.first.site) == (70, "layer321") and len(diff.differing) == 1
    assert time.process_time() - begun < 20


def test_everything_of_it_can_be_said(base, tmp_path):
    train(tmp_path / "b", before=at(6, scaled("3", 1.1)))
    diff = diff_runs(base / "bits", tmp_path / "b")
    told = diff.to_json()
    assert told["verdict"] == "different" and told["first"]["step"] == 6 and len(told["sites"]) == len(diff.sites)
    assert diff.a == str(base / "bits") and diff.report(tmp_path / "diff.html").stat().st_size > 1000
