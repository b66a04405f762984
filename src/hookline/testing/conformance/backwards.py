"""Checks of gradients: what they belong to, structures, replacing, HookBackward."""

from __future__ import annotations

import itertools
from typing import Any

import hookline
from hookline.backends.nouns import Module, Tensor
from hookline.testing.conformance import reference
from hookline.testing.conformance.adapter import Adapter, ramp
from hookline.testing.conformance.checking import check, close, equal, raised

X = ramp(2, 3)
LOSS = ramp(2, 3)[::-1].copy()
"""The gradient that arrives at a model's output."""


@check("backward_pre")
def a_backward_pre_hook_sees_and_replaces_the_gradient_of_the_output(adapter: Adapter) -> None:
    model = adapter.build("chain")
    seen: list[Any] = []

    def tenfold(module: Module, grad_output: Any) -> Any:
        assert isinstance(grad_output, tuple)
        seen.append(adapter.array(grad_output[0]))
        return (grad_output[0] * 10,)

    with hookline.register_backward_pre_hook(model, tenfold, "block"):
        equal(adapter.backward(model, X, LOSS), LOSS * 300, adapter)
    assert len(seen) == 1
    equal(seen[0], LOSS * 5, adapter)
    equal(adapter.backward(model, X, LOSS), LOSS * 30, adapter)


@check("backward")
def a_backward_hook_sees_both_gradients_and_replaces_that_of_the_input(adapter: Adapter) -> None:
    model = adapter.build("chain")
    seen: list[Any] = []

    def tenfold(module: Module, grad_input: Any, grad_output: Any) -> Any:
        seen.append((adapter.array(grad_input[0]), adapter.array(grad_output[0])))
        return (grad_input[0] * 10,)

    with hookline.register_backward_hook(model, tenfold, "block.inner"):
        equal(adapter.backward(model, X, LOSS), LOSS * 300, adapter)
    assert len(seen) == 1
    equal(seen[0][0], LOSS * 15, adapter)
    equal(seen[0][1], LOSS * 5, adapter)
    equal(adapter.backward(model, X, LOSS), LOSS * 30, adapter)


@check("backward_pre", "backward")
def a_prepended_backward_hook_runs_before_those_that_are_there(adapter: Adapter) -> None:
    model = adapter.build("chain")
    with (
        hookline.register_backward_pre_hook(model, lambda module, grads: (grads[0] + 1,), "last"),
        hookline.register_backward_pre_hook(model, lambda module, grads: (grads[0] * 2,), "last", prepend=True),
        hookline.register_backward_hook(model, lambda module, grads, _: (grads[0] + 1,), "first"),
        hookline.register_backward_hook(model, lambda module, grads, _: (grads[0] * 2,), "first", prepend=True),
        hookline.register_backward_hook(model, lambda module, grads, _: (grads[0] * 4,), "first", prepend=True),
    ):
        equal(adapter.backward(model, X, LOSS), (LOSS * 2 + 1) * 30 * 8 + 1, adapter)


@check("accumulated")
def a_hook_hears_of_each_gradient_that_is_accumulated(adapter: Adapter) -> None:
    model = adapter.build("mlp")
    names = [adapter.parameters[name] for name in ("fc1.weight", "fc2.bias")]
    grads: list[Any] = []

    def note(parameter: Tensor) -> None:
        grads.append(adapter.array(parameter.grad))

    with hookline.register_post_accumulate_grad_hook(model, note, names):
        assert sorted(label.site for label in hookline.installed(model)) == sorted(names)
        adapter.backward(model, reference.X, reference.LOSS)
    assert hookline.installed(model) == []
    wanted = reference.mlp().param_grads
    for name in ("fc1.weight", "fc2.bias"):
        (grad,) = (grad for grad in grads if grad.size == wanted[name].size)
        close(adapter.kernel(grad) if name.endswith("weight") else grad, wanted[name], adapter)


@check("backward")
def the_gradient_of_an_input_is_the_modules_own_share(adapter: Adapter) -> None:
    model = adapter.build("branch")
    seen: list[Any] = []

    def note(module: Module, grad_input: Any, grad_output: Any) -> None:
        seen.append((adapter.array(grad_input[0]), adapter.array(grad_output[0])))

    with hookline.register_backward_hook(model, note, "part"):
        equal(adapter.backward(model, X, LOSS), LOSS * 13, adapter)
    equal(seen[0][0], LOSS * 3, adapter)
    equal(seen[0][1], LOSS, adapter)


