"""Rules about how a training hangs together: each fires on what is broken, and not on what is nearly the same."""

import pytest

from hookline.diagnosis.diagnose import findings_in
from hookline.wiring import Change, Look, Loss, Module, Optimizer, Parameter, Place
from tests.support.trainings import MODULES, scalar, steady, training, wired

NAMES = ("a.weight", "a.bias", "b.weight", "b.bias")
STRANGER = Optimizer("SGD", [{"lr": 0.1}], strangers=["Parameter (4, 4), was 'b.weight'"], steps=20)
FOREIGN = Optimizer("SGD", [{"lr": 0.1}], strangers=["Parameter (7,)"], steps=20)
TWO = [Optimizer("SGD", [{"lr": 0.1}], steps=20), Optimizer("Adam", [{"lr": 0.1}], steps=20)]
LOOK = {"on_params": True, "on_input": True}


def told(rows=(), wiring=None, modules=MODULES, meta=None):
    """(severity, rule, site) of what is found, causes only, notes as well."""
    rows = [*steady(), *rows]
    return [(one.severity, one.rule, one.site) for one in findings_in(training(rows, wiring, modules, meta))]


def in_turn(name, every=2, steps=20):
    return {name: {"grads": steps // every}}


@pytest.mark.parametrize(
    ("wiring", "expected"),
    [
        (wired(), []),
        (wired(b_weight={"groups": []}, b_bias={"groups": []}), [("error", "not_in_optimizer", "b")]),
        (wired(b_weight={"groups": []}), [("error", "not_in_optimizer", "b.weight")]),
        # Frozen on purpose, with and without a place in the optimizer.
        (wired(a_weight={"trainable": False, "grads": 0}, a_bias={"trainable": False, "grads": 0}), []),
        (wired(a_weight={"trainable": False, "grads": 0, "groups": []}), []),
        # A teacher or an average runs without gradients, and nobody trains it.
        (wired(a_weight={"groups": [], "grads": 0, "in_loss": False}), []),
        # Tied weights: the optimizer holds the other name.
        (wired(b_weight={"groups": [], "shares_with": ["a.weight"]}), []),
        # A head alone is trained.
        (wired(a_weight={"groups": []}, a_bias={"groups": []}), [("error", "not_in_optimizer", "a")]),
        (
            wired(optimizers=[STRANGER], b_weight={"groups": []}),
            [("error", "optimizer_holds_strangers", "b.weight")],
        ),
        (wired(optimizers=[FOREIGN]), []),
        (wired(optimizers=TWO, a_weight={"groups": ["0/0", "1/0"]}), [("warning", "two_optimizers", "a.weight")]),
        (wired(optimizers=TWO, a_weight={"groups": ["0/0"]}, b_weight={"groups": ["1/0"]}), []),
        (
            wired(a_weight={"grads": 0, "cut": "by detach in forward", "cut_line": "net.py:7"}),
            [("error", "no_gradient", "a.weight")],
        ),
        (wired(a_weight={"grads": 0}, a_bias={"grads": 0}), [("warning", "no_gradient", "a")]),
        # An output that is used for nothing was forgotten, or is one of a library's that nobody needs.
        (wired(b_weight={"grads": 0}, b_bias={"grads": 0}), [("warning", "no_gradient", "b")]),
        (
            wired(b_weight={"grads": 0}, b_bias={"grads": 0}, root={"is_own": False}),
            [("note", "no_gradient", "b")],
        ),
        (wired(b_weight={"grads": 0}, b_bias={"grads": 0}, b={"calls": 0}), [("note", "never_called", "b")]),
        (wired(**in_turn("b_weight")), []),
        (wired(**{name.replace(".", "_"): {"grads": 0} for name in NAMES}), [("error", "gradients_wiped", "")]),
        (
            wired(**{name.replace(".", "_"): {"zero_grads": 20} for name in NAMES}),
            [("error", "gradients_wiped", "")],
        ),
        (wired(dropout_in_eval=[Place("dropout", "a", "net.py:3")]), [("warning", "dropout_in_eval", "a")]),
        (wired(changes=[Change(8, "tied", "b.weight", "alone")]), [("warning", "not_tied", "b.weight")]),
        (
            wired(changes=[Change(8, "trainable", name, "False") for name in ("a.weight", "a.bias")]),
            [("warning", "requires_grad_changed", "a")],
        ),
        (
            wired(changes=[Change(8, "trainable", "a.weight", "True")]),
            [("note", "requires_grad_changed", "a.weight")],
        ),
        (wired(changes=[Change(n, "trainable", "a.weight", str(n % 2 == 0)) for n in range(15)]), []),
        (
            wired(looks=[Look(0, **LOOK, double_softmax=[Place("nll_loss", "", "t.py:4")])]),
            [("warning", "double_softmax", "")],
        ),
        (
            wired(looks=[Look(0, **LOOK, broadcast=[Place("sub", "", "t.py:4", "(8,) against (8, 1)")])]),
            [("error", "loss_broadcast", "")],
        ),
        (
            wired(looks=[Look(0, **LOOK, broadcast=[Place("mul", "", "t.py:4", "(8, 3) against (3,)")])]),
            [("note", "loss_broadcast", "")],
        ),
        (wired(looks=[Look(0, on_params=True, in_vain=[""])]), [("error", "in_vain", "")]),
        (
            wired(looks=[Look(0, on_params=True, on_input=False, in_vain=["a"])]),
            [("error", "loss_ignores_input", "")],
        ),
        (wired(looks=[Look(0, on_params=True, on_input=None)]), []),
    ],
)
def test_what_the_wiring_tells(wiring, expected):
    assert told(wiring=wiring) == expected


def test_a_loss_without_parameters_explains_that_nothing_has_a_gradient():
    nothing = {name.replace(".", "_"): {"grads": 0, "in_loss": False} for name in NAMES}
    (one,) = findings_in(training(steady(), wired(looks=[Look(3, on_params=False, on_input=True)], **nothing)))
    assert (one.rule, one.step, one.line) == ("loss_detached", 3, "train.py:12")
    assert {(below.rule, below.site) for below in one.consequences} == {
        ("no_gradient", ""),
        ("optimizer_without_gradients", ""),
    }


def test_an_optimizer_that_holds_another_model():
    """The first one trained it; the second one goes on with it, while another model is trained."""
    wiring = wired(optimizers=[Optimizer("SGD", steps=8), Optimizer("Adam", steps=12, first_step=8)])
    for one in wiring.params.values():
        one.groups, one.grads, one.last_grad = ["1/0"], 8, 7
    (found,) = findings_in(training(steady(), wiring))
    assert (found.rule, found.step, found.site) == ("optimizer_without_gradients", 8, "")
    for one in wiring.params.values():
        one.grads, one.last_grad = 9, 8
    assert told(wiring=wiring) == []


def test_modules_in_a_list_are_named_by_it():
    wiring = wired()
    for number in range(2):
        name = f"layers[{number}]"
        wiring.modules[name] = Module("Linear", 20, first_call=0, outside=name)
        wiring.params[f"{name}.weight"] = Parameter(name, [4, 4], steps=20, grads=20, first_grad=0, in_loss=True)
    (one,) = findings_in(training(steady(), wiring))
    assert (one.rule, one.site, one.severity) == ("not_in_optimizer", "layers", "error")
    assert one.evidence["params"] == ["layers[0].weight", "layers[1].weight"] and "list" in one.why


def test_an_optimizer_that_is_gone_at_the_end_held_its_parameters():
    wiring = wired(**{name.replace(".", "_"): {"groups": []} for name in NAMES})
    wiring.changes = [Change(19, "optimizer", name, "none") for name in NAMES]
    assert told(wiring=wiring) == []


NORM = [*MODULES, ("norm", "BatchNorm1d")]


def with_norm(root=True, **more):
    wiring = wired(root={"training": root})
    wiring.modules["norm"] = Module("BatchNorm1d", 20, first_call=0, settings={"momentum": 0.1})
    wiring.params["norm.weight"] = Parameter("norm", [4], groups=["0/0"], steps=20, grads=20, in_loss=True)
    for name, value in more.items():
        setattr(wiring.modules["norm"], name, value)
    return wiring


def test_batch_norm_that_learns_no_statistics():
    assert told(wiring=with_norm(), modules=NORM) == []
    still = with_norm(settings={"momentum": 0.0})
    assert told(wiring=still, modules=NORM) == [("error", "norm_not_updating", "norm")]
    assert told(wiring=with_norm(training=False), modules=NORM) == [("warning", "norm_not_updating", "norm")]
    frozen = with_norm(training=False)
    frozen.params["norm.weight"].trainable = False
    frozen.params["norm.weight"].grads = 0
    assert told(wiring=frozen, modules=NORM) == []


def test_a_mode_that_was_changed_and_stayed():
    updates = steady("a.weight", "update", 1e-3, ratio=1e-3)
    stayed = with_norm()
    stayed.changes = [Change(8, "mode", name, "eval") for name in ("", "a", "norm")]
    (one,) = findings_in(training([*steady(), *updates], stayed, NORM))
    assert (one.rule, one.site, one.step, one.severity) == ("mode_changed", "", 8, "warning")
    back = with_norm()
    back.changes = [Change(8, "mode", "", "eval"), Change(9, "mode", "", "train")]
    at_the_end = with_norm()
    at_the_end.changes = [Change(19, "mode", "", "eval")]
    no_matter = wired(changes=[Change(8, "mode", "", "eval")])
    for healthy, modules in ((back, NORM), (at_the_end, NORM), (no_matter, MODULES)):
        assert told(updates, healthy, modules) == []
    assert told(updates, with_norm(root=False), NORM) == [("warning", "mode_changed", "")]


RISING = [0.0, *(0.1 * n / 10 for n in range(1, 11)), *[0.1] * 20]
COSINE = [0.1 * (1 - n / 30) for n in range(31)]


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([0.0] * 10, [("error", 0)]),
        ([0.1] * 10 + [0.0] * 10, [("error", 10)]),
        ([0.1 * 0.5**n for n in range(60)], [("error", 10)]),
        ([0.1 * 0.5**n for n in range(30)], [("warning", 10)]),
        (RISING, []),
        (COSINE, []),
        ([0.1] * 20, []),
        ([0.0], []),
    ],
)
def test_a_learning_rate_of_zero(rates, expected):
    found = findings_in(training([*steady(steps=len(rates)), *scalar("lr", rates)], wired()))
    assert [(one.severity, one.step) for one in found] == expected
    assert {one.rule for one in found} <= {"lr_zero"}


