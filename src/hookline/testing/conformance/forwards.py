"""Checks of hooks on forwards: what they see, what they replace, handles, errors, copies."""

from __future__ import annotations

import copy
from typing import Any

import hookline
from hookline.backends.nouns import Module, Tree
from hookline.testing.conformance.adapter import Adapter, ramp
from hookline.testing.conformance.checking import check, equal, raised

X = ramp(2, 3)


@check("forward_pre")
def a_pre_hook_sees_and_replaces_arguments(adapter: Adapter) -> None:
    model = adapter.build("chain")
    seen: list[Any] = []

    def tenfold(module: Module, args: Tree) -> Any:
        seen.append(adapter.array(args[0]))
        return (args[0] * 10,)

    with hookline.register_forward_pre_hook(model, tenfold, "block.inner"):
        equal(adapter.run(model, X), X * 300, adapter)
    with hookline.register_forward_pre_hook(model, lambda module, args: args[0] * 10, "block.inner"):
        equal(adapter.run(model, X), X * 300, adapter)
    equal(seen[0], X * 2, adapter)
    assert len(seen) == 1
    equal(adapter.run(model, X), X * 30, adapter)


@check("forward")
def a_hook_sees_and_replaces_the_output(adapter: Adapter) -> None:
    model = adapter.build("chain")
    seen: list[Any] = []

    def tenfold(module: Module, args: Tree, output: Tree) -> Any:
        seen.append((adapter.array(args[0]), adapter.array(output)))
        return output * 10

    handle = hookline.register_forward_hook(model, tenfold, "block")
    equal(adapter.run(model, X), X * 300, adapter)
    handle.remove()
    equal(adapter.run(model, X), X * 30, adapter)
    assert len(seen) == 1
    equal(seen[0][0], X * 2, adapter)
    equal(seen[0][1], X * 6, adapter)


@check("forward")
def hooks_of_one_site_run_in_order_of_registration(adapter: Adapter) -> None:
    model = adapter.build("chain")
    first = hookline.register_forward_hook(model, lambda module, args, output: output + 1, "first")
    second = hookline.register_forward_hook(model, lambda module, args, output: output * 2, "first")
    equal(adapter.run(model, X), (X * 2 + 1) * 2 * 15, adapter)
    first.remove()
    equal(adapter.run(model, X), X * 60, adapter)
    second.remove()


@check("forward_pre", "forward", "kwargs")
def hooks_see_and_replace_keyword_arguments(adapter: Adapter) -> None:
    model = adapter.build("kwargs") or adapter.build("chain")
    where = "scaled" if hasattr(model, "scaled") else "first"
    seen: list[Any] = []

    def other_factor(module: Module, args: Tree, kwargs: Any) -> Any:
        return args, {**kwargs, "factor": 100.0}

    def note(module: Module, args: Tree, kwargs: Any, output: Tree) -> None:
        seen.append((kwargs["factor"], adapter.array(kwargs["add"])))

    with (
        hookline.register_forward_pre_hook(model, other_factor, where, with_kwargs=True),
        hookline.register_forward_hook(model, note, where, with_kwargs=True),
    ):
        equal(adapter.run(model, X), X * 100 + X * 2, adapter)
    assert seen[0][0] == 100.0
    equal(seen[0][1], X * 2, adapter)


@check("forward_pre", "kwargs")
def keyword_arguments_may_be_left_out_and_added(adapter: Adapter) -> None:
    model = adapter.build("kwargs") or adapter.build("chain")
    where = "scaled" if hasattr(model, "scaled") else "first"
    left_out: list[Any] = []

    def without(module: Module, args: Tree, kwargs: Any) -> Any:
        left_out.append(kwargs["add"])
        return args, {"factor": kwargs["factor"]}

    def again(module: Module, args: Tree, kwargs: Any) -> Any:
        return args, {**kwargs, "add": left_out[-1] * 5}

    with (
        hookline.register_forward_pre_hook(model, without, where, with_kwargs=True),
        hookline.register_forward_pre_hook(model, again, where, with_kwargs=True),
    ):
        equal(adapter.run(model, X), X * 3 + X * 10, adapter)


@check("forward_pre", "forward")
def a_prepended_hook_runs_before_those_that_are_there(adapter: Adapter) -> None:
    model = adapter.build("chain")
    with (
        hookline.register_forward_pre_hook(model, lambda module, args: args[0] + 1, "first"),
        hookline.register_forward_pre_hook(model, lambda module, args: args[0] * 2, "first", prepend=True),
        hookline.register_forward_hook(model, lambda module, args, output: output + 1, "block"),
        hookline.register_forward_hook(model, lambda module, args, output: output * 2, "block", prepend=True),
        hookline.register_forward_hook(model, lambda module, args, output: output * 4, "block", prepend=True),
    ):
        equal(adapter.run(model, X), ((X * 2 + 1) * 6 * 8 + 1) * 5, adapter)


