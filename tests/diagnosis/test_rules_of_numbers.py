"""Rules about numbers: each fires on what is broken, from the step at which it shows, and not on its twin."""

import numpy as np
import pytest

from hookline.diagnosis.diagnose import findings_in
from hookline.wiring import Look, Loss, Parameter, Place
from tests.support.rows import row
from tests.support.trainings import MODULES, scalar, steady, training, wired

NAN, INF = float("nan"), float("inf")
LINE = np.linspace(-1, 1, 40)
FROM = 8
"""The step at which something begins here."""


def told(rows, wiring=None, modules=MODULES, rules=None):
    return [(one.rule, one.site, one.step) for one in findings_in(training(rows, wiring, modules), rules=rules)]


def series(site, kind, values, **more):
    """Rows of the values at each step."""
    return [row(site, step, kind, value, **more) for step, value in enumerate(values)]


def after(before, then, steps=20):
    return [before] * FROM + [then] * (steps - FROM)


def relu(share):
    return np.concatenate([np.zeros(round(40 * share)), np.ones(40 - round(40 * share))])


# NaN and Inf

MASKED = [-INF, *LINE]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (steady(), []),
        ([*steady(), *series("b", "output", after(LINE, [NAN, *LINE]))], ("b", FROM)),
        # The first in order of execution is the origin, also where its parent comes first among the rows' sites.
        (
            [*series("a", "output", after(LINE, [NAN, *LINE])), *series("b", "output", after(LINE, [NAN, NAN]))],
            ("a", FROM),
        ),
        # In the backward the gradient of the later layer is computed first.
        (
            [
                *steady("a"),
                *steady("b"),
                *series("a", "grad_output", after(LINE, [NAN, *LINE])),
                *series("b", "grad_output", after(LINE, [NAN, *LINE])),
            ],
            ("b", FROM),
        ),
        # A forward that is finite comes before a backward that is not.
        (
            [
                *series("b", "output", after(LINE, [NAN, 1.0])),
                *series("a", "grad_output", after(LINE, [NAN, 1.0])),
            ],
            ("b", FROM),
        ),
        ([*steady(), *series("a.weight", "param", after(LINE, [NAN, *LINE]))], ("a.weight", FROM)),
        ([*steady(), *series("a.weight", "param_grad", after(LINE, [INF, *LINE]))], ("a.weight", FROM)),
        # A mask is -inf from the start, and nobody is harmed.
        ([*series("a", "output", [MASKED] * 20), *steady("b"), *steady("b", "grad_output")], []),
        # The same mask, and a NaN that comes later from another layer.
        (
            [
                *series("a", "output", [MASKED] * 20),
                *series("b", "output", after(LINE, [NAN, *LINE])),
                *steady("b", "grad_output"),
            ],
            ("b", FROM),
        ),
        # Inf in a gradient under a scaler is how it finds its scale.
        (
            [
                *steady(),
                *series("a.weight", "param_grad", [[INF, 1.0], *[LINE] * 19]),
                *scalar("loss_scale", [2.0] * 20),
            ],
            [],
        ),
    ],
)
def test_where_nan_comes_from(rows, expected):
    found = [(one.site, one.step) for one in findings_in(training(rows)) if one.rule == "nan_origin"]
    assert found == ([expected] if expected else [])


def test_the_operator_that_made_it_is_told_where_it_is_known():
    rows = series("a", "output", after(LINE, [NAN, *LINE]))
    wiring = wired(nonfinite=[Place("log", "a", "net.py:9")])
    (one,) = findings_in(training(rows, wiring))
    assert (one.rule, one.site, one.line, one.step) == ("nan_origin", "a", "net.py:9", FROM) and "log" in one.why


# The number format


def in_dtype(dtype):
    return wired(a_weight={"dtype": dtype}, a_bias={"dtype": dtype})


def test_values_that_are_about_to_overflow_and_gradients_that_underflow():
    large = series("a", "output", after(LINE, LINE * 4e4))
    assert told(large, in_dtype("float16"), rules=["near_overflow"]) == [("near_overflow", "a", FROM)]
    assert told(large, in_dtype("float32"), rules=["near_overflow"]) == []
    small = series("a.weight", "param_grad", after(LINE, LINE * 1e-6))
    assert told(small, in_dtype("float16"), rules=["underflow"]) == [("underflow", "a.weight", FROM)]
    assert told(small, in_dtype("bfloat16"), rules=["underflow"]) == []