FLAT, WORSE = [1.0] * 30, [*[1.0] * 15, *[30.0] * 15]


@pytest.mark.parametrize(
    ("rates", "losses", "expected"),
    [
        ([*[0.01] * 15, *[1.0] * 15], WORSE, [15]),
        ([*[0.01] * 15, *[1.0] * 15], [*[1.0] * 16, *[float("nan")] * 14], [15]),
        ([*[0.01] * 15, *[1.0] * 15], FLAT, []),  # no harm
        ([0.0, *[1e-5] * 14, *[1e-3] * 15], FLAT, []),
        ([*[0.01] * 15, *[0.05] * 15], WORSE, []),
        ([*(0.1 * 0.7**n for n in range(15)), *[0.1] * 15], WORSE, []),  # a cycle begins again
    ],
)
def test_a_learning_rate_that_jumps(rates, losses, expected):
    rows = [*steady(steps=30), *scalar("lr", rates), *scalar("loss", losses)]
    found = findings_in(training(rows, wired()), rules=["lr_jump"])
    assert [one.step for one in found] == expected


def test_one_of_several_rates_that_is_zero_names_its_group():
    wiring = wired(b_weight={"groups": ["0/1"]}, b_bias={"groups": ["0/1"]})
    wiring.optimizers[0].groups = [{"lr": 0.1}, {"lr": 0.0}]
    rates = [*scalar("lr/0", [0.1] * 20), *scalar("lr/1", [0.0] * 20)]
    assert told(rates, wiring) == [("warning", "lr_zero", "b")]


