"""Checks of gradients where one tensor stands at several places: each place has its own share."""

from __future__ import annotations

from typing import Any

import hookline
from hookline.backends.nouns import Module
from hookline.testing.conformance.adapter import Adapter, ramp
from hookline.testing.conformance.checking import check, equal

X = ramp(2, 3)
LOSS = ramp(2, 3)[::-1].copy()


@check("record", "grads", "kwargs")
def one_tensor_at_several_arguments_has_a_gradient_at_each(adapter: Adapter) -> None:
    model = adapter.build("attend")
    with hookline.record(model, "attend", grads=True) as rec:
        equal(adapter.backward(model, X, LOSS), LOSS * 17, adapter)
    for grad, factor in zip(rec["attend"].grad_input, (2, 3), strict=True):
        equal(grad, LOSS * factor, adapter)
    equal(rec["attend"].grad_kwargs["value"], LOSS * 5, adapter)
    assert "one tensor came in at several places" in str(rec.audit()["attend"].why)


@check("backward")
def a_backward_hook_sees_the_gradient_of_each_argument(adapter: Adapter) -> None:
    model = adapter.build("attend")
    seen: list[Any] = []

    def note(module: Module, grad_input: Any, grad_output: Any) -> None:
        seen.append([adapter.array(grad) for grad in grad_input])

    with hookline.register_backward_hook(model, note, "attend"):
        equal(adapter.backward(model, X, LOSS), LOSS * 17, adapter)
    ((query, key),) = seen
    equal(query, LOSS * 2, adapter)
    equal(key, LOSS * 3, adapter)


@check("backward", "edit_grads")
def the_gradient_of_one_argument_is_replaced_alone(adapter: Adapter) -> None:
    model = adapter.build("attend")
    with hookline.register_backward_hook(model, lambda m, grads, _: (grads[0] * 0, grads[1]), "attend"):
        equal(adapter.backward(model, X, LOSS), LOSS * 15, adapter)
    with hookline.edit(model, {"attend:grad_input": lambda grads: (grads[0], grads[1] * 10)}):
        equal(adapter.backward(model, X, LOSS), LOSS * 44, adapter)
    equal(adapter.backward(model, X, LOSS), LOSS * 17, adapter)


@check("record", "grads")
def outputs_made_of_each_other_have_the_gradients_of_their_uses_outside(adapter: Adapter) -> None:
    model = adapter.build("several")
    with hookline.record(model, "several", grads=True) as rec:
        equal(adapter.backward(model, X, LOSS), LOSS * 30, adapter)
    for grad, factor in zip(rec["several"].grad_output, (3, 5, 7), strict=True):
        equal(grad, LOSS * factor, adapter)
    equal(rec["several"].grad_input[0], LOSS * 30, adapter)


@check("backward_pre")
def the_gradient_of_one_of_several_outputs_is_replaced_alone(adapter: Adapter) -> None:
    model = adapter.build("several")
    for factors, total in (((0, 1, 1), 24), ((1, 0, 1), 20), ((1, 1, 0), 16)):

        def changed(module: Module, grads: Any, factors: Any = factors) -> Any:
            return tuple(grad * factor for grad, factor in zip(grads, factors, strict=True))

        with hookline.register_backward_pre_hook(model, changed, "several"):
            equal(adapter.backward(model, X, LOSS), LOSS * total, adapter)


@check("record", "grads")
def an_input_that_is_handed_on_has_the_gradients_of_all_its_uses(adapter: Adapter) -> None:
    model = adapter.build("handed")
    with hookline.record(model, "handed", grads=True) as rec:
        equal(adapter.backward(model, X, LOSS), LOSS * 17, adapter)
    for grad, factor in zip(rec["handed"].grad_output, (5, 3), strict=True):
        equal(grad, LOSS * factor, adapter)
    equal(rec["handed"].grad_input[0], LOSS * 13, adapter)


@check("backward")
def a_backward_hook_is_called_once_where_an_output_is_used_twice(adapter: Adapter) -> None:
    model = adapter.build("handed")
    seen: list[Any] = []

    def note(module: Module, grad_input: Any, grad_output: Any) -> None:
        seen.append([adapter.array(grad) for grad in (*grad_input, *grad_output)])

    with hookline.register_backward_hook(model, note, "handed"):
        equal(adapter.backward(model, X, LOSS), LOSS * 17, adapter)
    ((entered, double, same),) = seen
    equal(entered, LOSS * 13, adapter)
    equal(double, LOSS * 5, adapter)
    equal(same, LOSS * 3, adapter)


@check("watch", "watch_grads")
def a_watch_counts_the_gradient_of_each_place_once(adapter: Adapter) -> None:
    for name, kind, factors in (("attend", "grad_input", (2, 3, 5)), ("several", "grad_output", (3, 5, 7))):
        model = adapter.build(name)
        with hookline.watch(model, name, inputs=True, params=False, progress=False) as watch:
            adapter.backward(model, X, LOSS)
        (row,) = watch.rows(name, kind=kind)
        assert row["count"] == X.size * len(factors)
        assert abs(row["mean"] - LOSS.mean() * sum(factors) / len(factors)) < 1e-6
