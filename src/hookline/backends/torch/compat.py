"""Every private name of torch that hookline uses, and what would replace it.

Each entry has a test in tests/backends/torch/test_torch_private.py which fails with a clear message when a
release changes the name or what it does. `SEEN` tells in which versions of torch each name was found;
docs/versions.md tells which those are.
"""

from __future__ import annotations

import logging
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache, wraps
from operator import attrgetter
from types import FrameType
from typing import Any, NoReturn, TypeVar, cast

import torch
from torch._ops import _len_torch_dispatch_stack_pre_dispatch
from torch.autograd.function import BackwardCFunction
from torch.autograd.variable import Variable
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)
from torch.utils.hooks import RemovableHandle

from hookline.backends.quick import beware
from hookline.backends.undoing import Undoing, stacked, tidied
from hookline.errors import Unsupported

Fn = TypeVar("Fn", bound=Callable[..., Any])
Hooks = tuple["OrderedDict[int, Any]", "OrderedDict[int, bool]"]


SEEN = {
    "2.6": """
        torch.Tensor._backward_hooks torch.Tensor._base torch.Tensor._is_view
        torch.Tensor._post_accumulate_grad_hooks torch.Tensor._version
        torch.UntypedStorage._cdata
        torch.__future__.get_overwrite_module_params_on_conversion
        torch._C.DisableTorchFunction torch._C.DisableTorchFunctionSubclass
        torch._C.DispatchKey.CompositeImplicitAutograd
        torch._C.DispatchKey.FuncTorchDynamicLayerBackMode torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode
        torch._C.DispatchKeySet
        torch._C._DisableTorchDispatch torch._C._ExcludeDispatchKeyGuard torch._C._ForceDispatchKeyGuard
        torch._C._autograd torch._C._autograd._get_sequence_nr torch._C._autograd._unsafe_set_version_counter
        torch._C._current_autograd_node torch._C._current_graph_task_id
        torch._C._dispatch_get_all_op_names torch._C._dispatch_has_kernel_for_dispatch_key
        torch._C._dispatch_tls_local_exclude_set torch._C._dispatch_tls_local_include_set
        torch._C._dynamo.eval_frame
        torch._C._functorch torch._C._functorch.is_functorch_wrapped_tensor
        torch._C._functorch.is_legacy_batchedtensor torch._C._functorch.peek_interpreter_stack
        torch._C._get_tracing_state torch._C._set_tracing_state
        torch._C._len_torch_dispatch_stack torch._C._len_torch_function_stack
        torch._dynamo.compiled_autograd torch._dynamo.eval_frame
        torch._dynamo.eval_frame.OptimizedModule._orig_mod
        torch._dynamo.exc torch._dynamo.exc.UnspecializeRestartAnalysis
        torch._dynamo.symbolic_convert.InstructionTranslator torch._dynamo.utils.counters
        torch._foreach_norm
        torch._from_functional_tensor torch._functorch.config torch._guards.CompileContext
        torch._higher_order_ops.effects._EffectType torch._higher_order_ops.effects._register_effectful_op
        torch._inductor.config
        torch._inductor.custom_graph_pass torch._inductor.custom_graph_pass.CustomGraphPass
        torch._ops.OpOverload._op_dk torch._ops._len_torch_dispatch_stack_pre_dispatch
        torch._remove_batch_dim
        torch._subclasses.fake_tensor
        torch._subclasses.fake_tensor.FakeTensor torch._subclasses.fake_tensor.FakeTensorMode
        torch._sync
        torch.autograd.Variable._execution_engine
        torch.autograd.graph.Node._register_hook_dict torch.autograd.graph.Node._sequence_nr
        torch.nn.Module._call_impl torch.nn.Module._call_impl.__code__ torch.nn.Module._compiled_call_impl
        torch.nn.Module._forward_hooks torch.nn.Module._forward_hooks_always_called
        torch.nn.Module._forward_hooks_with_kwargs
        torch.nn.Module._forward_pre_hooks torch.nn.Module._forward_pre_hooks_with_kwargs
        torch.nn.Module._load_state_dict_post_hooks torch.nn.Module._load_state_dict_pre_hooks
        torch.nn.Module._state_dict_hooks torch.nn.Module._state_dict_pre_hooks
        torch.nn.utils.clip_grad._clip_grads_with_norm_
        torch.nn.utils.parametrize._cache
        torch.optim.optimizer._global_optimizer_post_hooks torch.optim.optimizer._global_optimizer_pre_hooks
        torch.utils._python_dispatch.TorchDispatchMode
        torch.utils._python_dispatch._disable_current_modes
        torch.utils._python_dispatch._get_current_dispatch_mode_stack
        torch.utils._python_dispatch._pop_mode torch.utils._python_dispatch._push_mode
        torch.utils.checkpoint._recomputation_hook
    """,
    "2.10": """
        torch._C._autograd._top_saved_tensors_default_hooks
        torch._C._dynamo.eval_frame._FrameAction torch._C._dynamo.eval_frame._FrameExecStrategy
    """,
    "2.13": "torch._C._dynamo.eval_frame.get_eval_frame_callback torch._dynamo.exc.PackageError",
}
"""Private names by the first version of torch in which they were seen, of those tried; all later have them."""