def test_gradients_that_are_never_cleared():
    stale = scalar("stale_grads", [0.0] + [1.0] * 19)
    assert told(stale, wired()) == [("error", "zero_grad_missing", "")]
    gan = wired(losses=[Loss("gan.py:3"), Loss("gan.py:9")])
    assert told(stale, gan) == [] == told(scalar("stale_grads", [0.0] * 20), wired())


@pytest.mark.parametrize(
    ("norms", "clipped", "expected"),
    [
        ([5.0] * 20, [0.0] * 20, [("error", "clipped_to_nothing", "")]),
        ([5.0] * 20, [1e-6] * 20, [("warning", "clipped_to_nothing", "")]),
        ([5000.0] * 20, [1.0] * 20, []),
        ([1e-5] * 20, [1e-5] * 20, []),
    ],
)
def test_gradients_that_are_clipped_to_nothing(norms, clipped, expected):
    rows = [*scalar("grad_norm", norms), *scalar("grad_norm_clipped", clipped)]
    assert told(rows, wired()) == expected


def test_accumulation_that_is_not_divided():
    times = scalar("accumulated", [4] * 20)
    assert told(times, wired()) == [("warning", "accumulation_not_divided", "")]
    divided = wired(looks=[Look(0, **LOOK, divided=True)])
    summed = wired(looks=[Look(0, **LOOK, divided=False, operators=["Sum", "Pow"])])
    assert told(times, divided) == told(times, summed) == told(scalar("accumulated", [1] * 20), wired()) == []


