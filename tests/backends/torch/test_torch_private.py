"""Each private name of torch that compat.py uses still does what hookline needs of it.

A failure here means that a torch release changed something: compat.py says what would replace it.
"""

import operator
import sys
from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

from hookline.backends.torch import compat, engine
from hookline.backends.undoing import Undoing


def test_hook_dictionaries_are_what_register_forward_hook_fills():
    module = nn.Linear(1, 1)
    pre = module.register_forward_pre_hook(lambda m, a, k: None, with_kwargs=True)
    post = module.register_forward_hook(lambda m, a, k, o: None, with_kwargs=True)
    for handle, after in ((pre, False), (post, True)):
        hooks, with_kwargs = compat.hook_dicts(module, after=after)
        assert list(hooks) == [handle.id] and with_kwargs[handle.id]
    assert compat.fresh_hook_id() > post.id
    assert module.register_forward_hook(lambda m, a, o: None).id > post.id


def test_an_entry_in_the_dictionary_is_called():
    module, seen = nn.Linear(1, 1), []
    compat.hook_dicts(module, after=True)[0][compat.fresh_hook_id()] = lambda m, a, o: seen.append(o)
    module(torch.ones(1))
    assert len(seen) == 1


@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_a_hook_takes_the_place_of_an_entry_that_has_its_number(register):
    module = nn.Linear(1, 1)
    hooks, _ = compat.hook_dicts(module, after=register == "register_forward_hook")
    hooks[-1] = lambda *told: None

    def makes_room(found, number):
        if found is hooks:
            hooks[number] = None
            hooks.move_to_end(-1)

    compat.before_registering(makes_room)
    try:
        handle = getattr(module, register)(lambda *told: None)
    finally:
        compat.before_registering(None)
    assert list(hooks) == [handle.id, -1] and hooks[handle.id] is not None
    assert list(hooks) == [handle.id, -1] and getattr(module, register)(print).id == list(hooks)[-1]


def test_a_call_goes_through_a_copy_of_the_hooks_and_looks_up_kwargs_for_each():
    """What `Tap.whole_calls_only` is for: taken off during a call, a hook is called once more, without kwargs."""
    module, told = nn.Identity(), []

    def takes_the_other_off(m, args, output):
        other.remove()

    module.register_forward_hook(takes_the_other_off)
    other = module.register_forward_hook(lambda *args: told.append(len(args)), with_kwargs=True)
    module(torch.ones(1))
    module(torch.ones(1))
    assert told == [3]


@pytest.mark.parametrize("leaf", [True, False])
def test_listen_is_register_hook(leaf):
    x = torch.ones(2, requires_grad=True)
    t = x if leaf else x * 1
    seen = []
    compat.listen(t, lambda g: seen.append(("first", g.tolist())) or g * 10)
    compat.listen(t, lambda g: seen.append(("second", g.tolist())))
    handle = t.register_hook(lambda g: seen.append(("third", g.tolist())))
    (t * 3).sum().backward()
    assert seen == [("first", [3, 3]), ("second", [30, 30]), ("third", [30, 30])]
    handle.remove()


def test_listen_survives_an_in_place_operation():
    x = torch.ones(1, requires_grad=True)
    t, seen = x * 1, []
    compat.listen(t, lambda g: seen.append(g.item()))
    t.mul_(5)
    t.backward()
    assert seen == [5.0]


def test_graph_task_and_node_are_known_inside_a_backward_only():
    assert compat.graph_task() == -1 and compat.current_node() is None
    seen = []
    x = torch.ones(1, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: seen.append((compat.graph_task(), compat.current_node())))
    y.backward()
    assert seen[0][0] >= 0


def test_sequence_numbers_grow_and_mark_nodes():
    before = compat.sequence_number()
    y = torch.ones(1, requires_grad=True) * 2
    assert before <= compat.node_number(y.grad_fn) < compat.sequence_number()


def test_autograd_runs_nodes_from_the_youngest_to_the_oldest():
    """What lets several gradients meet before any of them goes on (torch/grads/backward.py)."""
    order = []
    xs = [torch.ones(1, requires_grad=True) for _ in range(4)]
    views = [x.view_as(x) for x in xs]
    for number, view in enumerate(views):
        view.register_hook(lambda g, n=number: order.append(n))
    torch.stack(views[::-1]).prod().backward()
    assert order == [3, 2, 1, 0]