LOOKED_FOR = """
    _dynamo_marked_constant _is_param _torchdynamo_disable _torchdynamo_inline _torchdynamo_orig_backend
"""
"""Private names that torch looks for on objects of others, in all versions tried."""

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


def hook_dicts(module: torch.nn.Module, after: bool) -> Hooks:
    """The hooks of a module before or after its forward, and which of them take keyword arguments.

    `register_forward_hook` writes the same entries, and makes a handle with two weak references for
    each: 1.4 us more to attach and as much to remove, on every module. A public way to register one
    hook on many modules would replace this. Read as attributes, never by `vars(module)`: that makes
    Python 3.11 build a real __dict__, which slows every later call of the module.
    """
    if after:
        return module._forward_hooks, module._forward_hooks_with_kwargs  # type: ignore[return-value]
    return module._forward_pre_hooks, module._forward_pre_hooks_with_kwargs  # type: ignore[return-value]


HOOKS_BEFORE, HOOKS_AFTER = "_forward_pre_hooks", "_forward_hooks"
KWARGS_BEFORE, KWARGS_AFTER = "_forward_pre_hooks_with_kwargs", "_forward_hooks_with_kwargs"
"""The names of what `hook_dicts` gives, for C."""


def always_called(module: torch.nn.Module) -> OrderedDict[int, bool]:
    """Which of the hooks after a module's forward run even if it raises, as register_forward_hook notes it.

    `register_forward_hook(always_call=True)` writes the same entry; see `hook_dicts`.
    """
    return module._forward_hooks_always_called  # type: ignore[return-value]


model_callers: dict[int, Callable[..., Any]] = {}
"""Functions of hookline that call a model's own code, by the ids of their code."""


def calls_the_model(fn: Fn) -> Fn:
    """Marks a function of hookline: operators that it runs itself are a model's, and none of hookline's work.

    So it is where the model's code is in C: the kernels of a backward, a forward that is a function of torch.
    """
    model_callers[id(fn.__code__)] = fn
    return fn


# Sees every operation below autograd. Documented, in a private module.
DispatchMode: Any = TorchDispatchMode


