"""Checks of op hooks: names, values, inputs, the backward, handles and errors."""

from __future__ import annotations

from typing import Any

import numpy as np

import hookline
from hookline.backends.nouns import Tensor
from hookline.testing.conformance import reference
from hookline.testing.conformance.adapter import Adapter, Array
from hookline.testing.conformance.checking import check, raised


def has(arrays: list[Array], wanted: Array) -> bool:
    """Whether one of the arrays has these values, up to what float32 rounds."""
    return any(a.shape == wanted.shape and np.allclose(a, wanted, rtol=1e-5, atol=1e-6) for a in arrays)


@check("ops")
def an_op_hook_sees_the_output_of_every_operator(adapter: Adapter) -> None:
    model = adapter.build("mlp")
    wanted = reference.mlp().outputs
    seen: list[tuple[str, str, Array]] = []

    def note(node_name: str, op_name: str, array: Tensor) -> None:
        seen.append((node_name, op_name, adapter.array(array)))

    handle = hookline.register_op_hook(model, note)
    before = adapter.run(model, reference.X)
    handle.remove()
    assert all(isinstance(name, str) and isinstance(op, str) and op for name, op, _ in seen)
    assert len({name for name, _, _ in seen}) == len(seen)
    for site in ("fc1", "act", "fc2"):
        assert has([array for name, _, array in seen if name.startswith(f"{site}/")], wanted[site]), site
    count = len(seen)
    np.testing.assert_array_equal(adapter.run(model, reference.X), before)
    assert len(seen) == count and hookline.installed(model) == []


@check("ops")
def monitor_all_has_the_inputs_as_well(adapter: Adapter) -> None:
    model = adapter.build("mlp")
    seen: list[tuple[str, Array]] = []
    with hookline.register_op_hook(
        model, lambda name, op, array: seen.append((name, adapter.array(array))), "fc2", monitor_all=True
    ):
        adapter.run(model, reference.X)
    assert all(name.startswith("fc2/") for name, _ in seen)
    assert has([array for name, array in seen if ".input" in name], reference.mlp().outputs["act"])
    assert has([array for name, array in seen if ".output" in name], reference.mlp().outputs["fc2"])


@check("ops")
def operators_of_the_backward_are_told_with_their_module(adapter: Adapter) -> None:
    model = adapter.build("mlp")
    wanted = reference.mlp()
    seen: list[Any] = []
    with hookline.register_op_hook(model, seen.append, events=True):
        adapter.backward(model, reference.X, reference.LOSS)
    backward = [event for event in seen if event.phase == "backward"]
    for site in ("fc1", "act", "fc2"):
        arrays = [adapter.array(event.array) for event in backward if event.module == site]
        assert has(arrays, wanted.grad_inputs[site]), site
    assert {event.phase for event in seen} == {"forward", "backward"}


@check("ops")
def an_error_in_an_op_hook_names_the_operator(adapter: Adapter) -> None:
    model = adapter.build("mlp")
    before = adapter.run(model, reference.X)
    with hookline.register_op_hook(model, lambda name, op, array: 1 / 0):
        error = raised(hookline.HookError, lambda: adapter.run(model, reference.X))
        assert error.site.startswith("fc1/")
    np.testing.assert_array_equal(adapter.run(model, reference.X), before)


@check("ops")
def two_op_hooks_see_the_same(adapter: Adapter) -> None:
    model = adapter.build("mlp")
    first: list[str] = []
    second: list[str] = []
    with (
        hookline.register_op_hook(model, lambda name, op, array: first.append(name)),
        hookline.register_op_hook(model, lambda name, op, array: second.append(name)),
    ):
        adapter.run(model, reference.X)
    assert first and first == second


@check("ops", "record", "watch")
def operators_are_recorded_and_watched(adapter: Adapter) -> None:
    model = adapter.build("mlp")
    with hookline.record(model, ops=True) as rec:
        adapter.run(model, reference.X)
    names = [name for name in rec.names if name.startswith("fc1/")]
    assert has([adapter.array(rec[name].output) for name in names], reference.mlp().outputs["fc1"])
    with hookline.watch(model, ops=True, grads=False, progress=False) as w:
        adapter.run(model, reference.X)
    assert {row["site"] for row in w.rows() if row["site"].startswith("fc1/")} >= set(names[-1:])