def test_versions_count_writes_and_views_know_their_base():
    x = torch.ones(4)
    view = x[:2]
    before = compat.version(x)
    view.add_(1)
    assert compat.version(x) == before + 1 == compat.version(x.detach())
    assert compat.base_of(view) is x and compat.base_of(x) is None


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputations_are_known(reentrant):
    seen = []

    def part(x):
        seen.append(compat.in_recompute())
        return torch.tanh(x) * 2

    checkpoint(part, torch.ones(1, requires_grad=True), use_reentrant=reentrant).backward()
    assert seen == [False, True]


def test_other_forwards_inside_a_backward_are_not_recomputations():
    seen = []
    y = torch.ones(1, requires_grad=True) * 2
    y.register_hook(lambda g: seen.append(compat.in_recompute()))
    y.backward()
    assert seen == [False]


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")  # torch's own import
def test_compiled_models_are_known():
    plain, compiled, wrapped = nn.Linear(1, 1), nn.Linear(1, 1), torch.compile(nn.Linear(1, 1))
    compiled.compile()
    assert [compat.compiled(m) for m in (plain, compiled, wrapped)] == [False, True, True]


def test_transforms_of_torch_func_are_unwrapped():
    seen = []

    def look(x):
        seen.append(compat.unwrapped(x))
        return x.sum()

    x = torch.arange(6.0).reshape(2, 3)
    torch.func.vmap(torch.func.grad(look))(x)
    look(x)
    assert all(torch.equal(found, x) for found, _ in seen) and [batches for _, batches in seen] == [[0], []]


def test_batches_of_nested_vmaps_are_told_from_the_outermost_on():
    seen = []
    x = torch.randn(2, 3, 4)
    torch.func.vmap(torch.func.vmap(lambda one: seen.append(compat.unwrapped(one)) or one), in_dims=2)(x)
    ((found, batches),) = seen
    assert found.shape == x.shape and [x.shape[dim] for dim in batches] == [4, 2]


def test_the_older_kind_of_batch_is_unwrapped():
    seen = []
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: seen.append((compat.is_seen(g), compat.unwrapped(g))))
    torch.autograd.grad(y, x, torch.ones(2, 3), is_grads_batched=True)
    ((is_seen, (found, batches)),) = seen
    assert is_seen and found.tolist() == torch.ones(2, 3).tolist() and batches == [0]


class _Functions(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, fn, types, args=(), kwargs=None):
        raise AssertionError("seen")


class _Operations(compat.DispatchMode):
    def __torch_dispatch__(self, fn, types, args=(), kwargs=None):
        raise AssertionError("seen")


@pytest.mark.parametrize("mode", [_Functions, _Operations])
def test_nobody_sees_what_runs_aside(mode):
    x = torch.ones(2)
    assert not compat.is_seen(x)
    with mode():
        assert compat.is_seen(x)
        with pytest.raises(AssertionError, match="seen"):
            x.clone()
        with compat.aside():
            x.clone()
        with pytest.raises(AssertionError, match="seen"):
            x.clone()
    assert not compat.is_seen(x)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_aside_of_transforms():
    seen = []

    def look(x):
        assert compat.is_seen(x)
        with compat.aside():
            seen.append(compat.unwrapped(x)[0].clone())
        return x * 2

    torch.func.jvp(look, (torch.ones(2),), (torch.ones(2),))
    assert seen[0].numpy().tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_aside_of_the_tracer():
    def look(x):
        assert compat.is_seen(x) and compat.tracer() is not None
        with compat.aside():
            assert compat.tracer() is None
            x.clone()
        assert compat.tracer() is not None
        return x * 2

    graph = torch.jit.trace(look, torch.ones(2), check_trace=False).graph
    assert {node.kind() for node in graph.nodes()} == {"aten::mul", "prim::Constant"}


@pytest.mark.parametrize("early", [True, False])
def test_aside_of_make_fx(early):
    from torch.fx.experimental.proxy_tensor import make_fx

    def look(x):
        assert compat.is_seen(x)
        with compat.aside(type(x)):
            x.clone()
        return x * 2

    graph = make_fx(look, pre_dispatch=early)(torch.ones(2)).graph
    assert [node.name for node in graph.nodes if node.op == "call_function"] == ["mul"]