def test_updates_that_are_lost_to_rounding():
    def updates(lost):
        return [
            row("a.weight", step, "update", LINE * 1e-4, ratio=1e-4, lost=share) for step, share in enumerate(lost)
        ]

    other = steady("b.weight", "update", 1e-4, ratio=1e-4, lost=0.1)
    two_others = [*other, *steady("b.bias", "update", 1e-4, ratio=1e-4, lost=0.1)]
    assert told([*updates(after(0.1, 0.9)), *two_others], wired()) == [("updates_lost", "a", FROM)]
    assert told(updates(after(0.1, 0.9)), wired()) == [("updates_lost", "", FROM)]
    assert told(updates([0.1] * 20), wired()) == []


# Units


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([relu(1.0)] * 20, [("dead_units", "act", 0)]),
        (after(relu(0.5), relu(1.0)), [("dead_units", "act", FROM)]),
        ([relu(0.5)] * 20, []),
        ([relu(0.9)] * 20, []),
        # One odd batch.
        ([*[relu(0.5)] * 18, relu(1.0), relu(0.5)], []),
    ],
)
def test_a_relu_that_puts_out_nothing(values, expected):
    assert told([*steady("a"), *series("act", "output", values)]) == expected


def layer(dead, steps=20, units=10, name="a"):
    """Gradients of a layer with so many units that have none, at each step."""
    rng = np.random.default_rng(0)
    weight = np.vstack([np.zeros((dead, 4)), rng.normal(size=(units - dead, 4))]).ravel()
    bias = np.concatenate([np.zeros(dead), rng.normal(size=units - dead)])
    rows = series(f"{name}.weight", "param_grad", [weight] * steps)
    return [*rows, *series(f"{name}.bias", "param_grad", [bias] * steps)]


def test_units_without_a_gradient_are_dead_where_no_module_is_the_activation():
    rules = ["dead_units"]
    (most,), (half,) = (findings_in(training(layer(dead)), rules=rules) for dead in (9, 7))
    assert (most.site, most.step, most.severity, half.severity) == ("a", 0, "warning", "note")
    assert told(layer(2), rules=rules) == [] == told(layer(7, steps=6), rules=rules)
    # All of them, and the next layer gets nothing but zeros: its weight has no gradient, its bias has.
    behind = [*series("b.weight", "param_grad", [np.zeros(8)] * 20), *series("b.bias", "param_grad", [LINE] * 20)]
    assert told([*steady("a"), *steady("b"), *layer(10), *behind], rules=rules) == [("dead_units", "a", 0)]
    # Without that there may be any reason behind it.
    assert told([*steady("a"), *steady("b"), *layer(10), *layer(0, name="b")], rules=rules) == []


def test_one_dead_layer_is_one_finding():
    rows = [
        *[*steady("a"), *series("act", "output", [relu(1.0)] * 20), *steady("b")],
        *[*series("a.weight", "param_grad", [np.zeros(40)] * 20), *steady("b.weight", "param_grad")],
        *[
            *series("a.weight", "update", [np.zeros(40)] * 20, ratio=0.0),
            *steady("b.weight", "update", ratio=1e-3),
        ],
    ]
    (one,) = findings_in(training(rows))
    assert (one.rule, one.site, one.severity) == ("dead_units", "act", "error")
    assert {(below.rule, below.site) for below in one.consequences} == {("vanishing", "a"), ("still", "a")}


def test_an_output_that_is_always_the_same():
    flat = series("b", "output", after(LINE, np.full(40, 0.5)))
    assert told([*steady("a"), *flat]) == [("constant_output", "b", FROM)]
    zero_at_first = series("b", "output", [np.zeros(40), *[LINE] * 19])
    assert told([*steady("a"), *zero_at_first]) == []


TANH = [("", "Net"), ("a", "Linear"), ("tanh", "Tanh"), ("gate", "Sigmoid"), ("b", "Linear")]


@pytest.mark.parametrize(
    ("site", "value", "expected"),
    [
        ("tanh", np.sign(LINE), [("saturated", "tanh", FROM)]),
        ("tanh", np.tanh(3 * LINE), []),
        ("gate", (LINE > 0).astype(float), []),
    ],
)
def test_a_saturated_activation(site, value, expected):
    rows = [*steady("a"), *series(site, "output", after(LINE / 2 + 0.5, value)), *steady("b")]
    assert told(rows, modules=TANH) == expected


def test_the_last_activation_may_saturate():
    last = [("", "Net"), ("a", "Linear"), ("sigmoid", "Sigmoid")]
    assert told([*steady("a"), *series("sigmoid", "output", [(LINE > 0).astype(float)] * 20)], modules=last) == []


