"""The MindSpore backend, for its dynamic (pynative) mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
from mindspore import nn

from hookline.backends.capabilities import capabilities
from hookline.backends.defaults import Defaults
from hookline.backends.describe_by_running import DescribeByRunning
from hookline.backends.identity_gradients import IdentityGradients, Passage
from hookline.backends.mindspore import (
    compat,
    describe,
    gradients,
    modules,
    neutral,
    ops,
    optimizers,
    parameters,
    recomputing,
    taps,
    values,
)
from hookline.backends.mindspore.constructs import replace_construct
from hookline.backends.nouns import Tensor
from hookline.backends.protocol import Asked, Backend
from hookline.backends.tap import FunctionTap, Label
from hookline.backends.undoing import Undoing

STATE_HOOKS = {
    ("save", "pre"): nn.Cell.register_state_dict_pre_hook,
    ("save", "post"): nn.Cell.register_state_dict_post_hook,
    ("load", "pre"): nn.Cell.register_load_state_dict_pre_hook,
    ("load", "post"): nn.Cell.register_load_state_dict_post_hook,
}


class MindSporeBackend(IdentityGradients, DescribeByRunning, Defaults):
    """Enters mindspore.nn.Cell models; see `hookline.backends.protocol.Backend`."""

    name = "mindspore"
    tensor: type = ms.Tensor
    framework = capabilities()["mindspore"]
    forward_name = "construct"

    named_modules = staticmethod(modules.walk)
    tensors_of = staticmethod(parameters.tensors_of)
    evaluating = staticmethod(describe.evaluating)
    forward_of = staticmethod(describe.forward_of)
    has_forward = staticmethod(modules.has_construct)
    why_silent = staticmethod(modules.why_silent)
    own_parameters = staticmethod(parameters.own_parameters)
    attach = staticmethod(taps.attach)
    replace_forward = staticmethod(replace_construct)
    tap = staticmethod(gradients.tap)
    joint_tap = staticmethod(gradients.joint_tap)
    is_live = staticmethod(gradients.is_live)
    hear_parameters_of = staticmethod(parameters.hear_parameters)
    hear_steps = staticmethod(optimizers.hear_steps)
    hook_operators = staticmethod(ops.hook_operators)
    in_recompute = staticmethod(recomputing.in_recompute)
    recomputed = staticmethod(recomputing.recomputed)
    sequence_number = staticmethod(recomputing.sequence_number)
    host = staticmethod(values.host)
    from_host = staticmethod(values.from_host)
    snapshot = staticmethod(values.snapshot)
    detached = staticmethod(values.detached)
    fitted = staticmethod(values.fitted)
    read_weight = staticmethod(values.snapshot)
    write_weight = staticmethod(values.write_weight)
    forms_of = staticmethod(neutral.forms_of)
    dtype = staticmethod(values.dtype_of)
    zeros = staticmethod(describe.zeros)
    random_input = staticmethod(describe.random_input)
    tensor_fact = staticmethod(describe.tensor_fact)

    def joined_inputs(self, sink: Asked, memory: Any) -> Passage:
        return gradients.JoinedInputs(self, sink._ask, sink._hear_output)

    def is_model(self, thing: Any) -> bool:
        return isinstance(thing, nn.Cell)

    def children(self, model: nn.Cell) -> list[nn.Cell]:
        return list(compat.parts(model).values())

    def placed(self, model: nn.Cell) -> list[Label]:
        each = {id(cell): cell for _, cell in modules.every(model)}
        return [tap.label for cell in each.values() for tap in taps.taps_on(cell)]

    def place_state_hook(
        self, undoing: Undoing, module: nn.Cell, when: tuple[str, str], fn: Callable[..., Any], label: Label
    ) -> None:
        undoing.callback(STATE_HOOKS[when](module, FunctionTap(fn, label)).remove)

    def backward_number(self) -> int:
        return 0  # a backward may be under way at any time: whether it repeats a forward is asked

    def is_training(self, model: nn.Cell) -> bool:
        return bool(model.training)

    def is_trainable(self, parameter: Tensor) -> bool:
        return bool(parameter.requires_grad)

    def nbytes(self, tensor: ms.Tensor) -> int:
        return int(tensor.nbytes)


BACKEND: Backend = MindSporeBackend()