def test_a_functional_tensor_of_a_graph_in_the_making_holds_a_fake():
    from functorch.compile import aot_function, make_boxed_func

    seen = []

    def look(x):
        seen.append(compat.unwrapped(x))
        return x * 2

    aot_function(look, lambda graph, inputs: make_boxed_func(graph))(torch.ones(2))
    assert seen and all(compat.is_fake(found) and not batches for found, batches in seen)
    assert not compat.is_fake(torch.ones(1))


def test_a_lazy_parameter_takes_a_hook_and_keeps_it():
    module, seen = nn.LazyLinear(2), []
    with compat.as_plain_tensors():
        module.weight.register_hook(lambda grad: seen.append(tuple(grad.shape)))
    module(torch.ones(1, 3)).sum().backward()
    assert seen == [(2, 3)]


def test_the_type_of_a_fake_parameter_makes_another():
    mode = compat.fake_mode()
    fake = compat.fake_like(mode, nn.Parameter(torch.ones(2, 3)), torch.device("cpu"))
    assert isinstance(fake, nn.Parameter)
    with mode:
        other = type(fake)(torch.ones(4, 3), requires_grad=False)
        assert isinstance(other, nn.Parameter) and type(other) is type(fake) and not other.requires_grad
        assert (other @ fake.t()).shape == (4, 2) and compat.is_fake(other)


def test_a_fake_mode_gives_shapes_and_no_memory():
    with compat.fake_mode():
        y = torch.empty(10**6, 10**6) @ torch.ones(10**6, 3)
    assert y.shape == (10**6, 3) and str(y.device) == "cpu"
    with compat.fake_mode():
        assert (torch.empty(2, 3) + torch.ones(3)).shape == (2, 3)
    real = torch.ones(3)
    with compat.fake_mode():  # a tensor that was made before may be used
        assert (real + 1).shape == (3,)


def test_a_fake_like_another_tensor_is_that_of_the_mode_itself():
    mode = compat.fake_mode()
    for tensor in (nn.Parameter(torch.ones(2, 3).t()), nn.Parameter(torch.ones(2), False), torch.ones(3)[::2]):
        with mode:
            slow = torch.empty_strided(
                tensor.size(), tensor.stride(), dtype=tensor.dtype, requires_grad=tensor.requires_grad
            )
            slow = nn.Parameter(slow, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else slow
        quick = compat.fake_like(mode, tensor, torch.device("cpu"))
        for fake in (slow, quick):
            assert (fake.shape, fake.stride(), fake.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
            assert fake.requires_grad == tensor.requires_grad and fake.is_leaf and str(fake.device) == "cpu"
            assert isinstance(fake, nn.Parameter) == isinstance(tensor, nn.Parameter)
            assert fake.fake_mode is mode
        with mode:
            assert (quick * 2).shape == tensor.shape


def test_a_dispatch_mode_sees_operations_below_autograd():
    seen = []

    class Mode(compat.DispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Mode():
        nn.Linear(2, 2)(torch.ones(1, 2))
    assert "aten.addmm.default" in seen


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.sum() > 0),
        lambda x: x.numpy(),
        lambda x: x[x > 0],
        lambda x: x.data_ptr(),
    ],
)
def test_what_fake_tensors_cannot_do_is_known_as_their_fault(fn):
    with compat.quiet_fakes(), compat.fake_mode():
        x = torch.ones(3)
        with pytest.raises(Exception) as caught:  # noqa: PT011, torch has many classes for it
            fn(x)
    assert compat.is_fakes_fault(caught.value)


def test_an_error_of_shapes_is_not_the_fault_of_fake_tensors(caplog):
    with compat.quiet_fakes(), compat.fake_mode(), pytest.raises(RuntimeError) as caught:
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert not compat.is_fakes_fault(caught.value) and not caplog.records


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")  # torch's own import
def test_compiled_modules_can_be_run_as_they_are_written():
    inner, plain = nn.Linear(1, 1), nn.Linear(1, 1)
    assert compat.uncompiled(torch.compile(inner)) is inner and compat.uncompiled(plain) is plain
    plain.compile()
    assert compat.uncompiled(plain) is plain
    compat.forget_compiled(plain)
    assert not compat.compiled(plain)