def test_weights_that_are_all_the_same():
    grads = steady("a.weight", "param_grad")
    same = [*series("a.weight", "param", [np.full(40, 0.5)] * 20), *grads]
    assert told([*steady("a"), *same]) == [("symmetric", "a.weight", 0)]
    lora = [*series("a.weight", "param", [np.zeros(40), *[LINE * 0.01] * 19]), *grads]
    assert told([*steady("a"), *lora]) == []
    never = [*series("a.weight", "param", [np.zeros(40)] * 20), *grads]
    assert told([*steady("a"), *never]) == [("symmetric", "a.weight", 0)]


# Sizes


def growing(factor, steps=20, start=1.0):
    return [LINE * start * factor**step for step in range(steps)]


def test_growth_beyond_everything_is_an_explosion_and_growth_from_nothing_is_none():
    grown = [*series("a", "output", growing(3)), *steady("b")]
    ((rule, site, step),) = told(grown)
    assert (rule, site) == ("exploding", "a") and 5 <= step <= 11  # 3 ** 5 is more than 100 times
    # A branch that is zero at the start, LoRA's B: it becomes as large as others are.
    from_nothing = series("a", "output", [LINE * min(1.0, 1e-6 * 10**step) for step in range(20)])
    assert told([*from_nothing, *steady("b")]) == []
    assert told(steady(scale=1e5)) == []


def test_outputs_that_grow_from_layer_to_layer():
    names = [("", "Net"), *((f"l{n}", "Linear") for n in range(6))]
    deep = [one for n in range(6) for one in steady(f"l{n}", scale=16.0**n)]
    assert told(deep, modules=names) == [("exploding", "l4", 0)]
    even = [one for n in range(6) for one in steady(f"l{n}", scale=2.0**n)]
    assert told(even, modules=names) == []


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([*steady("b.weight", "param_grad"), *steady("a.weight", "param_grad", 1e-6)], [("vanishing", "a", 0)]),
        ([*steady("b.weight", "param_grad"), *steady("a.weight", "param_grad", 1e-3)], []),
        # A bias in front of a norm has no gradient to speak of, in the best of models.
        (
            [
                *steady("b.weight", "param_grad"),
                *steady("a.weight", "param_grad"),
                *steady("a.bias", "param_grad", 1e-9),
            ],
            [],
        ),
        # LoRA's A has no gradient at the first step, while B is 0.
        (
            [*steady("b.weight", "param_grad"), *series("a.weight", "param_grad", [np.zeros(40), *[LINE] * 19])],
            [],
        ),
    ],
)
def test_gradients_that_vanish(rows, expected):
    assert told([*steady("a"), *steady("b"), *rows]) == expected


def test_a_layer_that_did_not_run_has_no_vanishing_gradient():
    """An expert that nobody chose, a head whose turn it is not: zeros, and no output at these steps."""
    turns = [step for step in range(20) if step < 10]
    ran = [row("a", step, "output", LINE) for step in turns]
    grads = series("a.weight", "param_grad", [LINE if step in turns else np.zeros(40) for step in range(20)])
    assert told([*ran, *steady("b"), *steady("b.weight", "param_grad"), *grads]) == []


# Updates


@pytest.mark.parametrize(
    ("weight", "bias", "expected"),
    [
        ([1e-3] * 20, [1e-3] * 20, []),
        ([0.0] * 20, [0.0] * 20, [("still", "a", 0)]),
        (after(1e-3, 0.0), after(1e-3, 1e-9), [("still", "a", FROM)]),
        # A bias in front of a batch norm stands still, and the weight moves.
        ([1e-3] * 20, [0.0] * 20, []),
        # Warm-up from 0.
        ([0.0, *[1e-3] * 19], [0.0, *[1e-3] * 19], []),
    ],
)
def test_parameters_that_stand_still(weight, bias, expected):
    rows = [
        *[row("a.weight", step, "update", LINE * ratio, ratio=ratio) for step, ratio in enumerate(weight)],
        *[row("a.bias", step, "update", LINE * ratio, ratio=ratio) for step, ratio in enumerate(bias)],
        *steady("b.weight", "update", 1e-3, ratio=1e-3),
    ]
    assert told([*steady("a"), *steady("b"), *rows]) == expected


def moving(ratio, steps=20):
    names = ("a.weight", "b.weight")
    return [row(name, step, "update", LINE * ratio, ratio=ratio) for name in names for step in range(steps)]


def test_updates_that_are_far_off():
    assert told([*steady(), *moving(0.9)]) == [("update_ratio", "", 0)]
    assert told([*steady(), *moving(1e-2)]) == []
    assert told([*steady(), *moving(3e-7)]) == [("update_ratio", "", 0)]
    (nothing,) = findings_in(training([*steady(), *moving(0.0)]))
    assert (nothing.rule, nothing.site, nothing.severity) == ("still", "", "error")
    # At the end of a schedule nothing moves any more.
    decayed = [
        row(name, n, "update", LINE, ratio=1e-2 * 0.3**n) for name in ("a.weight", "b.weight") for n in range(25)
    ]
    assert told([*steady(steps=25), *decayed, *scalar("lr", [0.1 * 0.8**n for n in range(25)])]) == []