class QuickDispatchMode(DispatchMode):  # type: ignore[misc]
    """A dispatch mode that is called without the wrapper that keeps dynamo out: 1.5 us less an operation.

    It is used on models that are not compiled. A public way to declare this would replace it.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


# The dispatch modes of this thread, the outermost first.
dispatch_modes: Callable[[], list[Any]] = _get_current_dispatch_mode_stack

# Puts a dispatch mode on top, without `with`: it stays when the caller's frame has ended.
push_mode: Callable[[Any], None] = _push_mode


def take_mode_out(mode: Any) -> None:
    """Takes a dispatch mode of this thread off, also from below others; these stay as they are.

    A public way to be told of operators for a time that is no block would replace it and `push_mode`.
    """
    above = []
    while (top := _pop_mode()) is not mode:
        above.append(top)
    for other in reversed(above):
        _push_mode(other)


# The full names of all operators there are, "aten::add.Tensor". torch.ops knows only those used so far.
all_operators: Callable[[], list[str]] = torch._C._dispatch_get_all_op_names

# Within it, operations reach no dispatch mode of this thread.
without_dispatch: Callable[[], Any] = torch._C._DisableTorchDispatch


# The engine that runs every backward, one for the process: whose it is and under which name (engine.py).
ENGINE = Variable, "_execution_engine"


def in_parts(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """What an operation gives that is made of others, with these seen by `mode`; NotImplemented if it is not.

    Such operations arrive whole under inference_mode, and in parts everywhere else. Not by `decompose`:
    that may prefer a formula in Python, which torch itself would not have run.
    """
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    if not hasattr(func, "_op_dk") or func.namespace == "prim":  # prim.device of a fake tensor, say
        return NotImplemented
    if not torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key):
        return NotImplemented
    return _run_in(mode, func._op_dk, key, *args, **kwargs)


@tidied
@calls_the_model
def _run_in(undoing: Undoing, mode: Any, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    undoing.enter_context(mode)
    return run(*args, **kwargs)


# Tell in which backward, and in which of its nodes, this code runs; -1 and None outside of one.
# A public form of `torch.autograd.graph` would replace them.
graph_task: Callable[[], int] = torch._C._current_graph_task_id
current_node: Callable[[], Any] = torch._C._current_autograd_node

# The number that the next autograd node will get; numbers grow with time. No public form exists.
sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr

# The innermost pair of `saved_tensors_hooks`: how a recompute of torch.utils.checkpoint is known. Not in 2.6.
_saved_hooks: Callable[[bool], Any] | None = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


def fresh_hook_id() -> int:
    """A number that no other hook has; one serves for all modules of one attachment."""
    return int(RemovableHandle(OrderedDict()).id)


_plain_registration = RemovableHandle.__init__
_told_first: list[Callable[[Any, int], None]] = []


def _registration(handle: Any, hooks_dict: Any, *, extra_dict: Any = None) -> None:
    _plain_registration(handle, hooks_dict, extra_dict=extra_dict)
    if not hooks_dict:
        return  # there is nothing that it could come before
    try:
        for tell in list(_told_first):
            tell(hooks_dict, handle.id)
    except BaseException:
        hooks_dict.pop(handle.id, None)  # nobody will put a hook there
        raise


def before_registering(tell: Callable[[Any, int], None] | None) -> None:
    """Has `tell(hooks, number)` called before anybody puts a hook into `hooks` under `number`; None ends that.

    torch makes a RemovableHandle first and then writes the entry: an entry that is there already is replaced, and
    keeps its place. A hook that runs after all others, whenever these were registered, would replace this.
    """
    _told_first[:] = [] if tell is None else [tell]
    if tell is not None and RemovableHandle.__init__ is _plain_registration:
        RemovableHandle.__init__ = _registration  # type: ignore[method-assign, assignment]
    elif tell is None and RemovableHandle.__init__ is _registration:
        RemovableHandle.__init__ = _plain_registration  # type: ignore[method-assign]


def listen(tensor: torch.Tensor, fn: Callable[[torch.Tensor], Any]) -> None:
    """Calls `fn(grad)` whenever the gradient of `tensor` is known; a result replaces it.

    As `tensor.register_hook(fn)`, without the handle that nobody here removes: 2.5 us instead of 7.
    """
    node = tensor.grad_fn
    if node is None or tensor._backward_hooks is not None or type(tensor) is not torch.Tensor:
        tensor.register_hook(fn)  # type: ignore[no-untyped-call]
        return
    tensor._backward_hooks = OrderedDict(((fresh_hook_id(), fn),))
    node._register_hook_dict(tensor)


def hooks_of_leaf(parameter: torch.nn.Parameter) -> dict[int, Any]:
    """The hooks on the gradient of a parameter: an entry is as `listen`, under a number from `fresh_hook_id`."""
    hooks = parameter._backward_hooks
    if hooks is None:
        hooks = parameter._backward_hooks = OrderedDict()  # torch looks into it in each backward from now on
    return hooks


def take_off_leaf(parameter: torch.Tensor, tap: Any, number: int) -> None:
    """Takes an entry of `hooks_of_leaf` off; a second time does nothing."""
    hooks = parameter._backward_hooks
    if hooks and hooks.get(number) is tap:
        hooks.pop(number, None)


def note_hook(undoing: Undoing, owner: Any, name: str, tap: Any) -> None:
    """Before torch registers `tap` among the hooks that `owner` has under that name: notes to take it off.

    The handle that torch returns does the same, but an interrupt may come before anybody has it.
    """
    note_hooks(undoing, name, [(owner, tap)])


def note_hooks(undoing: Undoing, name: str, taps: Iterable[tuple[Any, Any]]) -> None:
    """The same for several, each (owner, tap)."""
    undoing.noted(_take_off, [(weakref.ref(owner), tap) for owner, tap in taps], name)


def _take_off(held: list[tuple[Callable[[], Any], Any]], name: str) -> None:
    for owner, tap in held:
        hooks = getattr(owner(), name, None) or {}
        for key, hook in list(hooks.items()):
            if hook is tap or getattr(hook, "hook", None) is tap:  # torch wraps some
                hooks.pop(key, None)


ON_GRADIENT, ON_ACCUMULATION = "_backward_hooks", "_post_accumulate_grad_hooks"
# What torch.nn.utils.clip_grad_norm_ calls to scale gradients, by its name in torch.nn.utils.clip_grad. Whoever
# has imported that function before calls it past any replacement of it.
CLIPPING = "_clip_grads_with_norm_"


def norms(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The 2-norm of each tensor, of one device and dtype, in float32 at least; one kernel for all on a GPU.

    `torch.nn.utils.get_total_norm` is public, and tells the norm of all of them only.
    """
    wide = torch.float32 if tensors[0].dtype in (torch.float16, torch.bfloat16) else None
    return list(torch._foreach_norm(tensors, 2.0, dtype=wide))


