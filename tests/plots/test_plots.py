"""Plots: what is drawn from rows, for few sites and for many, and that nothing is shown."""

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")
import matplotlib.pyplot as plt

import hookline
from hookline import plots
from hookline.bins import folded
from hookline.lines import Stats


def rows_of(sites, steps=6, kinds=("output", "param_grad", "update"), mode="train"):
    random = np.random.default_rng(0)
    rows = []
    for step in range(steps):
        for number, site in enumerate(sites):
            for kind in kinds:
                stats = Stats.of(random.normal(size=50) * 2.0 ** (-number / 10) * (1 + step))
                row = {"site": site, "kind": kind, "step": step * 10, "call": 0, "rank": 0, "mode": mode}
                rows.append({**row, **stats.row(), "ratio": 10.0 ** -(number % 5)})
    return rows


FEW = [f"layer{n}" for n in range(5)]
MANY = [f"encoder.blocks.{n // 2}.{'attention' if n % 2 else 'mlp'}.projection" for n in range(200)]


@pytest.fixture(autouse=True)
def closed():
    assert not plt.get_fignums()
    yield
    plt.close("all")


@pytest.mark.parametrize("sites", [FEW, MANY], ids=["5 layers", "200 layers"])
def test_curves_have_a_line_for_each_site_and_say_which(sites):
    ax = plots.curves(rows_of(sites), "std")
    assert len(ax.lines) == len(sites)
    assert list(ax.lines[0].get_xdata()) == [0, 10, 20, 30, 40, 50]
    assert ax.get_yscale() == "log" and ax.get_xlabel() == "step"
    if len(sites) == 5:
        assert [text.get_text() for text in ax.get_legend().get_texts()] == sites
    else:
        assert ax.get_legend() is None
        named = [label.get_text() for label in ax.figure.axes[1].get_yticklabels()]
        assert named == ["0.mlp", "25.mlp", "50.mlp", "74.attention", "99.attention"]


def test_sites_are_chosen_by_glob_and_axes_may_be_given():
    figure, given = plt.subplots()
    ax = plots.curves(rows_of(FEW), "mean", site="layer[12]", ax=given)
    assert ax is given and len(ax.lines) == 2 and plt.get_fignums() == [figure.number]


@pytest.mark.parametrize("sites", [FEW, MANY], ids=["5 layers", "200 layers"])
def test_gradient_flow_has_bars_in_order_of_execution_and_few_enough_names(sites):
    rows = rows_of(sites)
    ax = plots.gradient_flow(rows)
    heights = [patch.get_height() for patch in ax.patches]
    assert heights == [row["l2"] for row in rows if row["kind"] == "param_grad" and row["step"] == 50]
    assert len(ax.get_xticklabels()) <= 40 and "step 50" in ax.get_title(loc="left")


def test_gradient_flow_marks_what_is_zero_or_not_finite():
    rows = rows_of(FEW)
    for row in rows:
        if row["site"] == "layer2":
            row["l2"] = 0.0
        if row["site"] == "layer4":
            row["nan"] = 3
    ax = plots.gradient_flow(rows, step=20)
    assert list(ax.lines[0].get_xdata()) == [2, 4]


@pytest.mark.parametrize("sites", [FEW, MANY], ids=["5 layers", "200 layers"])
def test_distributions_have_a_box_per_site(sites):
    ax = plots.distributions(rows_of(sites), step=0)
    assert len(ax.patches) == len(sites)
    box = ax.patches[0].get_path().vertices[:, 1]
    row = next(row for row in rows_of(sites) if row["kind"] == "output")
    assert row["min"] <= box.min() < 0 < box.max() <= row["max"]


def test_update_ratio_draws_the_healthy_line():
    ax = plots.update_ratio(rows_of(FEW))
    assert len(ax.lines) == 6 and list(ax.lines[-1].get_ydata()) == [1e-3, 1e-3]


def test_the_colourful_dimension_has_a_column_per_step_and_all_values():
    rows = rows_of(FEW)
    ax = plots.colorful_dimension(rows, "layer0")
    mesh = ax.collections[0]
    shares = mesh.get_array().filled(0)
    assert shares.shape[1] == 6 and np.allclose(shares.sum(axis=0), 1)


def test_folding_keeps_every_value_and_little_that_is_empty():
    hist = np.stack([Stats.of(np.random.default_rng(0).normal(size=1000)).hist], axis=1)
    image, magnitudes = folded(hist)
    assert image.sum() == 1000 and image.shape[0] == 2 * len(magnitudes) + 1 < 80
    zeros = np.stack([Stats.of([0.0] * 5).hist], axis=1)
    assert folded(zeros)[0].tolist() == [[5]]


@pytest.mark.parametrize("sites", [FEW, MANY], ids=["5 layers", "200 layers"])
def test_the_overview_has_curves_and_images(sites):
    figure = plots.overview(rows_of(sites))
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert {"mean of output", "std of output", "near_zero of output"} <= set(titles)
    assert sum(title.startswith("output of") for title in titles) == min(6, len(sites))
    figure.canvas.draw()


def test_training_and_validation_are_not_one_curve():
    rows = rows_of(FEW) + rows_of(FEW, steps=2, mode="eval")
    assert len(plots.curves(rows).lines[0].get_xdata()) == 6


def test_rows_without_histograms_still_have_curves():
    rows = [{**row, "hist": None} for row in rows_of(FEW)]
    assert len(plots.overview(rows).axes) == 3
    with pytest.raises(hookline.InvalidArgument, match="histogram=True"):
        plots.colorful_dimension(rows, "layer0")
    with pytest.raises(hookline.InvalidArgument, match="histogram=True"):
        plots.distributions(rows)


@pytest.mark.parametrize(
    ("draw", "word"),
    [
        (lambda rows: plots.curves(rows, site="nope"), "nothing to plot"),
        (lambda rows: plots.curves(rows, kind="input"), "param_grad"),
        (lambda rows: plots.curves(rows, "median"), "no 'median'"),
        (lambda rows: plots.curves([]), "nothing was recorded"),
    ],
)
def test_what_can_not_be_drawn_says_why(draw, word):
    with pytest.raises(hookline.InvalidArgument, match=word):
        draw(rows_of(FEW))


def test_nothing_is_ever_shown(monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *a, **k: pytest.fail("shown"))
    rows = rows_of(FEW)
    plots.overview(rows)
    plots.gradient_flow(rows)