# The loss

ENTROPY = Look(0, on_params=True, on_input=True, operators=["NllLoss", "LogSoftmax", "Addmm"])
RNG = np.random.default_rng(0)
NOISE = RNG.normal(size=60)


def classes(number, **more):
    wiring = wired(looks=[ENTROPY], **more)
    wiring.params["b.weight"].shape = [number, 4]
    return wiring


def of_loss(values, wiring=None):
    rows = [*[one for name in ("a", "act", "b") for one in steady(name, steps=60)], *scalar("loss", values)]
    return [(one.severity, one.rule, one.step) for one in findings_in(training(rows, wiring or wired()))]


FALLING = 2.3 * np.exp(-np.arange(60) / 30) + 0.05 * NOISE


@pytest.mark.parametrize(
    ("values", "wiring", "expected"),
    [
        (FALLING, None, []),
        (FALLING, classes(10), []),
        (2.3 + 0.02 * NOISE, classes(10), [("warning", "loss_at_chance", 0)]),
        (1.1 + 0.02 * NOISE, classes(10), [("note", "loss_stuck", 0)]),
        (np.full(60, 1.5), None, [("warning", "loss_stuck", 0)]),
        (np.linspace(1, 9, 60) + 0.05 * NOISE, None, [("warning", "loss_rises")]),
        # Of a GAN a mean over two losses tells nothing.
        (np.linspace(1, 9, 60), wired(losses=[Loss("gan.py:1"), Loss("gan.py:2")]), []),
        ([12.0, *FALLING[1:]], classes(10), [("note", "initial_loss", 0)]),
        (-np.exp(np.arange(60) / 8), None, [("warning", "loss_sign")]),
        (-2.0 + FALLING, None, []),
        (
            -0.1 * np.arange(60) - 0.1,
            wired(looks=[Look(0, on_params=True, operators=["Neg", "NllLoss", "LogSoftmax"])]),
            [("error", "loss_sign", 0)],
        ),
    ],
)
def test_what_the_loss_tells(values, wiring, expected):
    found = of_loss(values, wiring)
    assert len(found) == len(expected)
    assert all(one[: len(other)] == other for one, other in zip(found, expected, strict=True))


def test_a_spike_of_the_gradient_is_told_with_its_batch():
    norms = 1 + 0.1 * np.abs(NOISE)
    norms[40] = 80.0
    rows = [*steady(steps=60), *scalar("grad_norm", norms), *scalar("batch", np.arange(60) + 1000.0)]
    (one,) = findings_in(training(rows, wired()))
    assert (one.rule, one.step, one.severity, one.evidence["batch"]) == ("gradient_spike", 40, "note", 1040.0)
    harmed = np.concatenate([np.full(40, 1.0), np.full(20, 5.0)]) + 0.01 * NOISE
    found = findings_in(training([*rows, *scalar("loss", harmed)], wired()))
    assert any(
        below.rule == "gradient_spike" and below.severity == "warning" for one in found for below in one.all
    )
    rows = [*steady(steps=60), *scalar("grad_norm", 1 + 0.1 * np.abs(NOISE))]
    assert findings_in(training(rows, wired())) == []


# Who may be left out, what follows from what


def test_a_training_with_no_numbers_has_no_findings():
    assert findings_in(training()) == [] == findings_in(training([], wired()))


def test_an_explosion_explains_the_nan_that_follows():
    values = [*growing(4, 12), *[[NAN, 1.0]] * 8]
    (one,) = findings_in(training([*series("a", "output", values), *steady("b")]))
    assert (one.rule, one.severity) == ("exploding", "error")
    assert [below.rule for below in one.consequences] == ["nan_origin"] and one.consequences[0].step == 12


def test_parameters_are_told_together_under_the_module_that_has_them():
    modules = [("", "Net"), ("enc", "Block"), ("enc.a", "Linear"), ("enc.b", "Linear"), ("head", "Linear")]
    one = training(modules=modules)
    names = ["enc.a.weight", "enc.a.bias", "enc.b.weight"]
    assert one.together(names, among=[*names, "head.weight"]) == {"enc": names}
    assert one.together(names, among=names) == {"": names}
    assert one.together(names[:1], among=names) == {"enc.a.weight": names[:1]}
    params = {name: Parameter("x") for name in names}
    assert set(one.together(params, among=[*params, "head.weight"])) == {"enc"}