ON_STATE = {
    ("save", "pre"): "_state_dict_pre_hooks",
    ("save", "post"): "_state_dict_hooks",
    ("load", "pre"): "_load_state_dict_pre_hooks",
    ("load", "post"): "_load_state_dict_post_hooks",
}
BEFORE_STEP, AFTER_STEP = "_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"
"""Of parameters, modules, and of the module `torch.optim.optimizer`: where torch keeps hooks."""


def tensor_hooks(tensor: torch.Tensor) -> list[Any]:
    """The hooks that were registered on `tensor`: on its gradient, and on the end of its accumulation.

    torch does not tell of them publicly.
    """
    return [*(tensor._backward_hooks or {}).values(), *(tensor._post_accumulate_grad_hooks or {}).values()]


# These run several times on every call of a module: made in C, they cost no Python frame.
version: Callable[[torch.Tensor], int] = attrgetter("_version")
"""How often the memory of a tensor was written to by in-place operations."""


def set_version(tensor: torch.Tensor, number: int) -> None:
    """Has `tensor` be of this version. `torch.autograd.graph.increment_version` is public, and has no way back."""
    if VERSION < (2, 7):
        torch._C._autograd._unsafe_set_version_counter(tensor, number)  # type: ignore[arg-type]
    else:
        torch._C._autograd._unsafe_set_version_counter((tensor,), (number,))


# Whether model.to(...) makes new parameters of all. Public, under a name that looks private.
conversion_makes_new_parameters: Callable[[], bool] = torch.__future__.get_overwrite_module_params_on_conversion


def forget_parametrized() -> None:
    """Has parametrized weights computed anew inside of `parametrize.cached()`. A public way would replace it."""
    parametrize = sys.modules.get("torch.nn.utils.parametrize")
    if parametrize is not None:
        parametrize._cache.clear()


is_view: Callable[[torch.Tensor], bool] = torch.Tensor._is_view
"""Whether autograd tracks a tensor as a view of another one."""


NUMBER = "_sequence_nr"
"""The method of an autograd node that tells its number; see `sequence_number`."""


def node_number(node: Any) -> int:
    """The sequence number that an autograd node got; see `sequence_number`."""
    return node._sequence_nr()  # type: ignore[no-any-return]  # 50 ns, by a methodcaller 110


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor of which autograd tracks `tensor` as a view; None where it is no view."""
    return tensor._base if is_view(tensor) else None


def in_recompute(called: bool = False) -> bool:
    """Whether this forward is a recomputation: by torch.utils.checkpoint, in either mode.

    Where the module was `called` before, also by the backward of somebody's own autograd.Function: reversible
    layers and the like run again there what their forward ran. What runs there for the first time is new.
    """
    if graph_task() == -1:
        return False
    node = current_node()
    return is_repeating(node) or (
        called and isinstance(node, BackwardCFunction) and _is_running(_FUNCTIONS_BACKWARD)
    )


def is_repeating(node: Any) -> bool:
    """Whether torch.utils.checkpoint repeats a forward in the backward of this node, in either mode."""
    function: Any = node if isinstance(node, BackwardCFunction) else None
    if function is not None and function.name().startswith("CheckpointFunction"):
        return True
    return (_saved_hooks is None or bool(_saved_hooks(True))) and in_unpacking()


_FUNCTIONS_BACKWARD = BackwardCFunction.apply.__code__


def _is_running(code: Any) -> bool:
    """Whether this thread is within a call of a function, told by its code. The node alone does not tell: hooks
    on a tensor run for it, too."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def calls_under_way(module: torch.nn.Module) -> int:
    """How many calls of `module` this thread is in, one within the other; 0 in compiled code, which can't tell.

    Hooks don't run when an exception passes; frames of the stack are gone with their call.
    """
    found = 0
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is MODULE_CALL and frame.f_locals["self"] is module:
            found += 1
        frame = frame.f_back
    return found


MODULE_CALL = torch.nn.Module._call_impl.__code__
"""The code of a frame that is a call of a module, its `self`."""


def in_unpacking() -> bool:
    """Whether this forward is one that torch.utils.checkpoint repeats because a backward wants what it kept."""
    if _saved_hooks is None:
        return _is_called_by("unpack_hook", of="torch.utils.checkpoint")
    hooks = _saved_hooks(True)
    if not hooks or graph_task() == -1:
        return False
    # Somebody's own hooks, or those of a checkpoint inside of the one that is repeated, hide the ones that tell.
    told = "_recomputation_hook" in getattr(hooks[0], "__qualname__", "")
    return told or _is_called_by("unpack_hook", of="torch.utils.checkpoint")


