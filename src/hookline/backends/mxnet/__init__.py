"""The MXNet backend: Gluon blocks, their calls and gradients, and the operators of hybridized ones.

| what | how | why |
|---|---|---|
| a call | a class of its own for the block while it has taps (`taps.py`) | Gluon's hooks only look |
| a gradient | an identity with a backward of ours (`gradients.py`) | MXNet has no hook on gradients |
| a backward | MXNet's functions wait for its end while there are taps (`backward.py`) | it runs in other threads |
| a hybridized block | runs as written while a tap is inside (`dehybridize.py`) | a compiled graph calls no block |
| a parameter's gradient | read when the backward has run (`parameters.py`) | there is no hook on it |
| a step | `gluon.Trainer.step` and `update` are wrapped (`optimizers.py`) | a Trainer has no hooks |
| an operator | MXNet's op hook (`ops.py`), and what runs each (`eager_ops.py`) | the hook is for graphs alone |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import mxnet
from mxnet import autograd, gluon

from hookline.backends.capabilities import capabilities
from hookline.backends.defaults import Defaults
from hookline.backends.describe_by_running import DescribeByRunning
from hookline.backends.facts import ParameterFact, RunFacts
from hookline.backends.identity_gradients import IdentityGradients, Passage
from hookline.backends.mxnet import (
    backward,
    compat,
    dehybridize,
    describe,
    gradients,
    modules,
    neutral,
    ops,
    optimizers,
    parameters,
    statistics,
    taps,
    values,
)
from hookline.backends.mxnet.unseen import unseen
from hookline.backends.nouns import Model, Module, Tensor, Tree
from hookline.backends.operators import Operator
from hookline.backends.protocol import Backend, Label, Told


class MxnetBackend(IdentityGradients, DescribeByRunning, Defaults):
    """Enters gluon.Block and HybridBlock; see `hookline.backends.protocol.Backend`."""

    name = "mxnet"
    tensor: type = mxnet.nd.NDArray
    framework = capabilities()["mxnet"]

    attach = staticmethod(taps.attach)
    settled = staticmethod(backward.settle)
    replace_forward = staticmethod(taps.replace_forward)
    is_live = staticmethod(gradients.is_live)
    site_memory = staticmethod(parameters.heard_at)
    own_parameters = staticmethod(parameters.own_parameters)
    tensors_of = staticmethod(parameters.tensors_of)
    read_weight = staticmethod(values.snapshot)
    write_weight = staticmethod(values.write_weight)
    forms_of = staticmethod(neutral.forms_of)
    gradient = staticmethod(parameters.gradient)
    hear_parameters_of = staticmethod(parameters.hear_parameters)
    hear_steps = staticmethod(optimizers.hear_steps)
    hook_operators = staticmethod(ops.hook_operators)
    snapshot = staticmethod(values.snapshot)
    host = staticmethod(values.host)
    from_host = staticmethod(values.from_host)
    fitted = staticmethod(values.fitted)
    unlike = staticmethod(values.unlike)
    nbytes = staticmethod(values.nbytes)
    device = staticmethod(values.context)
    dtype = staticmethod(values.dtype)
    address = staticmethod(statistics.address)
    why_silent = staticmethod(modules.why_silent)
    has_forward = staticmethod(modules.has_forward)
    tensor_fact = staticmethod(describe.tensor_fact)
    zeros = staticmethod(describe.zeros)
    random_input = staticmethod(describe.random_input)
    forward_of = staticmethod(describe.forward_of)

    # The tree of a model

    def callee(self, module: Module) -> Callable[..., Any]:
        """The call itself: its arguments may be others than those of a forward, as keyword arguments are."""
        call: Callable[..., Any] = module.__call__
        return call

    def is_model(self, thing: Any) -> bool:
        return isinstance(thing, gluon.Block)

    def named_modules(self, model: Model) -> Iterable[tuple[str, Any]]:
        return modules.walk(model)

    def children(self, model: Model) -> list[Any]:
        return [block for name, block in modules.walk(model) if name and "." not in name]

    def placed(self, model: Model) -> list[Label]:
        found = {id(block): block for _, block in modules.walk(model)}
        return [tap.label for block in found.values() for tap in taps.taps_on(block)]

    # Values and gradients

    def detached(self, tensor: Tensor) -> Any:
        return tensor.detach()

    def tap(self, tensor: Tensor, fn: Callable[[Any], Any]) -> Any:
        def backward(grads: list[Any]) -> list[Any] | None:
            new = fn(values.snapshot(grads[0]))
            return None if new is None else [new]

        return gradients.identities([tensor], backward)[0]

    def joint_tap(self, tensors: list[Any], fn: Callable[[list[Any]], list[Any] | None]) -> list[Any]:
        return gradients.joined(tensors, fn)

    def listener(self, sink: Told, memory: Any) -> Passage:
        def counted(numbers: Sequence[int], grad: Tensor) -> Any:
            memory.count += 1
            sink._hear_output(numbers, grad)

        on_output = sink._hear_output if memory is None else counted
        return Passage(self, partial(self.heard_at, sink=sink._hear_input), on_output)

    def operator_names(self) -> tuple[Operator, ...]:
        return tuple(Operator(name) for name in compat.operator_names())

    def unseen(self) -> AbstractContextManager[Any]:
        return unseen()

    def has_fractions(self, tensor: Tensor) -> bool:
        return values.is_float(tensor)

    def remarks(self, modules: dict[str, Any], sites: Collection[str] | None = None) -> dict[str, str]:
        found = dehybridize.remarks(modules)
        for name, remark in parameters.remarks(modules).items():
            found[name] = f"{found[name]}; {remark}" if name in found else remark
        return found

    # Training

    def needs_gradient(self, tree: Tree) -> bool:
        return bool(autograd.is_recording()) and super().needs_gradient(tree)

    def is_training(self, model: Model) -> bool:
        """Blocks have no mode of their own: MXNet has one for all, that `autograd.record` switches."""
        return bool(autograd.is_training())

    # What a model is

    def evaluating(self, model: Model) -> AbstractContextManager[None]:
        paused: AbstractContextManager[None] = autograd.pause(train_mode=False)
        return paused

    def _held(self, module: Module) -> tuple[ParameterFact, ...]:
        return describe.held_by(module)

    def traced_run(
        self, model: Model, args: Tree, kwargs: Any, *, real: bool = False, flow: bool = False
    ) -> RunFacts:
        model, notes = describe.ready_to_run(model)
        facts = super().traced_run(model, args, kwargs, real=real, flow=flow)
        facts.notes += notes
        return facts


BACKEND: Backend = MxnetBackend()