@check("backward")
def a_module_that_returns_its_input_has_gradients(adapter: Adapter) -> None:
    model = adapter.build("same")
    seen: list[Any] = []

    def note(module: Module, grad_input: Any, grad_output: Any) -> None:
        seen.append((adapter.array(grad_input[0]), adapter.array(grad_output[0])))

    with hookline.register_backward_hook(model, note, "same"):
        equal(adapter.backward(model, X, LOSS), LOSS * 3, adapter)
    equal(seen[0][0], LOSS * 3, adapter)
    equal(seen[0][1], LOSS * 3, adapter)


@check("forward_pre", "forward", "backward_pre", "backward")
def gradients_belong_to_what_crosses_after_all_forward_hooks(adapter: Adapter) -> None:
    for pre, post in itertools.product((False, True), repeat=2):
        model = adapter.build("chain")
        seen: dict[str, Any] = {}
        handles = []
        if pre:
            handles.append(
                hookline.register_forward_pre_hook(model, lambda module, args: (args[0] * 10,), "block.inner")
            )
        if post:
            handles.append(
                hookline.register_forward_hook(model, lambda module, args, output: output * 7, "block.inner")
            )

        def before(module: Module, grad_output: Any, seen: dict[str, Any] = seen) -> None:
            seen["before"] = adapter.array(grad_output[0])

        def after(module: Module, grad_input: Any, grad_output: Any, seen: dict[str, Any] = seen) -> None:
            seen["input"], seen["output"] = adapter.array(grad_input[0]), adapter.array(grad_output[0])

        handles.append(hookline.register_backward_pre_hook(model, before, "block.inner"))
        handles.append(hookline.register_backward_hook(model, after, "block.inner"))
        factor = 7 if post else 1
        equal(adapter.backward(model, X, LOSS), LOSS * (5 * 3 * 2 * factor * (10 if pre else 1)), adapter)
        equal(seen["before"], LOSS * 5, adapter)
        equal(seen["output"], LOSS * 5, adapter)
        equal(seen["input"], LOSS * (5 * 3 * factor), adapter)
        for handle in handles:
            handle.remove()


@check("forward", "backward", "original")
def original_gradients_are_those_before_the_forward_hooks(adapter: Adapter) -> None:
    model = adapter.build("chain")
    seen: list[Any] = []

    def note(module: Module, grad_input: Any, grad_output: Any) -> None:
        seen.append((adapter.array(grad_input[0]), adapter.array(grad_output[0])))

    with (
        hookline.register_forward_hook(model, lambda module, args, output: output * 7, "block.inner"),
        hookline.register_backward_hook(model, note, "block.inner", original=True),
    ):
        equal(adapter.backward(model, X, LOSS), LOSS * 210, adapter)
    equal(seen[0][1], LOSS * 35, adapter)
    equal(seen[0][0], LOSS * 105, adapter)


@check("backward_pre", "backward")
def gradients_go_through_structured_outputs(adapter: Adapter) -> None:
    model = adapter.build("fork")
    seen: dict[str, Any] = {}

    def before(module: Module, grad_output: Any) -> Any:
        (tree,) = grad_output
        seen["double"], seen["more"] = adapter.array(tree["double"]), adapter.array(tree["more"][0])
        assert tree["more"][1] is None
        return ({"double": tree["double"] * 10, "more": (tree["more"][0], None)},)

    def after(module: Module, grad_input: Any, grad_output: Any) -> None:
        seen["input"] = adapter.array(grad_input[0])

    with hookline.register_backward_pre_hook(model, before, "fork"):
        equal(adapter.backward(model, X, LOSS), LOSS * (100 + 21), adapter)
    equal(seen["double"], LOSS * 5, adapter)
    equal(seen["more"], LOSS * 7, adapter)
    with hookline.register_backward_hook(model, after, "fork"):
        equal(adapter.backward(model, X, LOSS), LOSS * 31, adapter)
    equal(seen["input"], LOSS * 31, adapter)


@check("backward")
def gradients_go_through_structured_inputs(adapter: Adapter) -> None:
    model = adapter.build("join")
    seen: dict[str, Any] = {}

    def after(module: Module, grad_input: Any, grad_output: Any) -> Any:
        (pair,) = grad_input
        seen["a"], seen["b"] = adapter.array(pair["a"]), adapter.array(pair["b"])
        return ({"a": pair["a"] * 10, "b": pair["b"]},)

    with hookline.register_backward_hook(model, after, "join"):
        equal(adapter.backward(model, X, LOSS), LOSS * (20 + 12), adapter)
    equal(seen["a"], LOSS * 2, adapter)
    equal(seen["b"], LOSS * 3, adapter)