def _is_called_by(name: str, of: str) -> bool:
    """Whether this runs within a function of that name, of that module."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == name and frame.f_globals.get("__name__") == of:
            return True
    return False


def compiled(module: torch.nn.Module) -> bool:
    """Whether `module` runs compiled: wrapped by torch.compile, or after module.compile()."""
    return module._compiled_call_impl is not None or type(module).__name__ == "OptimizedModule"


# Who sees each operation of this thread, apart from torch itself: transforms of torch.func, the tracer of
# torch.jit (to which even asking for a size is an operation), dispatch modes (make_fx, selective checkpointing,
# op hooks), function modes (`with torch.device(...)`), and modes above autograd, beside which is a function mode.
_transforms: Callable[[], Any] = torch._C._functorch.peek_interpreter_stack
tracer: Callable[[], Any] = torch._C._get_tracing_state
dispatch_depth: Callable[[], int] = torch._C._len_torch_dispatch_stack
function_depth: Callable[[], int] = torch._C._len_torch_function_stack
_early_depth: Callable[[], int] = _len_torch_dispatch_stack_pre_dispatch
_set_tracer: Callable[[Any], None] = torch._C._set_tracing_state  # type: ignore[attr-defined]
_TRANSFORMS = torch._C.DispatchKeySet(torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode)
_TRANSFORMS = _TRANSFORMS.add(torch._C.DispatchKey.FuncTorchDynamicLayerBackMode)


def is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether a transform of torch.func wrapped `tensor`."""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def is_traced() -> bool:
    """Whether torch.jit or a tracer of make_fx's kind is making a program of what runs now."""
    if tracer() is not None or (function_depth() > 0 and _early_depth() > 0):
        return True
    tracers = ("ProxyTorchDispatchMode", "FunctionalTensorMode")
    return dispatch_depth() > 0 and any(type(mode).__name__ in tracers for mode in dispatch_modes())


def are_followed(_grad_enabled: Callable[[], bool] = torch.is_grad_enabled) -> bool:
    """Whether autograd follows what runs now, and no tracer makes a program of it."""
    if not _grad_enabled():
        return False
    return not (tracer() is not None or function_depth() or dispatch_depth()) or not is_traced()


def is_transforming() -> bool:
    """Whether code runs inside of a transform of torch.func."""
    return _transforms() is not None


def is_seen(tensor: torch.Tensor) -> bool:
    """Whether an operation on `tensor` would be seen by more than torch itself; see `aside`."""
    return (
        _transforms() is not None
        or dispatch_depth() > 0
        or function_depth() > 0
        or tracer() is not None
        # The batches of `is_grads_batched` and `vectorize=True` are of an older make, which leaves no other trace.
        or (graph_task() != -1 and torch._C._functorch.is_legacy_batchedtensor(tensor))
    )


@stacked
def aside(stack: ExitStack, kind: type = torch.Tensor, *, transforms: bool = True) -> None:
    """Within it, operations on tensors of type `kind` are seen by no transform, tracer or mode of this thread.

    Where `transforms` stay, values are still those that the code inside of them sees: one sample under vmap.
    A public way to run code of one's own beside what is traced would replace this.
    """
    if (state := tracer()) is not None:
        stack.callback(_set_tracer, state)
        _set_tracer(None)
    if transforms and _transforms() is not None:
        stack.enter_context(torch._C._ExcludeDispatchKeyGuard(_TRANSFORMS))
    plain = kind is torch.Tensor or kind is torch.nn.Parameter
    if function_depth() and plain:
        stack.enter_context(torch._C.DisableTorchFunction())
    if _early_depth() or (dispatch_depth() and not plain):
        # A subclass needs its own dispatch, so that only modes may go; that takes longer.
        stack.enter_context(_disable_current_modes())
    elif dispatch_depth():
        stack.enter_context(without_dispatch())


def without_functional(tensor: torch.Tensor) -> torch.Tensor:
    """What a FunctionalTensor holds, which stands for a value while a graph is made; others as they are."""
    if type(tensor).__name__ != "FunctionalTensor":
        return tensor
    return torch._from_functional_tensor(tensor.elem)  # type: ignore[attr-defined]