def test_a_quick_dispatch_mode_is_called_by_the_code_that_runs_the_operation():
    import sys

    callers = []

    class Mode(compat.QuickDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            callers.append(sys._getframe(1).f_code.co_name)
            return func(*args, **(kwargs or {}))

    mode = Mode()
    with mode:
        assert compat.dispatch_modes() == [mode]
        torch.ones(1)
        with compat.without_dispatch():
            torch.ones(1)
    assert compat.dispatch_modes() == []
    assert callers == ["test_a_quick_dispatch_mode_is_called_by_the_code_that_runs_the_operation"]


@pytest.mark.parametrize("way", ["backward", "grad"])
def test_a_backward_runs_within_what_was_put_around_it(way):
    log = []

    @contextmanager
    def around():
        log.append("begins")
        yield
        log.append("ends")

    before = torch.autograd.Variable._execution_engine
    undoing = Undoing()
    engine.around_backward(undoing, around)
    x = torch.ones(1, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: log.append("runs"))
    y.backward() if way == "backward" else torch.autograd.grad(y, x)
    undoing.close()
    undoing.close()
    assert log == ["begins", "runs", "ends"]
    assert torch.autograd.Variable._execution_engine is before
    (x * 2).backward()
    assert len(log) == 3


def test_a_dispatch_mode_around_a_backward_sees_its_operations_and_their_nodes():
    seen = []

    class Mode(compat.QuickDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            node = compat.current_node()
            seen.append((str(func), node.name(), compat.node_number(node)))
            return func(*args, **(kwargs or {}))

    weight = torch.ones(2, requires_grad=True)
    number = compat.sequence_number()
    y = torch.tanh(weight)
    with Undoing() as undoing:
        engine.around_backward(undoing, Mode)
        y.backward(torch.ones(2))
    assert all(name.startswith("aten.") for name, *_ in seen)
    assert seen[0][1:] == ("TanhBackward0", number)
    (last,) = {entry[1:] for entry in seen} - {("TanhBackward0", number)}
    assert seen[-1][1:] == last and "Accumulate" in last[0] and last[1] >= 2**63


def test_operations_made_of_others_are_taken_apart():
    seen = []

    class Mode(compat.QuickDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if (parts := compat.in_parts(self, func, args, kwargs or {})) is not NotImplemented:
                return parts
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with torch.inference_mode(), Mode():
        nn.functional.linear(torch.ones(1, 2), torch.ones(2, 2), torch.ones(2))
    assert seen[-2:] == ["aten.t.default", "aten.addmm.default"]


def test_all_operators_are_listed():
    names = compat.all_operators()
    assert {"aten::add.Tensor", "aten::convolution", "aten::addmm"} <= set(names)


# What op hooks use of torch's compiler


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own import
@pytest.mark.usefixtures("hooks_in_graphs")
def test_the_backend_of_a_compiled_model_is_known():
    from hookline.backends.torch.compiled import entry as compiler

    def mine(graph, inputs):
        return graph.forward

    for backend, name in (
        ("inductor", "inductor"),
        ("aot_eager", "aot_eager"),
        ("eager", "eager"),
        (mine, "mine"),
    ):
        in_place = nn.Linear(1, 1)
        in_place.compile(backend=backend)
        wrapped = torch.compile(nn.Linear(1, 1), backend=backend)
        assert [compiler.compiler_of(model) for model in (in_place, wrapped)] == [name, name]
        assert not compiler.has_pass_of_its_own(wrapped)
    options = {"post_grad_custom_post_pass": lambda graph: None}
    assert compiler.has_pass_of_its_own(torch.compile(nn.Linear(1, 1), options=options))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own import
@pytest.mark.parametrize("in_place", [True, False])
def test_a_compiled_model_can_run_as_written_and_within_something(in_place):
    from hookline.backends.torch.compiled import entry as compiler

    def mine(graph, inputs):
        log.append("compiled")
        return lambda *args: [arg * 0 for arg in graph.forward(*args)]

    class Double(nn.Module):
        def forward(self, x):
            return x * 2

    @contextmanager
    def around():
        log.append("begins")
        yield
        log.append("ends")

    log, model = [], Double()
    call = model if in_place else torch.compile(model, backend=mine)
    if in_place:
        model.compile(backend=mine)
    with Undoing() as undoing:
        compiler.run_as_written(undoing, call)
        assert call(torch.ones(1)) == 2 and log == []
    with Undoing() as undoing:
        compiler.around_compiled(undoing, call, around)
        assert call(torch.ones(1)) == 0 and log == ["begins", "compiled", "ends"]
    assert call(torch.ones(1)) == 0 and log == ["begins", "compiled", "ends"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning:torch")  # torch's own
@pytest.mark.usefixtures("hooks_in_graphs")
def test_inductor_hands_over_both_graphs_with_classes_calls_phases_and_lines():
    from torch._functorch import config as functorch
    from torch._inductor import config as inductor

    class Own(nn.Linear):
        pass

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = Own(2, 2)

        def forward(self, x):
            return self.fc(self.fc(x))

    seen, compilations, model = [], [], Model()

    def look(graph):
        assert compat.module_under_compilation() is model
        compilations.append(compat.compilation())
        for node in graph.nodes:
            stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
            if "mm" in str(node.target) and stack:  # what inductor made of several nodes has none
                ((key, (_, kind)),) = stack.items()
                assert "test_torch_private.py" in node.meta["stack_trace"]
                mode = compat.fakes_of(node.meta["val"])
                with mode:
                    assert torch.empty(1).fake_mode is mode
                seen.append((node.meta["partitioner_tag"], kind is Own, "@1" in key))

    graphs = compat.graphs_so_far()
    with Undoing() as undoing:
        compat.inductor_pass(undoing, look)
        # No backward: it is not waited for.
        torch.compile(model, fullgraph=True)(torch.ones(3, 2, requires_grad=True))
    assert compat.graphs_so_far() == graphs + 1
    assert inductor.post_grad_custom_post_pass is None and not functorch.force_non_lazy_backward_lowering
    calls = {("is_forward", True, False), ("is_forward", True, True), ("is_backward", True, True)}
    assert calls <= set(seen)
    assert len(compilations) == 2 and compilations[0] == compilations[1] != compat.compilation()
    assert compat.module_under_compilation() is None


# Compiled code


@pytest.fixture
def compiling():
    from torch import _dynamo

    _dynamo.reset()
    yield lambda fn: torch.compile(fn, backend="eager", fullgraph=True)
    _dynamo.reset()


def test_a_function_is_called_while_tracing_and_its_result_is_a_constant(compiling):
    calls = []

    @compat.constant_while_tracing
    def told(number):
        calls.append(number)
        return number + 1

    ran = compiling(lambda x: x * told(2))
    assert ran(torch.ones(1)).item() == ran(torch.ones(1)).item() == 3 and calls == [2]


def test_another_function_is_traced_where_a_method_is_called(compiling):
    class Callable:
        def __call__(self, x):
            raise AssertionError("never traced")

    compat.traced_instead(Callable.__call__, lambda self, x: x + 1)
    thing = Callable()
    assert compiling(lambda x: thing(x))(torch.ones(1)).item() == 2


def test_tracing_begins_anew_and_may_then_go_another_way(compiling):
    state = {"tries": 0}

    @compat.constant_while_tracing
    def ready():
        state["tries"] += 1
        if state["tries"] == 1:
            compat.trace_again("a test")
        return state["tries"]

    assert compiling(lambda x: x * ready() if ready() > 0 else x)(torch.ones(1)).item() >= 2
    assert state["tries"] >= 2


def test_the_last_node_under_trace_tells_its_tensor_and_when_traced_gets_the_whole_graph(compiling):
    told, graphs = [], []

    @compat.constant_while_tracing
    def look():
        told.append(compat.last_node())
        compat.when_traced(graphs.append)

    def forward(x):
        y = x * 2
        y.add_(1)
        look()
        z = y.view_as(y)
        look()
        return z.sin()

    compiling(forward)(torch.ones(1))
    (graph,) = graphs
    values = [node.meta["example_value"] for node in told]
    assert [node.target for node in told] == ["add_", "view_as"] and set(told) < set(graph.graph.nodes)
    assert [compat.version(value) for value in values] == [1, 1] and compat.is_view(values[1])
    first = next(node for node in graph.graph.nodes if node.target is operator.mul)
    assert first.meta["example_value"] is values[0], "a tensor that is written to is the same tensor"
    assert compat.memory_of(values[0]) == compat.memory_of(values[1]) != compat.memory_of(torch.ones(1))


def test_what_is_unfollowed_runs_as_written_where_compiled_code_calls_it():
    told = []

    def look():
        told.append(torch.compiler.is_compiling())

    compat.unfollowed(look)
    torch.compile(lambda x: (look(), x * 2)[1], backend="eager")(torch.ones(1))
    torch._dynamo.utils.counters["graph_break"].clear()  # others count from here
    assert told == [False]


def test_compiled_autograd_is_told():
    from torch._dynamo import compiled_autograd

    assert not compat.compiled_autograd()
    with compiled_autograd._enable(torch.compile(backend="eager")):
        assert compat.compiled_autograd()
    assert not compat.compiled_autograd()


def test_a_checkpointed_part_is_known_while_tracing(compiling):
    told = []

    @compat.constant_while_tracing
    def look():
        told.append(compat.in_checkpoint())

    def part(x):
        look()
        return x.sin()

    def forward(x):
        look()
        return checkpoint(part, x, use_reentrant=False)

    compiling(forward)(torch.ones(1, requires_grad=True))
    assert told == [False, True]


@pytest.mark.usefixtures("hooks_in_graphs")
def test_what_is_never_compiled_runs_as_written_below_a_compiled_call():
    from torch import _dynamo

    def told():
        return torch.compiler.is_compiling()

    class Hook:
        def __call__(self, module, args, output):
            seen.append(told())

    class Root(nn.Module):
        def forward(self, x):
            return x * 2

    compat.never_compiled(Hook.__call__)
    seen, model = [], Root()
    model.register_forward_hook(Hook())
    _dynamo.reset()
    torch.compile(model, backend="eager", fullgraph=True)(torch.ones(1))
    assert seen == [False]


def test_an_effectful_operator_is_neither_dropped_nor_merged():
    from torch import _dynamo

    library = torch.library.Library("hookline_test", "DEF")
    seen = []
    library.define("look(Tensor x) -> ()")
    library.impl("look", lambda x: seen.append(1), "CompositeExplicitAutograd")
    torch.library.register_fake("hookline_test::look", lambda x: None, lib=library)
    compat.effectful(torch.ops.hookline_test.look.default)

    def forward(x):
        torch.ops.hookline_test.look(x)
        torch.ops.hookline_test.look(x)
        return x * 2

    _dynamo.reset()
    torch.compile(forward, backend="aot_eager", fullgraph=True)(torch.ones(1))
    assert seen == [1, 1]


def test_autograd_records_inside_an_operator_when_asked_to():
    library = torch.library.Library("hookline_test_autograd", "DEF")
    seen = []

    def run(x):
        with compat.autograd_as_outside(record=True):
            leaf = x.detach().requires_grad_()
            (leaf * 3).sum().backward()
            seen.append(leaf.grad.item())
        return x.clone()

    library.define("run(Tensor x) -> Tensor")
    library.impl("run", run, "CompositeExplicitAutograd")
    torch.library.register_autograd("hookline_test_autograd::run", lambda ctx, grad: grad, lib=library)
    torch.ops.hookline_test_autograd.run(torch.ones(1, requires_grad=True))
    with torch.no_grad():
        torch.ops.hookline_test_autograd.run(torch.ones(1))
    assert seen == [3, 3]


def test_a_version_can_be_set():
    weight, x = nn.Parameter(torch.ones(2)), torch.ones(2, requires_grad=True)
    before = weight._version
    product = (x * weight).sum()
    compat.set_version(weight, 2**32 - 1)
    assert weight._version == 2**32 - 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    compat.set_version(weight, before)
    product.backward()
    assert x.grad.tolist() == [1, 1]


def test_cached_parametrizations_can_be_forgotten():
    layer = parametrizations.weight_norm(nn.Linear(2, 2))
    with parametrize.cached():
        first = layer.weight
        assert layer.weight is first
        compat.forget_parametrized()
        assert layer.weight is not first


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # what inductor uses to fold constants
@pytest.mark.usefixtures("hooks_in_graphs")
def test_whether_inductor_freezes_weights_is_known():
    """What the flag is asked for: that code has the numbers of weights, and does not follow them."""
    from torch._inductor import config

    assert not compat.weights_are_frozen()
    layer = nn.Linear(2, 2).eval()
    compiled = torch.compile(layer)
    with config.patch(freezing=True), torch.no_grad():
        assert compat.weights_are_frozen()
        before = compiled(torch.ones(1, 2))
        layer.weight.data = torch.zeros(2, 2)
        assert torch.equal(compiled(torch.ones(1, 2)), before)


def test_whether_anything_was_compiled_is_known(monkeypatch):
    from torch._dynamo import eval_frame

    monkeypatch.setattr(compat, "_compiled_before", False)
    monkeypatch.setattr(eval_frame, "cached_backends", {1: None})
    assert not compat.was_compiled()
    monkeypatch.undo()
    torch.compile(nn.Identity(), backend="eager")
    assert compat.was_compiled()


@pytest.mark.usefixtures("hooks_in_graphs")
def test_a_tensor_keeps_its_attributes_from_a_graphs_forward_to_its_backward():
    """What tickets rely on (compiled/tickets.py): the very object comes back."""
    import hookline

    ran = torch.compile(nn.Linear(2, 2), backend="aot_eager", fullgraph=True)
    with hookline.record(ran, grads=True) as rec:
        first, second = ran(torch.ones(1, 2)), ran(torch.ones(1, 2))
        (first * 3).sum().backward()
    assert rec[""].calls[0].grad_output.unique().item() == 3
    assert rec[""].calls[1].grad_output is None
    del second


def test_what_is_always_called_is_what_register_forward_hook_notes():
    module, seen = nn.Linear(1, 1), []
    handle = module.register_forward_hook(lambda m, a, o: None, always_call=True)
    assert list(compat.always_called(module)) == [handle.id]
    number = compat.fresh_hook_id()
    compat.hook_dicts(module, after=True)[0][number] = lambda m, a, o: seen.append(o)
    compat.always_called(module)[number] = True
    with pytest.raises(RuntimeError):
        module(torch.ones(7))
    assert seen == [None]


def test_hooks_of_a_tensor_are_those_on_its_gradient_and_on_accumulation():
    x = torch.ones(1, requires_grad=True)
    assert compat.tensor_hooks(x) == []
    first, second = (lambda grad: None), (lambda tensor: None)
    x.register_hook(first)
    x.register_post_accumulate_grad_hook(second)
    assert compat.tensor_hooks(x) == [first, second]


def test_calls_under_way_are_frames_of_the_stack():
    class Nested(torch.nn.Module):
        def forward(self, depth):
            seen.append(compat.calls_under_way(self))
            return self(depth - 1) if depth else None

    seen = []
    module = Nested()
    module.register_forward_pre_hook(lambda m, args: seen.append(compat.calls_under_way(m)))
    module(1)
    assert seen == [1, 1, 2, 2] and compat.calls_under_way(module) == 0


def test_the_backward_of_a_function_is_known_from_a_hook_on_its_tensor():
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            seen.append((compat.in_recompute(True), compat.in_recompute(False)))
            return grad

    seen = []
    y = Own.apply(torch.ones(1, requires_grad=True))
    y.register_hook(lambda grad: seen.append(compat.in_recompute(True)))
    y.backward()
    assert seen == [False, (True, False)]


def test_a_mode_can_be_put_on_and_taken_out_from_below_others():
    seen = []

    class Mode(compat.QuickDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(self)
            return func(*args, **(kwargs or {}))

    below, above = Mode(), Mode()
    compat.push_mode(below)
    with above:
        _ = torch.ones(1) + 1
        assert seen[-2:] == [above, below]
        compat.take_mode_out(below)
        seen.clear()
        _ = torch.ones(1) + 1
        assert seen and below not in seen and compat.dispatch_modes() == [above]
    assert compat.dispatch_modes() == []


def test_norms_of_many_gradients_are_those_of_each_and_half_precision_does_not_overflow():
    grads = [torch.randn(3, 4), torch.randn(5)]
    assert all(map(torch.equal, compat.norms(grads), [torch.linalg.vector_norm(one) for one in grads]))
    (norm,) = compat.norms([torch.full((4,), 6e4, dtype=torch.float16)])
    assert norm.dtype is torch.float32 and norm.item() == pytest.approx(12e4, rel=1e-3)


def test_clipping_by_norm_calls_the_function_that_can_be_replaced(monkeypatch):
    told = []
    monkeypatch.setattr(nn.utils.clip_grad, compat.CLIPPING, lambda *args: told.append(args))
    layer = nn.Linear(1, 1)
    layer(torch.ones(1)).backward()
    nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    assert len(told) == 1 and told[0][0] == list(layer.parameters())


@pytest.mark.skipif(compat.VERSION < (2, 13), reason="earlier ones give away a reference that is not theirs")
def test_torch_tells_whether_it_compiles_and_gives_a_reference_of_its_own():
    """What `beware_of_compiling` relies on: it is asked on each call of a hook."""
    told = torch._C._dynamo.eval_frame.get_eval_frame_callback
    before = sys.getrefcount(None)
    assert [told() for _ in range(1000)] == [None] * 1000
    assert abs(sys.getrefcount(None) - before) < 500
