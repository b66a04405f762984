"""Checks of record and edit: values, calls, gradients, audit, files; and that looking changes nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import hookline
from hookline.testing.conformance import reference
from hookline.testing.conformance.adapter import Adapter, ramp
from hookline.testing.conformance.checking import check, close, equal, raised

X = ramp(2, 3)
LOSS = ramp(2, 3)[::-1].copy()


@check("record")
def outputs_are_recorded_in_order_of_execution(adapter: Adapter) -> None:
    model = adapter.build("chain")
    with hookline.record(model) as rec:
        adapter.run(model, X)
    assert rec.names == ["first", "block.inner", "block", "last", ""]
    for name, factor in {"first": 2, "block.inner": 6, "block": 6, "last": 30, "": 30}.items():
        equal(rec[name].output, X * factor, adapter)
    adapter.run(model, X * 2)
    equal(rec["first"].output, X * 2, adapter)


@check("record")
def inputs_are_recorded(adapter: Adapter) -> None:
    model = adapter.build("chain")
    with hookline.record(model, "block", inputs=True) as rec:
        adapter.run(model, X)
    assert len(rec["block"].input) == 1
    equal(rec["block"].input[0], X * 2, adapter)
    assert rec["block"].kwargs == {}


@check("record", "grads", "kwargs")
def keyword_arguments_and_their_gradients_are_recorded(adapter: Adapter) -> None:
    model = adapter.build("kwargs")
    if model is None:
        model = adapter.build("chain")
        hookline.register_forward_hook(model, lambda m, a, k, o: None, with_kwargs=True)
    with hookline.record(model, "scaled", inputs=True, grads=True) as rec:
        equal(adapter.backward(model, X, LOSS), LOSS * 5, adapter)
    assert rec["scaled"].kwargs["factor"] == 3.0
    equal(rec["scaled"].kwargs["add"], X * 2, adapter)
    equal(rec["scaled"].grad_kwargs["add"], LOSS, adapter)
    equal(rec["scaled"].grad_input[0], LOSS * 3, adapter)


@check("record")
def calls_of_a_shared_module_are_told_apart(adapter: Adapter) -> None:
    model = adapter.build("shared")
    with hookline.record(model) as rec:
        adapter.run(model, X)
    equal(rec["a"].calls[0].output, X * 2, adapter)
    equal(rec["a"].calls[1].output, X * 4, adapter)
    assert rec["a"].aliases == ("b",)
    assert rec["b"] is rec["a"]


@check("record")
def structures_are_recorded_whole(adapter: Adapter) -> None:
    model = adapter.build("fork")
    with hookline.record(model, "fork") as rec:
        adapter.run(model, X)
    output = rec["fork"].output
    equal(output["double"], X * 2, adapter)
    equal(output["more"][0], X * 3, adapter)
    assert output["more"][1] is None


@check("record", "grads")
def gradients_are_recorded_in_the_structure_of_the_value(adapter: Adapter) -> None:
    model = adapter.build("fork")
    with hookline.record(model, "fork", grads=True) as rec:
        equal(adapter.backward(model, X, LOSS), LOSS * 31, adapter)
    equal(rec["fork"].grad_output["double"], LOSS * 5, adapter)
    equal(rec["fork"].grad_output["more"][0], LOSS * 7, adapter)
    equal(rec["fork"].grad_input[0], LOSS * 31, adapter)


@check("record", "grads")
def gradients_of_each_call_are_recorded(adapter: Adapter) -> None:
    model = adapter.build("shared")
    with hookline.record(model, "a", grads=True) as rec:
        adapter.backward(model, X, LOSS)
    equal(rec["a"].calls[0].grad_output, LOSS * 2, adapter)
    equal(rec["a"].calls[0].grad_input[0], LOSS * 4, adapter)
    equal(rec["a"].calls[1].grad_output, LOSS, adapter)
    equal(rec["a"].calls[1].grad_input[0], LOSS * 2, adapter)


@check("record", "grads")
def an_mlp_is_recorded_with_its_gradients(adapter: Adapter) -> None:
    model = adapter.build("mlp")
    wanted = reference.mlp()
    with hookline.record(model, grads=True) as rec:
        close(adapter.backward(model, reference.X, reference.LOSS), wanted.grad_inputs[""], adapter)
    assert rec.names == ["fc1", "act", "fc2", ""]
    for name in rec.names:
        close(rec[name].output, wanted.outputs[name], adapter)
        close(rec[name].grad_output, wanted.grad_outputs[name], adapter)
        close(rec[name].grad_input[0], wanted.grad_inputs[name], adapter)


@check("record", "grads", "param_grads")
def gradients_of_parameters_are_recorded(adapter: Adapter) -> None:
    model = adapter.build("mlp")
    with hookline.record(model, grads=True) as rec:
        adapter.backward(model, reference.X, reference.LOSS)
    for name, wanted in reference.mlp().param_grads.items():
        site, _, own = adapter.parameters[name].rpartition(".")
        grad = adapter.array(rec[site].param_grads[own])
        close(adapter.kernel(grad) if name.endswith("weight") else grad, wanted, adapter)


@check("record", "grads")
def looking_changes_no_bit(adapter: Adapter) -> None:
    model = adapter.build("mlp")
    plain, gradient = adapter.run(model, reference.X), adapter.backward(model, reference.X, reference.LOSS)
    with hookline.record(model, inputs=True, grads=True):
        equal(adapter.run(model, reference.X), plain, adapter)
        equal(adapter.backward(model, reference.X, reference.LOSS), gradient, adapter)
    equal(adapter.run(model, reference.X), plain, adapter)


@check("record")
def a_recorded_value_is_what_it_was_when_it_passed(adapter: Adapter) -> None:
    model = adapter.build("inplace")
    if model is None:  # nothing can be overwritten in this framework: the values are safe
        model = adapter.build("chain")
    with hookline.record(model, "first") as rec:
        adapter.run(model, X)
    equal(rec["first"].output, X * 2, adapter)


@check("record")
def silent_sites_are_reported(adapter: Adapter) -> None:
    model = adapter.build("silent")
    with hookline.record(model) as rec:
        adapter.run(model, X)
    audit = rec.audit()
    assert audit["used"].fired == 1
    assert [entry.site for entry in audit.silent] == ["unused"]
    assert "never called" in str(audit["unused"])
    with hookline.record(model) as rec:
        pass
    assert all("not called in this block" in str(entry.why) for entry in rec.audit())


@check("record", "grads")
def missing_gradients_are_reported(adapter: Adapter) -> None:
    model = adapter.build("chain")
    with hookline.record(model, "first", grads=True) as rec:
        adapter.run(model, X)
    assert "no gradients: no backward ran" in str(rec.audit()["first"].why)


@check("record")
def keep_reduces_what_is_stored(adapter: Adapter) -> None:
    model = adapter.build("chain")
    with hookline.record(model, "first", reduce=lambda tensor: tensor[0:1]) as rec:
        adapter.run(model, X)
    equal(rec["first"].output, X[0:1] * 2, adapter)


@check("record")
def blocks_may_be_nested(adapter: Adapter) -> None:
    model = adapter.build("chain")
    with hookline.record(model, "first") as outer:
        adapter.run(model, X)
        with hookline.record(model, "first") as inner:
            adapter.run(model, X * 2)
    assert [len(outer["first"].calls), len(inner["first"].calls)] == [2, 1]
    equal(outer["first"].calls[0].output, X * 2, adapter)
    equal(inner["first"].output, X * 4, adapter)


@check("record", "stop")
def a_forward_stops_when_all_sites_have_fired(adapter: Adapter) -> None:
    model = adapter.build("chain")
    ran: list[int] = []
    with hookline.register_forward_hook(model, lambda m, a, o: ran.append(1), "last"):
        with hookline.record(model, "block", stop=True) as rec:
            adapter.run(model, X)
        assert ran == []
        equal(rec["block"].output, X * 6, adapter)
    equal(adapter.run(model, X), X * 30, adapter)


@check("record", "save")
def a_recording_is_saved_and_loaded(adapter: Adapter) -> None:
    model = adapter.build("fork")
    with tempfile.TemporaryDirectory() as folder:
        with hookline.record(model, inputs=True, limit=1, spill=folder) as rec:
            adapter.run(model, X)
        equal(rec["fork"].output["double"], X * 2, adapter)
        loaded = hookline.load_recording(rec.save(Path(folder) / "fork.safetensors"))
        assert loaded.names == rec.names == ["fork", ""]
        equal(loaded["fork"].input[0], X, adapter)
        equal(loaded["fork"].output["more"][0], X * 3, adapter)
        assert loaded["fork"].output["more"][1] is None


@check("record")
def a_recording_has_a_limit(adapter: Adapter) -> None:
    model = adapter.build("chain")

    def too_much() -> None:
        with hookline.record(model, ["first", "last"], limit=X.nbytes + 1):
            adapter.run(model, X)

    error = raised(hookline.RecordingTooLarge, too_much)
    assert error.site == "last" and error.recording.names == ["first"]
    equal(error.recording["first"].output, X * 2, adapter)
    assert hookline.installed(model) == []


@check("edit")
def outputs_and_inputs_are_edited(adapter: Adapter) -> None:
    model = adapter.build("chain")
    with hookline.edit(
        model, {"first": lambda output: output + 1, "last:input": lambda args: args[0] * 10}
    ) as edits:
        equal(adapter.run(model, X), (X * 2 + 1) * 3 * 10 * 5, adapter)
    assert [entry.fired for entry in edits.audit()] == [1, 1]
    with hookline.edit(model, {"block": adapter.tensor(np.ones_like(X))}):
        equal(adapter.run(model, X), np.full_like(X, 5), adapter)
    equal(adapter.run(model, X), X * 30, adapter)


@check("edit", "kwargs")
def keyword_arguments_are_edited(adapter: Adapter) -> None:
    model = adapter.build("kwargs")
    if model is None:
        model = adapter.build("chain")
        hookline.edit(model, {"first:kwargs": lambda kwargs: None})
    with hookline.edit(model, {"scaled:kwargs": lambda kwargs: {"factor": 100.0}}):
        equal(adapter.run(model, X), X * 102, adapter)
    with hookline.edit(model, {"scaled:kwargs": {"add": adapter.tensor(np.zeros_like(X))}}):
        equal(adapter.run(model, X), X * 3, adapter)


@check("edit", "record")
def a_recorded_site_is_patched_into_another_run(adapter: Adapter) -> None:
    model = adapter.build("chain")
    with hookline.record(model) as rec:
        adapter.run(model, X)
    with hookline.edit(model, {"block": rec["block"]}):
        equal(adapter.run(model, X * 100), X * 30, adapter)


@check("edit", "record")
def a_recording_sees_values_after_every_edit(adapter: Adapter) -> None:
    model = adapter.build("chain")
    with hookline.record(model, "first") as rec, hookline.edit(model, {"first": lambda output: output * 10}):
        adapter.run(model, X)
    equal(rec["first"].output, X * 20, adapter)


@check("edit_grads")
def gradients_are_edited(adapter: Adapter) -> None:
    model = adapter.build("chain")
    with hookline.edit(model, {"block:grad_output": lambda grad: grad * 10}):
        equal(adapter.backward(model, X, LOSS), LOSS * 300, adapter)
    with hookline.edit(model, {"block:grad_input": lambda grads: (grads[0] * 0,)}):
        equal(adapter.backward(model, X, LOSS), LOSS * 0, adapter)
    equal(adapter.backward(model, X, LOSS), LOSS * 30, adapter)


@check("edit_weights")
def weights_are_edited_and_come_back(adapter: Adapter) -> None:
    model = adapter.build("mlp")
    before = adapter.run(model, reference.X)
    bias = adapter.tensor(np.ones(2, np.float32))
    with hookline.edit(model, {adapter.parameters["fc2.bias"]: bias}):
        found = adapter.run(model, reference.X)
    other = reference.mlp(weights={**reference.WEIGHTS, "fc2.bias": np.ones(2, np.float32)})
    close(found, other.outputs[""], adapter)
    equal(adapter.run(model, reference.X), before, adapter)
    error = raised(hookline.NoSuchSite, lambda: hookline.edit(model, {"fc2.bais": bias}))
    assert adapter.parameters["fc2.bias"] in str(error)


@check("edit_weights")
def edits_of_a_weight_are_left_in_any_order(adapter: Adapter) -> None:
    model = adapter.build("mlp")
    before = adapter.run(model, reference.X)
    name, bias = adapter.parameters["fc2.bias"], reference.WEIGHTS["fc2.bias"]

    def holds(wanted: Any) -> None:
        other = reference.mlp(weights={**reference.WEIGHTS, "fc2.bias": wanted})
        close(adapter.run(model, reference.X), other.outputs[""], adapter)

    first = hookline.edit(model, {name: lambda b: b * 0})
    second = hookline.edit(model, {name: lambda b: b + 1})
    first.__enter__()
    second.__enter__()
    holds(bias * 0 + 1)
    first.__exit__(None, None, None)
    holds(bias + 1)
    second.__exit__(None, None, None)
    equal(adapter.run(model, reference.X), before, adapter)


@check("skip")
def a_module_is_skipped(adapter: Adapter) -> None:
    model = adapter.build("chain")
    ran: list[Any] = []
    with (
        hookline.register_forward_hook(model, lambda m, a, o: ran.append(1), "block.inner"),
        hookline.edit(model, {"block": hookline.skip}),
    ):
        equal(adapter.run(model, X), X * 10, adapter)
    assert ran == []
    equal(adapter.run(model, X), X * 30, adapter)