def unwrapped(tensor: torch.Tensor) -> tuple[torch.Tensor, list[int]]:
    """The tensor with memory that the transforms of torch.func wrapped, and which of its dims are batches.

    Those of outer vmaps come first. Outside of transforms it is `tensor` itself, without such dims.
    """
    functorch = torch._C._functorch
    tensor = without_functional(tensor)
    if functorch.is_legacy_batchedtensor(tensor):
        # One level is all that torch itself makes of these.
        return torch._remove_batch_dim(tensor, 1, 1, 0), [0]
    order: list[int] = []  # of each dim, the level of the vmap that has it; 0 for the value's own
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            order = order or [0] * tensor.dim()
            order.insert(functorch.maybe_get_bdim(tensor), functorch.maybe_get_level(tensor))
        elif functorch.is_functionaltensor(tensor):
            torch._sync(tensor)  # type: ignore[attr-defined, no-untyped-call]  # writes to its views are still to come
        tensor = functorch.get_unwrapped(tensor)
    batches = sorted((level, dim) for dim, level in enumerate(order) if level)
    return tensor, [dim for _, dim in batches]


# Within it, tensors of a subclass are treated as torch treats its own: what the subclass forbids is allowed.
# Used for hooks on parameters of lazy modules, before their first call.
as_plain_tensors: Callable[[], Any] = torch._C.DisableTorchFunctionSubclass


def fake_mode() -> Any:
    """A mode in which tensors have shapes and no numbers. torch documents it, under a private name."""
    from torch._subclasses.fake_tensor import FakeTensorMode  # its first use loads torch._dynamo: 1.4 s

    return FakeTensorMode(allow_non_fake_inputs=True)


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor is of such a mode. By its name: to import the class loads torch._dynamo."""
    return any(kind.__name__ == "FakeTensor" for kind in type(tensor).__mro__)


def fake_like(mode: Any, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A fake of `mode` with the size, strides and dtype of `tensor`, a parameter if it is one.

    As `torch.empty_strided` in the mode and `nn.Parameter` around it: 20 us instead of 400, and a model
    has hundreds.
    """
    from torch._subclasses.fake_tensor import FakeTensor

    meta = torch.empty_strided(
        tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta", requires_grad=tensor.requires_grad
    )
    if not isinstance(tensor, torch.nn.Parameter):
        return FakeTensor(mode, meta, device)
    fake: torch.Tensor = _fake_parameter()(mode, meta, device)
    return fake


@cache
def _fake_parameter() -> type:
    """A kind of fake that, called with a tensor, is a new fake parameter, as nn.Parameter itself is a real one.

    Code that brings weights in for a call, as accelerate's offloading does, asks a parameter's type for a new one.
    """
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    class FakeParameter(FakeTensor):
        @staticmethod
        def __new__(cls: Any, first: Any, *rest: Any, requires_grad: bool = True, **kwargs: Any) -> Any:
            if not isinstance(first, FakeTensorMode):
                with without_dispatch():
                    meta = torch.empty_strided(first.size(), first.stride(), dtype=first.dtype, device="meta")
                rest = meta.requires_grad_(requires_grad), first.device
                first = next(mode for mode in dispatch_modes() if isinstance(mode, FakeTensorMode))
            fake: Any = FakeTensor.__new__(cls, first, *rest, **kwargs)
            fake._is_param = True  # some modules ask whether what they hold is one
            return fake

    return FakeParameter


@stacked
def quiet_fakes(stack: ExitStack) -> None:
    """Keeps torch from logging errors of fake tensors: they are raised as well, and told in our words."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    stack.callback(setattr, log, "disabled", log.disabled)
    log.disabled = True


def forget_compiled(module: torch.nn.Module) -> None:
    """Has a call of `module` run its forward, also after module.compile()."""
    if module._compiled_call_impl is not None:
        vars(module)["_compiled_call_impl"] = None


def uncompiled(module: torch.nn.Module) -> torch.nn.Module:
    """What torch.compile wrapped; any other module itself."""
    # As `compiled`, written out: every module of a model is asked whenever something is attached.
    if module._compiled_call_impl is None and type(module).__name__ != "OptimizedModule":
        return module
    return getattr(module, "_orig_mod", module)


def is_fakes_fault(error: BaseException) -> bool:
    """Whether `error` comes of tensors having no numbers, so that real ones may do."""
    kinds = {base.__name__ for base in type(error).__mro__}
    if kinds & {"FakeTensorError", "GuardOnDataDependentSymNode", "NotImplementedError"}:
        return True
    words = ("faketensor", "fake tensor", "meta tensor", "tensor subclasses", "data_ptr", "data-dependent")
    return any(word in str(error).lower() for word in words) or any(
        kind.startswith(("UnsupportedFake", "DataDependentOutput", "DynamicOutputShape", "UnsupportedOperator"))
        for kind in kinds
    )


# Compiled code. torch.compiler has public forms of a few of these, which import torch._dynamo: 1.4 s that somebody
# who never compiles should not wait for.


def constant_while_tracing(fn: Fn) -> Fn:
    """Has torch.compile call `fn` while it traces, and take the result for a constant.

    `torch.compiler.assume_constant_result` does the same.
    """
    told = told_as_it_is(fn)
    told._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return told


def told_as_it_is(fn: Fn) -> Fn:
    """Has torch.compile hand on what `fn` raises while it traces, which else it takes for an error of its own."""

    @wraps(fn)
    def told(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except Unsupported as error:
            from torch._dynamo import exc

            if (handed_on := getattr(exc, "PackageError", None)) is None:  # the plainest of those that are
                raise
            kind = type("Unsupported", (Unsupported, handed_on), {"__module__": Unsupported.__module__})
            raise kind(
                backend=error.backend, feature=error.feature, why=error.why, instead=error.instead
            ) from None

    return cast(Fn, told)


def traced_instead(fn: Callable[..., Any], traced: Callable[..., Any]) -> None:
    """Has torch.compile follow `traced` where `fn` is called. `substitute_in_graph` is for functions of C."""
    fn._torchdynamo_inline = traced  # type: ignore[attr-defined]


def trace_again(why: str) -> NoReturn:
    """From a function that is constant while tracing: what was traced is thrown away, and tracing begins anew."""
    from torch._dynamo.exc import UnspecializeRestartAnalysis  # of its kind, the one that may take another path

    raise UnspecializeRestartAnalysis(restart_reason=f"hookline: {why}")


def last_node() -> torch.fx.Node:
    """The operator that torch.compile has traced last."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    node: torch.fx.Node = next(iter(reversed(InstructionTranslator.current_tx().output.graph.nodes)))
    return node