def test_a_batch_that_never_changes():
    varied = [float(n) for n in range(10)]
    assert told(scalar("batch", [7.0] * 20), wired()) == [("note", "constant_batch", "")]
    stuck = findings_in(training([*steady(), *scalar("batch", [*varied, *[3.0] * 12])], wired()))
    assert [(one.severity, one.rule, one.step) for one in stuck] == [("warning", "constant_batch", 10)]
    assert told(scalar("batch", [*varied, *varied]), wired()) == []


def test_settings_that_tie_what_is_not_tied():
    wiring = wired()
    wiring.params = {
        "embed.weight": Parameter("embed", [9, 4], groups=["0/0"], steps=20, grads=20, last_grad=19),
        "lm_head.weight": Parameter("lm_head", [9, 4], groups=["0/0"], steps=20, grads=20, last_grad=19),
    }
    modules = [("", "GPT"), ("embed", "Embedding"), ("lm_head", "Linear")]
    meta = {"config": {"tie_word_embeddings": True}}
    assert told(wiring=wiring, modules=modules, meta=meta) == [("warning", "not_tied", "lm_head.weight")]
    assert told(wiring=wiring, modules=modules) == []
    copies = [*steady("embed.weight", "param"), *steady("lm_head.weight", "param")]
    others = [*steady("embed.weight", "param"), *steady("lm_head.weight", "param", 0.9)]
    assert told(copies, wiring, modules) == [("warning", "not_tied", "lm_head.weight")]
    assert told(others, wiring, modules) == []
    wiring.params["lm_head.weight"].shares_with = ["embed.weight"]
    assert told(wiring=wiring, modules=modules, meta=meta) == [] == told(copies, wiring, modules)


def test_parameters_that_move_and_are_never_called():
    idle = wired(b={"calls": 0}, b_weight={"grads": 0}, b_bias={"grads": 0})
    moving = steady("b.weight", "update", 1e-3, ratio=1e-3)
    assert ("warning", "updated_uncalled", "b.weight") in told(moving, idle)
    # MultiheadAttention uses its out_proj without calling it.
    assert told(moving, wired(b={"calls": 0})) == []
