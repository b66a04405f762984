"""What tests of operator hooks share: a mode that sees every operator, a model, and that nothing is left."""

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import hookline
from hookline.backends.torch import engine
from tests.support.compare import tensors


class Bare(TorchDispatchMode):
    """The reference: every operator with copies of its outputs, and nothing known of modules."""

    supports_higher_order_operators = True

    def __init__(self, model):
        super().__init__()
        self.seen, self.model, self.calls = [], model, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        node = torch._C._current_autograd_node()
        if node is not None and "Accumulate" in node.name():
            if all(node.variable is not parameter for parameter in self.model.parameters()):
                return out  # an input's gradient
        elif node is not None and repeats_a_forward(node):
            return out
        name = str(func).rpartition(".")[0] if hasattr(func, "overloadpacket") else str(func)
        self.seen += [(name, tensor.clone()) for tensor in tensors(out)]
        return out


def repeats_a_forward(node):
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return "CheckpointFunction" in node.name() or (hooks and "recomputation" in hooks[0].__qualname__)


class Net(nn.Module):
    """A shared layer, an operator of the model's own, and an in-place one."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3)
        self.norm = nn.LayerNorm(6)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(6, 6)

    def forward(self, x):
        x = self.act(self.norm(self.conv(x)))
        x = self.head(x) + 1
        x = x + 1
        return self.head(x)


def net():
    torch.manual_seed(0)
    return Net(), torch.randn(2, 1, 8, 8)


def modes():
    return torch.utils._python_dispatch._get_current_dispatch_mode_stack()


def nothing_is_left(model):
    return not modes() and not engine._around_backward and not hookline.installed(model)
