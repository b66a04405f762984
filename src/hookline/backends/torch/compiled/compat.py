"""Private names of torch's compiler that op hooks use, and what would replace them; see ../compat.py."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def module_under_compilation() -> torch.nn.Module | None:
    """The module whose forward torch.compile is compiling now; None where it is something else."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        frame = InstructionTranslator.current_tx()
    except AttributeError:  # a backward that is compiled later
        return None
    first = frame.f_code.co_varnames[0] if frame.f_code.co_argcount else ""
    found = frame.f_locals.get(first)
    return found if isinstance(found, torch.nn.Module) else None


def fakes_of(value: Any) -> AbstractContextManager[Any]:
    """The mode in which a graph's fake tensors are made, by one of them."""
    mode = getattr(value, "fake_mode", None)
    return nullcontext() if mode is None else mode


def inductor_pass(look: Callable[[torch.fx.Graph], None]) -> Callable[[], None]:
    """Has `look` called with each graph that inductor compiles, after its own passes; returns the undoing.

    Backward graphs are compiled together with their forward for that time, not when a backward first runs.
    Graphs that were looked at are not kept in inductor's cache on disk, nor taken from it.
    """
    import torch._functorch.config as functorch
    import torch._inductor.config as inductor
    from torch._inductor.custom_graph_pass import CustomGraphPass, get_custom_graph_passes

    class Pass(CustomGraphPass):
        def __call__(self, graph: torch.fx.Graph) -> None:
            look(graph)

        def uuid(self) -> None:
            """None: not to be cached."""

    mine = Pass()
    lazy = functorch.force_non_lazy_backward_lowering
    inductor.post_grad_custom_post_pass = [*get_custom_graph_passes(inductor.post_grad_custom_post_pass), mine]
    functorch.force_non_lazy_backward_lowering = True

    def undo() -> None:
        others = [one for one in get_custom_graph_passes(inductor.post_grad_custom_post_pass) if one is not mine]
        inductor.post_grad_custom_post_pass = others if len(others) > 1 else others[0] if others else None
        functorch.force_non_lazy_backward_lowering = lazy

    return undo


def compiler_of(module: torch.nn.Module) -> str:
    """The backend of torch.compile by which a module is compiled, by name; that of its class if it has none."""
    call: Any = getattr(module, "dynamo_ctx", None) or module._compiled_call_impl
    if not hasattr(call, "callback"):
        call = dict(zip(call.__code__.co_freevars, call.__closure__, strict=True))["self"].cell_contents
    backend = call.callback
    while (inner := getattr(backend, "_torchdynamo_orig_backend", None)) is not None:
        backend = inner
    return str(getattr(backend, "compiler_name", None) or getattr(backend, "__name__", type(backend).__name__))


def around_compiled(module: torch.nn.Module, context: Callable[[], Any]) -> Callable[[], None]:
    """Has calls of a compiled module run within `context()`; returns the undoing."""
    name = _compiled_call(module)
    before = getattr(module, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        with context():
            return before(*args, **kwargs)

    object.__setattr__(module, name, call)
    return lambda: object.__setattr__(module, name, before)


def run_as_written(module: torch.nn.Module) -> Callable[[], None]:
    """Has a compiled module run its own code; returns the undoing."""
    name = _compiled_call(module)
    before = getattr(module, name)
    wrapped: Any = module
    object.__setattr__(module, name, None if name == "_compiled_call_impl" else wrapped._orig_mod.__call__)
    return lambda: object.__setattr__(module, name, before)


def _compiled_call(module: torch.nn.Module) -> str:
    return "_compiled_call_impl" if module._compiled_call_impl is not None else "forward"
