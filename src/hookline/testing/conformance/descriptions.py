"""Checks of watch, summary and the rest: statistics, steps, names and shapes, compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np

import hookline
from hookline.testing.conformance import reference
from hookline.testing.conformance.adapter import Adapter, Array, ramp
from hookline.testing.conformance.checking import check, close, equal

X = ramp(2, 3)


def same_statistics(row: dict[str, Any], values: Array) -> None:
    """AssertionError unless a row of a watch has the statistics that numpy gives."""
    values = values.reshape(-1).astype(np.float64)
    wanted = {
        "count": values.size,
        "mean": values.mean(),
        "std": values.std(ddof=1),
        "min": values.min(),
        "max": values.max(),
        "absmax": np.abs(values).max(),
        "l2": np.sqrt((values**2).sum()),
        "zeros": (values == 0).sum(),
        "near_zero": (np.abs(values) <= 0.05).mean(),
        "nan": 0,
        "inf": 0,
    }
    for name, number in wanted.items():
        np.testing.assert_allclose(row[name], number, rtol=1e-5, atol=1e-6, err_msg=f"{row['site']} {name}")


@check("watch")
def statistics_of_activations_are_numpys(adapter: Adapter) -> None:
    wanted = reference.mlp().outputs
    for way in ("avx2", "torch"):  # the C kernel where it is built, and what does without it
        model = adapter.build("mlp")
        with hookline.lines.kernel.using(way), hookline.watch(model, grads=False, progress=False) as w:
            adapter.run(model, reference.X)
        for name in ("fc1", "act", "fc2", ""):
            (row,) = w.rows(name, kind="output")
            assert row["step"] == 0
            same_statistics(row, wanted[name])
            assert row["hist"].sum() == row["count"]


@check("watch")
def channels_and_other_statistics_are_numpys(adapter: Adapter) -> None:
    wanted = reference.mlp().outputs["fc1"]
    model = adapter.build("mlp")
    with hookline.watch(model, "fc1", grads=False, channels=1, stats=["median"], progress=False) as w:
        adapter.run(model, reference.X)
    (row,) = w.rows("fc1", kind="output")
    np.testing.assert_allclose(row["channels"]["mean"], wanted.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(row["channels"]["max"], wanted.max(0), rtol=1e-5, atol=1e-6)
    assert wanted.min() <= row["median"] <= wanted.max()


@check("watch", "watch_grads")
def statistics_of_gradients_are_numpys(adapter: Adapter) -> None:
    wanted = reference.mlp()
    model = adapter.build("mlp")
    with hookline.watch(model, inputs=True, progress=False) as w:
        adapter.backward(model, reference.X, reference.LOSS)
    for name in ("fc1", "act", "fc2"):
        (row,) = w.rows(name, kind="grad_output")
        same_statistics(row, wanted.grad_outputs[name])
        (row,) = w.rows(name, kind="grad_input")
        same_statistics(row, wanted.grad_inputs[name])


@check("watch", "watch_grads", "watch_params")
def steps_of_an_optimizer_are_heard(adapter: Adapter) -> None:
    wanted = reference.mlp().param_grads
    model = adapter.build("mlp")
    with hookline.watch(model, params=True, every=2, progress=False) as w:
        adapter.train(model, reference.X, reference.LOSS, steps=3)
    assert sorted({row["step"] for row in w.rows()}) == [0, 2]
    for name, own in adapter.parameters.items():
        (param,) = w.rows(own, kind="param", step=0)
        same_statistics(param, reference.WEIGHTS[name])
        (grad,) = w.rows(own, kind="param_grad", step=0)
        same_statistics(grad, wanted[name])
        (update,) = w.rows(own, kind="update", step=0)
        np.testing.assert_allclose(update["l2"], 0.1 * grad["l2"], rtol=1e-4)


@check("watch", "watch_params", "watch_moments")
def what_an_optimizer_keeps_is_told_on_request(adapter: Adapter) -> None:
    model = adapter.build("mlp")
    with hookline.watch(model, params=True, moments=True, progress=False) as w:
        adapter.train_with_momentum(model, reference.X, reference.LOSS, steps=2)
    for own in adapter.parameters.values():
        first, second = w.rows(own, kind="param_grad")
        begun, followed = w.rows(own, kind="moment")
        np.testing.assert_allclose(begun["mean"], first["mean"], rtol=1e-5)
        np.testing.assert_allclose(begun["l2"], first["l2"], rtol=1e-5)
        np.testing.assert_allclose(followed["mean"], 0.5 * first["mean"] + second["mean"], rtol=1e-4)


@check("watch")
def an_untrained_model_is_watched_call_by_call(adapter: Adapter) -> None:
    model = adapter.build("shared")
    with hookline.watch(model, "a", grads=False, every=2, progress=False) as w:
        for _ in range(3):
            adapter.run(model, X)
    assert [(row["step"], row["call"]) for row in w.rows("a", kind="output")] == [(0, 0), (0, 1), (2, 0), (2, 1)]
    assert hookline.installed(model) == []


@check("summary")
def a_summary_has_names_types_shapes_and_parameters(adapter: Adapter) -> None:
    model = adapter.build("mlp")
    before = adapter.run(model, reference.X)
    found = hookline.summary(model, (5, 4))
    rows = {row["name"]: row for row in found.rows}
    assert list(rows) == ["", "fc1", "act", "fc2"]
    assert rows["fc1"]["type"] == type(model.fc1).__name__
    assert [rows[name]["params"] for name in rows] == [0, 15, 0, 8]
    assert (found.total_params, found.trainable_params, found.param_bytes) == (23, 23, 92)
    shapes = {name: list(row["output"]) for name, row in rows.items()}
    assert shapes == {"": [5, 2], "fc1": [5, 3], "act": [5, 3], "fc2": [5, 2]}
    assert hookline.summary(model).total_params == 23
    assert "fc1" in found.to_text() and "5x3" in found.to_text()
    equal(adapter.run(model, reference.X), before, adapter)
    assert hookline.installed(model) == []


@check("summary")
def running_statistics_are_no_parameters(adapter: Adapter) -> None:
    found = hookline.summary(adapter.build("norm"), (5, 3))
    assert (found.total_params, found.trainable_params, found.param_bytes) == (6, 6, 24)


@check("summary", "costs")
def a_summary_counts_costs(adapter: Adapter) -> None:
    found = hookline.summary(adapter.build("mlp"), (5, 4), columns="name,macs")
    assert found.total_macs == 5 * (4 * 3 + 3 * 2)


@check("trace")
def a_trace_has_the_order_of_execution(adapter: Adapter) -> None:
    assert hookline.trace(adapter.build("shared"), (2, 3)).names == ["a", "a"]
    assert hookline.trace(adapter.build("chain"), (2, 3)).names == ["first", "block.inner", "block", "last"]


@check()
def sites_are_listed_with_their_types(adapter: Adapter) -> None:
    model = adapter.build("chain")
    found = hookline.sites(model, ["first", "block.**"])
    assert list(found) == ["first", "block.inner"] and set(found.values()) == {type(model.first).__name__}
    shared = hookline.sites(adapter.build("shared"))
    assert len(shared) == 2 and shared.aliases in ({"a": ("b",)}, {"b": ("a",)})


@check("source")
def the_source_of_a_forward_is_shown(adapter: Adapter) -> None:
    model = adapter.build("mlp")
    assert "fc1" in str(hookline.source(model))


@check("state_hooks")
def hooks_on_the_state_dict_run(adapter: Adapter) -> None:
    model = adapter.build("mlp")
    seen: list[str] = []
    with hookline.register_state_dict_post_hook(model, lambda m, state, prefix, meta: seen.append(prefix), "fc1"):
        adapter.state(model)
    assert seen == ["fc1."]


@check("export")
def values_of_an_exported_model_are_marked(adapter: Adapter) -> None:
    model = adapter.build("chain")
    seen: dict[str, Any] = {}
    with hookline.exported.mark(model, "first"), hookline.exported.on_mark(seen.__setitem__):
        equal(adapter.run(model, X), X * 30, adapter)
    equal(seen.pop("first"), X * 2, adapter)
    adapter.run(model, X)
    assert seen == {} and hookline.installed(model) == []


@check("export")
def a_model_returns_its_statistics(adapter: Adapter) -> None:
    model = hookline.exported.with_statistics(adapter.build("chain"), "first")
    output, told = model(adapter.tensor(X))
    equal(output, X * 30, adapter)
    close(adapter.array(told["first"])[model.statistics.index("mean")], (X * 2).mean(), adapter)


@check("compiled", "record", "edit")
def hooks_work_on_compiled_code(adapter: Adapter) -> None:
    with adapter.compiled(adapter.build("chain")) as (model, run):
        equal(run(X), X * 30, adapter)
        with hookline.record(model) as rec:
            equal(run(X), X * 30, adapter)
        equal(rec["block.inner"].output, X * 6, adapter)
        with hookline.edit(model, {"first": lambda output: output * 10}):
            equal(run(X), X * 300, adapter)
        equal(run(X), X * 30, adapter)