def when_traced(look: Callable[[torch.fx.GraphModule], None]) -> None:
    """While tracing: has `look` called, once, with the graph as it is handed to the backend of torch.compile.

    A backend of one's own around the user's would do the same, if hookline were the one to call torch.compile.
    """
    from torch._dynamo.symbolic_convert import InstructionTranslator

    output = InstructionTranslator.current_tx().output
    if look not in output.register_finalizer_fns:
        output.add_graph_finalizer(look)


# Whether torch.export is making a program of what runs now. Public; torch 2.6 has it under another name.
is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)


def memory_of(tensor: torch.Tensor) -> int:
    """A number for the memory that a tensor shows: the same for all of its views, also for fake tensors."""
    return int(unwrapped(tensor)[0].untyped_storage()._cdata)


def in_checkpoint() -> bool:
    """While tracing: whether this is part of a graph within the graph, as torch.utils.checkpoint makes one."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    return InstructionTranslator.current_tx().output.current_tracer.parent is not None


def never_compiled(fn: Any) -> None:
    """Has `fn` and all that it calls run as written, also where torch.compile follows the caller's calls.

    The hooks of a compiled root module run like that. `torch.compiler.disable` does the same by a wrapper
    around each call.
    """
    from torch._C._dynamo import eval_frame

    if hasattr(eval_frame, "set_code_exec_strategy"):
        skip = eval_frame._FrameAction.SKIP
        eval_frame.set_code_exec_strategy(fn.__code__, eval_frame._FrameExecStrategy(skip, skip))
    else:  # torch 2.6, where hooks are not in compiled code
        eval_frame.skip_code(fn.__code__)  # type: ignore[attr-defined]


def beware_of_compiling() -> None:
    """Has plain calls of taps be done in Python, as all others are, where torch.compile is at work.

    Functions of Python are marked by `never_compiled`; what C calls would be taken for code to be compiled. In
    some versions before 2.13 the function that tells whether it is at work gives away a reference that is not its
    own. `torch.compiler.is_compiling` is true only while tracing.
    """
    from torch._C._dynamo import eval_frame

    beware("torch._dynamo.eval_frame", eval_frame.get_eval_frame_callback if VERSION >= (2, 13) else None)


def unfollowed(fn: Any) -> None:
    """As `never_compiled`, also where code that is compiled calls `fn`: the graph ends there and goes on behind.

    Compiled autograd follows the hooks of tensors like that. `torch.compiler.disable` does the same, and imports
    torch._dynamo.
    """
    never_compiled(fn)
    fn._torchdynamo_disable = True


def compiled_autograd() -> bool:
    """Whether a backward that starts now is compiled as a whole, the backwards of compiled graphs in it too."""
    module = sys.modules.get("torch._dynamo.compiled_autograd")
    return module is not None and bool(module.compiled_autograd_enabled)


def effectful(operator: Any) -> None:
    """Keeps calls of `operator` in compiled code, each of them, in their order."""
    from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

    _register_effectful_op(operator, _EffectType.ORDERED)


_OUTSIDE = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()


@stacked
def autograd_as_outside(stack: ExitStack, *, record: bool) -> None:
    """Inside an operator: autograd works as it does outside of one, and records if asked to."""
    if not torch.is_inference_mode_enabled():
        guard: AbstractContextManager[None] = torch._C._ForceDispatchKeyGuard(*_OUTSIDE)
        stack.enter_context(guard)
        stack.enter_context(torch.set_grad_enabled(record))


def was_compiled() -> bool:
    """Whether torch.compile was called in this process, so that there may be code which does not look at hooks."""
    global _compiled_before
    frames = sys.modules.get("torch._dynamo.eval_frame")
    if not _compiled_before and frames is not None:
        _compiled_before = any(backend is not None for backend in frames.cached_backends.values())
    return _compiled_before


_compiled_before = False


# Compiled code, as op hooks enter it: the compiler's passes, and the calls that it put into modules.


def module_under_compilation() -> torch.nn.Module | None:
    """The module whose forward torch.compile is compiling now; None where it is something else."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        frame: Any = InstructionTranslator.current_tx()
    except AttributeError:  # a backward that is compiled later
        return None
    if frame is None:  # the same, as torch 2.12 tells it
        return None
    first = frame.f_code.co_varnames[0] if frame.f_code.co_argcount else ""
    found = frame.f_locals.get(first)
    return found if isinstance(found, torch.nn.Module) else None