@check("forward_pre", "forward", "always_call")
def a_hook_that_is_always_called_runs_when_the_call_raises(adapter: Adapter) -> None:
    model = adapter.build("chain")
    seen: list[Any] = []
    with (
        hookline.register_forward_hook(model, lambda m, a, output: seen.append(output), "first", always_call=True),
        hookline.register_forward_pre_hook(model, lambda module, args: 1 / 0, "first"),
    ):
        raised(hookline.HookError, lambda: adapter.run(model, X))
    assert seen == [None]


@check("forward")
def one_handle_holds_everything_and_goes_twice(adapter: Adapter) -> None:
    model = adapter.build("chain")
    names: list[str] = []
    handle = hookline.register_forward_hook(model, lambda m, a, o: names.append(type(m).__name__), "**")
    adapter.run(model, X)
    assert len(names) == 5
    assert len(hookline.installed(model)) == 5
    handle.detach()
    handle.remove()
    adapter.run(model, X)
    assert len(names) == 5
    assert hookline.installed(model) == []


@check("forward")
def installed_tells_whose_hook_sits_where(adapter: Adapter) -> None:
    model = adapter.build("chain")
    with hookline.register_forward_hook(model, lambda m, a, o: None, "block.inner"):
        (label,) = hookline.installed(model)
        assert label[:3] == ("register_forward_hook", "forward hook", "block.inner")


@check("forward")
def a_hook_may_remove_itself_while_it_runs(adapter: Adapter) -> None:
    model = adapter.build("chain")
    seen: list[str] = []

    def once(module: Module, args: Tree, output: Tree) -> None:
        seen.append("once")
        handle.remove()

    handle = hookline.register_forward_hook(model, once, "first")
    with hookline.register_forward_hook(model, lambda m, a, o: seen.append("always"), "first"):
        adapter.run(model, X)
        adapter.run(model, X)
    assert seen == ["once", "always", "always"]


@check("forward")
def an_error_in_a_hook_names_the_site_and_leaves_nothing(adapter: Adapter) -> None:
    model = adapter.build("chain")
    handle = hookline.register_forward_hook(model, lambda module, args, output: 1 / 0, "block.inner")
    error = raised(hookline.HookError, lambda: adapter.run(model, X))
    assert error.site == "block.inner"
    assert "ZeroDivisionError" in str(error)
    handle.remove()
    equal(adapter.run(model, X), X * 30, adapter)


@check("forward")
def a_wrong_replacement_is_refused(adapter: Adapter) -> None:
    model = adapter.build("chain")
    for wrong in (lambda output: output[0:1], lambda output: (output,), lambda output: "text"):
        with hookline.register_forward_hook(model, lambda m, a, output, wrong=wrong: wrong(output), "first"):
            error = raised(hookline.WrongReplacement, lambda: adapter.run(model, X))
            assert error.site == "first"


@check("forward")
def a_shared_module_fires_at_each_call(adapter: Adapter) -> None:
    model = adapter.build("shared")
    seen: list[Any] = []
    with hookline.register_forward_hook(model, lambda m, a, output: seen.append(adapter.array(output)), "b"):
        adapter.run(model, X)
    assert len(seen) == 2
    equal(seen[0], X * 2, adapter)
    equal(seen[1], X * 4, adapter)


@check("forward")
def a_name_that_is_not_there_gets_the_near_ones(adapter: Adapter) -> None:
    model = adapter.build("chain")
    error = raised(
        hookline.NoSuchSite, lambda: hookline.register_forward_hook(model, lambda m, a, o: None, "block.iner")
    )
    assert "block.inner" in str(error)
    assert hookline.installed(model) == []


@check("forward")
def a_copy_of_a_hooked_model_has_no_live_hook(adapter: Adapter) -> None:
    model = adapter.build("chain")
    seen: list[Any] = []
    with hookline.register_forward_hook(model, lambda m, a, o: seen.append(1), "**"):
        twin = copy.deepcopy(model)
        equal(adapter.run(twin, X), X * 30, adapter)
        assert seen == []
        equal(adapter.run(model, X), X * 30, adapter)
        assert len(seen) == 5
    equal(adapter.run(twin, X), X * 30, adapter)
    assert len(seen) == 5


@check("record", "forward", "edit")
def nothing_is_left_after_an_exception(adapter: Adapter) -> None:
    model = adapter.build("chain")
    before = adapter.run(model, X)

    def fails() -> None:
        with hookline.record(model, inputs=True), hookline.edit(model, {"first": lambda output: output * 0}):
            adapter.run(model, X)
            raise KeyError("of the user")

    raised(KeyError, fails)
    assert hookline.installed(model) == []
    equal(adapter.run(model, X), before, adapter)