@check("backward")
def each_call_of_a_shared_module_has_its_own_gradients(adapter: Adapter) -> None:
    model = adapter.build("shared")
    seen: list[Any] = []

    def note(module: Module, grad_input: Any, grad_output: Any) -> None:
        seen.append((adapter.array(grad_input[0]), adapter.array(grad_output[0])))

    with hookline.register_backward_hook(model, note, "a"):
        equal(adapter.backward(model, X, LOSS), LOSS * 4, adapter)
    assert len(seen) == 2
    equal(seen[0][0], LOSS * 2, adapter)
    equal(seen[1][0], LOSS * 4, adapter)


@check("backward")
def a_backward_hook_runs_where_no_input_needs_a_gradient(adapter: Adapter) -> None:
    model = adapter.build("mlp")
    wanted = reference.mlp()
    seen: list[Any] = []
    with hookline.register_backward_hook(
        model, lambda m, grad_in, grad_out: seen.append((grad_in, grad_out)), "fc1"
    ):
        adapter.train(model, reference.X, reference.LOSS, steps=1)
    ((grad_input, grad_output),) = seen
    close(grad_output[0], wanted.grad_outputs["fc1"], adapter)
    if grad_input[0] is not None:  # a framework may compute it all the same
        close(grad_input[0], wanted.grad_inputs["fc1"], adapter)


@check("backward")
def an_error_in_a_backward_hook_names_the_site(adapter: Adapter) -> None:
    model = adapter.build("chain")
    with hookline.register_backward_hook(model, lambda m, grad_input, grad_output: 1 / 0, "block.inner"):
        error = raised(hookline.HookError, lambda: adapter.backward(model, X, LOSS))
        assert error.site == "block.inner"
    equal(adapter.backward(model, X, LOSS), LOSS * 30, adapter)


@check("forward", "forward_pre", "backward")
def gradients_are_right_after_a_hook_has_ended_a_forward(adapter: Adapter) -> None:
    model = adapter.build("mlp")
    wanted = adapter.backward(model, reference.X, reference.LOSS)
    for register in (hookline.register_forward_hook, hookline.register_forward_pre_hook):
        with register(model, lambda *told: 1 / 0, "act"):
            raised(hookline.HookError, lambda: adapter.backward(model, reference.X, reference.LOSS))
        equal(adapter.backward(model, reference.X, reference.LOSS), wanted, adapter)
        equal(adapter.backward(model, reference.X * 2, reference.LOSS * 0), wanted * 0, adapter)
    seen: list[Any] = []
    with hookline.register_backward_hook(model, lambda *told: seen.append(1), "act"):
        adapter.run(model, reference.X)  # nothing of a failed one is still under way
        assert seen == []
        equal(adapter.backward(model, reference.X, reference.LOSS), wanted, adapter)
    assert seen == [1]


@check("hook_backward")
def hook_backward_sees_and_replaces_the_gradient_at_one_point(adapter: Adapter) -> None:
    seen: list[Any] = []

    def tenfold(grads: Any) -> Any:
        seen.append(adapter.array(grads[0]))
        return grads[0] * 10

    equal(
        adapter.backward(adapter.build("point", hook=hookline.HookBackward(tenfold)), X, LOSS), LOSS * 60, adapter
    )
    assert len(seen) == 1
    equal(seen[0], LOSS * 3, adapter)
    quiet = hookline.HookBackward(lambda grads: None)
    model = adapter.build("point", hook=quiet)
    equal(adapter.backward(model, X, LOSS), LOSS * 6, adapter)
    equal(adapter.run(model, X), X * 6, adapter)


@check("hook_backward")
def hook_backward_takes_several_tensors(adapter: Adapter) -> None:
    seen: list[Any] = []

    def swap(grads: Any) -> Any:
        seen.extend(adapter.array(grad) for grad in grads)
        return grads[1], grads[0]

    model = adapter.build("points", hook=hookline.HookBackward(swap))
    equal(adapter.backward(model, X, LOSS), LOSS * (7 * 2 + 3 * 5), adapter)
    equal(seen[0], LOSS * 3, adapter)
    equal(seen[1], LOSS * 7, adapter)