def graphs_so_far() -> int:
    """How many graphs torch.compile has made."""
    from torch._dynamo.utils import counters

    return counters["stats"]["unique_graphs"]


def compilation() -> str:
    """Which compilation is under way: the same for the graphs of a forward and of its backward."""
    from torch._guards import CompileContext

    return str(CompileContext.current_compile_id())


def fakes_of(value: Any) -> AbstractContextManager[Any]:
    """The mode in which a graph's fake tensors are made, by one of them."""
    mode = getattr(value, "fake_mode", None)
    return nullcontext() if mode is None else mode


def inductor_pass(undoing: Undoing, look: Callable[[torch.fx.Graph], None]) -> None:
    """Has `look` called with each graph that inductor compiles, after its own passes.

    Backward graphs are compiled together with their forward for that time, not when a backward first runs.
    Graphs that were looked at are not kept in inductor's cache on disk, nor taken from it.
    """
    import torch._functorch.config as functorch
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class Pass(CustomGraphPass):
        def __call__(self, graph: torch.fx.Graph) -> None:
            look(graph)

        def uuid(self) -> None:
            """None: not to be cached."""

    mine = Pass()

    lazy = functorch.force_non_lazy_backward_lowering
    undoing.noted(setattr, functorch, "force_non_lazy_backward_lowering", lazy)
    undoing.noted(lambda: _set_passes([one for one in _passes() if one is not mine]))
    _set_passes([*_passes(), mine])
    functorch.force_non_lazy_backward_lowering = True


def _passes() -> list[Any]:
    """What inductor calls with each graph, after its own passes."""
    from torch._inductor import config

    found = config.post_grad_custom_post_pass
    found = getattr(found, "hookline_passes", found)
    return [] if found is None else list(found) if isinstance(found, (list, tuple)) else [found]


def _set_passes(passes: list[Any]) -> None:
    from torch._inductor import config, custom_graph_pass

    class All(custom_graph_pass.CustomGraphPass):
        """Several in one: before torch 2.13 there is place for no more."""

        hookline_passes = passes

        def __call__(self, graph: torch.fx.Graph) -> None:
            for one in passes:
                one(graph)

        def uuid(self) -> None:
            """None: not to be cached."""

    takes_several = hasattr(custom_graph_pass, "get_custom_graph_passes")
    several: Any = passes if takes_several else All()
    config.post_grad_custom_post_pass = several if len(passes) > 1 else passes[0] if passes else None


def weights_are_frozen() -> bool:
    """Whether inductor takes the numbers of weights for constants of what it compiles without gradients."""
    config = sys.modules.get("torch._inductor.config")
    return config is not None and bool(config.freezing)


IN_PLACE = "_compiled_call_impl"
"""The attribute in which `module.compile()` puts a compiled call. torch.compile(module) has it as its forward."""


def call_as_written(module: torch.nn.Module, attribute: str) -> Callable[..., Any]:
    """What runs a compiled module's own code; `attribute` is where its compiled call is."""
    run: Callable[..., Any] = module._call_impl if attribute == IN_PLACE else uncompiled(module).__call__
    return run


def compiler_behind(module: torch.nn.Module, call: Any) -> Any:
    """The backend of torch.compile that made the compiled call of a module."""
    call = getattr(module, "dynamo_ctx", None) or call
    if not hasattr(call, "callback"):
        call = dict(zip(call.__code__.co_freevars, call.__closure__, strict=True))["self"].cell_contents
    backend = call.callback
    while (inner := getattr(backend, "_torchdynamo_orig_backend", None)) is not None:
        backend = inner
    return backend
