"""The pairs of bench/diff: their labels are proved by plain torch, and a diff is scored as the definitions say."""

import math
from dataclasses import replace

import pytest
import torch

import hookline
from bench.diff.case import BACKWARD, SETS, Case, Recipe, broken, equal, read_recipes
from bench.diff.page import BEGIN, END, section_of, with_section
from bench.diff.proof import born, distance, gradients, outputs
from bench.diff.report import line_of, summary_of
from bench.diff.score import Score, scored, totalled
from hookline.diffs.found import Cause, SiteDiff
from hookline.diffs.result import Diff

RECIPES = read_recipes()
BROKEN = [one for one in RECIPES if not one.equal]
EQUAL = [one for one in RECIPES if one.equal]
KNOWN = {one.name: one for one in RECIPES if one.set == "known"}
CAUSES = {
    *{"weights", "buffers", "exchanged weights", "transposed weight", "inputs", "mode", "random numbers", "dtype"},
    *{"setting", "type", "missing call", "additional call", "order", "code", "non-deterministic", "not finite"},
    "shape",
}
ROUNDED = {torch.float64: 1e-3, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""How far equal models may be apart, by the lowest dtype."""
FAMILIES = {"CNN", "encoder", "decoder", "LSTM", "RNN", "encoder-decoder", "U-Net", "MLP-Mixer", "GNN", "MoE"} | {
    *{"VAE", "ViT", "MLP", "GPT-2", "Llama", "BERT", "T5"}
}


def test_there_are_enough_of_each_kind():
    counts = {which: [sum(one.set == which for one in kind) for kind in (BROKEN, EQUAL)] for which in SETS}
    assert counts["known"][0] >= 36 and counts["known"][1] >= 18
    assert counts["unseen"][0] >= 12 and counts["unseen"][1] >= 6
    assert {one.family for one in BROKEN if one.set == "known"} >= FAMILIES


@pytest.mark.parametrize("recipe", BROKEN, ids=lambda one: one.name)
def test_a_broken_pair_parts_where_its_label_says(recipe):
    case = recipe.case()
    assert case.about and set(case.causes) <= CAUSES and set(case.sites) <= dict(case.a.named_modules()).keys()
    apart = distance(*outputs(case))
    if set(case.kinds) <= BACKWARD:
        assert apart < 1e-6 and distance(*gradients(case)) > 1e-3
    else:
        assert apart > 1e-7
    if case.is_born:
        assert born(case)[0] in case.sites
    else:
        assert born(case) == []


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's own, of compiling
@pytest.mark.parametrize("recipe", EQUAL, ids=lambda one: one.name)
def test_an_equal_pair_is_equal_within_rounding(recipe):
    case = recipe.case()
    bound = max(ROUNDED[one.dtype] for model in (case.a, case.b) for one in model.parameters())
    assert distance(*outputs(case)) < bound
    if case.loss is not None:
        assert distance(*gradients(case)) < bound


def test_a_pair_is_the_same_each_time_it_is_built():
    one, two = KNOWN["dropout_left_on"].case(), KNOWN["dropout_left_on"].case()
    assert distance(one.inputs, two.inputs) == 0
    assert distance(one.a.state_dict(), two.a.state_dict()) == 0
    assert distance(*outputs(one)) == distance(*outputs(two)) > 0


def test_a_distance_sees_shapes_and_what_is_not_finite():
    assert distance(torch.tensor([1.0, 4.0]), torch.tensor([1.0, 3.0])) == 0.25
    assert distance(torch.ones(2), torch.ones(2, 1)) == math.inf
    assert distance(torch.tensor([1.0, math.nan]), torch.ones(2)) == math.inf
    assert distance(torch.tensor([1.0, math.inf, math.nan]), torch.tensor([1.0, math.inf, math.nan])) == 0


def test_two_cases_of_one_name_and_labels_that_do_not_fit_are_refused():
    def leaky_slope() -> Case:
        raise AssertionError("never built")

    leaky_slope.__module__ = "bench.diff.cases.cnn"
    with pytest.raises(ValueError, match="two cases 'leaky_slope'"):
        broken("CNN")(leaky_slope)
    with pytest.raises(ValueError, match="two cases 'leaky_slope'"):
        equal("CNN")(leaky_slope)
    with pytest.raises(ValueError, match="expected sites in a broken case"):
        replace(KNOWN["leaky_slope"], equal=True).case()


RECIPE = Recipe("x", "CNN", "a stale buffer", "known", False, lambda: CASE)
CASE = Case(torch.nn.Identity(), torch.nn.Identity(), torch.ones(1), {"bn"}, {"buffers"})


def found(site="bn", kind="output", is_born=True, causes=("buffers",)):
    return Diff(
        "a",
        "b",
        first=SiteDiff(site, kind, born=is_born),
        causes=[Cause(name, site, "") for name in causes],
        forwards=["A", "B"],
    )


def test_a_diff_is_scored_by_its_first_place_and_its_causes():
    score = scored(RECIPE, CASE, found())
    assert all((score.detected, score.site, score.kind, score.born, score.cause, score.cause_any))
    late = scored(RECIPE, CASE, found("fc", "input", None, ("weights", "buffers")))
    assert (late.detected, late.site, late.kind, late.born) == (True, False, False, False)
    assert (late.cause, late.cause_any) == (False, True)
    assert not scored(RECIPE, CASE, found(causes=())).cause_any
    assert not scored(RECIPE, CASE, Diff("a", "b")).detected
    assert (
        scored(RECIPE, CASE, found("bn.weight", "param_grad")).site and not scored(RECIPE, CASE, found("b")).site
    )


def test_other_inputs_are_born_in_no_module():
    handed = replace(CASE, inputs_b=torch.zeros(1))
    assert scored(RECIPE, handed, found(is_born=False)).born and not scored(RECIPE, handed, found()).born


def test_an_equal_pair_without_a_diff_counts_as_an_alarm():
    recipe = replace(RECIPE, equal=True)
    alarm = scored(recipe, replace(CASE, sites=()), found())
    scores = [
        alarm,
        scored(recipe, replace(CASE, sites=()), Diff("a", "b")),
        Score(recipe, trouble="KeyError: 'x'"),
    ]
    total = totalled([*scores, scored(RECIPE, CASE, found())])
    assert (total.broken, total.equal, total.alarms, total.counts["site"]) == (1, 3, 2, 1)
    assert "ALARM" in line_of(scores[0]) and "same" in line_of(scores[1]) and "KeyError" in line_of(scores[2])
    assert "2 of 3" in summary_of(scores)


def test_the_time_is_told_beside_that_of_the_forwards():
    score = scored(RECIPE, CASE, found())
    score.seconds, score.alone = 0.3, 0.1
    assert score.ratio == pytest.approx(1.5) and "2 forwards x 1.5" in line_of(score)
    assert "x: 0.30 s, 1.5 x its 2 forwards of 100 ms" in summary_of([score, Score(RECIPE)])
    assert Score(RECIPE).ratio == 0 and totalled([Score(RECIPE)]).largest is None


def test_the_section_names_pairs_of_the_first_set_only():
    unseen = scored(replace(RECIPE, set="unseen", about="a secret"), CASE, found("fc"))
    section = section_of([scored(RECIPE, CASE, found()), unseen])
    assert "| a stale buffer (CNN) | yes | yes | yes | yes | bn:output (born); buffers at bn |" in section
    assert "| first site right | 1 of 1 | 0 of 1 |" in section and "a secret" not in section


def test_the_section_replaces_the_one_before_and_nothing_else():
    page = with_section(f"above\n{BEGIN}\nold\n{END}\nbelow\n", "new\n")
    assert page == f"above\n{BEGIN}\nnew\n{END}\nbelow\n"
    with pytest.raises(ValueError, match="once each"):
        with_section("no markers", "new\n")


@pytest.mark.parametrize(
    "name",
    [
        *("batchnorm_epsilon", "stale_variance", "scale_forgotten", "cache_rolls_early", "layers_swapped"),
        *("last_norm_missing", "square_kernel_transposed", "experts_exchanged", "branch_detached"),
    ],
)
def test_diff_names_the_place_and_the_cause(name):
    recipe = KNOWN[name]
    case = recipe.case()
    score = scored(recipe, case, hookline.diff(*case.pairs, loss=case.loss, map=case.renamed))
    assert all((score.site, score.kind, score.born, score.cause)), score.told


@pytest.mark.parametrize("name", ["channels_last", "fused_attention", "renamed", "in_training", "unet_in_bf16"])
def test_diff_raises_no_alarm_over_rounding(name):
    case = KNOWN[name].case()
    assert hookline.diff(*case.pairs, loss=case.loss, map=case.renamed).first is None
