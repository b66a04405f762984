"""Small random networks of awkward modules, and their gradients by hand, for test_compiled_gradients.py."""

import random

import torch
from torch import nn

from hookline.trees import leaves, map_leaves


class Part(nn.Module):
    """A module with a weight; what it computes of its arguments is its forward."""

    takes = 1

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(2, 3))


class Plain(Part):
    def forward(self, x):
        return (x * self.w).sin()


class Residual(Part):
    def forward(self, x):
        return x * self.w + x.sin()


class HiddenAndMore(Part):
    def forward(self, x):
        h = (x * self.w).sin()
        return h, h + 1


class Twice(Part):
    def forward(self, x):
        h = (x * self.w).sin()
        return h, h


class HandedOn(Part):
    def forward(self, x):
        return x * self.w, x


class Same(Part):
    def forward(self, x):
        return x


class AndSlice(Part):
    def forward(self, x):
        h = x * self.w
        return h, h[:, :1]


class InputSlice(Part):
    def forward(self, x):
        return x + 1, x[:, :1]


class Turned(Part):
    def forward(self, x):
        return x.view(-1).view(x.shape), x.t().t()


class OwnWeight(Part):
    def forward(self, x):
        return self.w, x * self.w


class Named(Part):
    def forward(self, x):
        h = (x * self.w).sin()
        return {"last": h, "all": [x, h * 2, h], "n": 3}


class Kept(Part):
    def forward(self, x):
        self.h = (x * self.w).sin()
        return self.h


class Pair(Part):
    takes = 2

    def forward(self, a, b):
        return a * self.w + b.sin()


class Attention(Part):
    takes = 3

    def forward(self, q, k, *, v):
        return (q * k.sum()).tanh() * v, q


class Unused(Part):
    takes = 2

    def forward(self, a, b):
        return a * 2, b.detach() * self.w.sin()


class Inside(Part):
    """Hands what it gets to a part, and what that gives on; adds a use of its own."""

    def __init__(self, part):
        super().__init__()
        self.part = part
        self.takes = part.takes

    def forward(self, *args, **kwargs):
        return self.part(*args, **kwargs), args[0] * self.w


class Through(Part):
    """Hands what it gets to a part, and what that gives on, as it is."""

    def __init__(self, part):
        super().__init__()
        self.part = part
        self.takes = part.takes

    def forward(self, *args, **kwargs):
        return self.part(*args, **kwargs)


class Writes(Part):
    """Writes to what it made."""

    def forward(self, x):
        h = x * self.w
        return h.add_(1).mul_(2)


class WritesInput(Part):
    """Writes to its argument, which nobody else uses: the network sees to it."""

    def forward(self, x):
        return x.mul_(2) * self.w


KINDS = [
    Plain,
    Residual,
    HiddenAndMore,
    Twice,
    HandedOn,
    Same,
    AndSlice,
    InputSlice,
    Turned,
    OwnWeight,
    Named,
    Kept,
    Pair,
    Attention,
    Unused,
    Writes,
    WritesInput,
]


class Network(nn.Module):
    """Calls its parts on tensors that it has, and gives some of those that came of it."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        chance = random.Random(seed)
        self.parts = nn.ModuleList(self._part(chance) for _ in range(chance.randint(1, 4)))
        self.calls = [
            (chance.randrange(len(self.parts)), [chance.random() for _ in range(3)])
            for _ in range(chance.randint(1, 5))
        ]
        self.given = [chance.random() for _ in range(chance.randint(1, 4))]
        self.uses_kept = chance.random() < 0.5
        self.gives_one = chance.random() < 0.4

    @staticmethod
    def _part(chance):
        part = chance.choice(KINDS)()
        while chance.random() < 0.35:
            around = [Through] if isinstance(part, WritesInput | Through) else [Inside, Through]
            part = chance.choice(around)(part)
        return part

    def forward(self, x):
        have = [x, x * 2]
        for number, at in self.calls:
            part = self.parts[number]
            args = [have[int(place * len(have))] for place in at[: part.takes]]
            inner = part
            while hasattr(inner, "part"):
                inner = inner.part
            if isinstance(inner, WritesInput):
                args = [args[0] * 3]
            made = part(*args[:2], v=args[2]) if part.takes == 3 else part(*args)
            have += leaves(made, torch.Tensor)
        for part in self.parts:
            if self.uses_kept and isinstance(part, Kept) and hasattr(part, "h"):
                have.append(part.h * 5)
        given = [have[-1 - int(place * len(have))] for place in self.given]
        return given[0] if self.gives_one else tuple(given)

    def described(self):
        return f"{self.parts}\ncalls {self.calls}\ngives {self.given} {self.gives_one} kept {self.uses_kept}"


def loss_of(output):
    total = 0
    for number, tensor in enumerate(leaves(output, torch.Tensor)):
        if tensor.requires_grad:
            weight = torch.linspace(1, 2 + number, tensor.numel()).reshape(tensor.shape)
            total = total + (tensor * weight).sum()
    return total


def by_hand(network, x, change=None):
    """(gradients of every call by site, gradients of x and the weights) of the network as it is written.

    At each place of each call zeros are added, whose gradient is that of the place. `change(site, what, number,
    gradient)` may give another one to go on with.
    """
    calls = {}
    removed = []

    def added(site, what, places):
        def one(value):
            number = len(places)
            if not value.requires_grad:
                places.append(None)
                return value
            zeros = torch.zeros_like(value, requires_grad=True)
            places.append(zeros)
            if change is not None and (new := change(site, what, number)) is not None:
                value = Changed.apply(value, new)
            return value + zeros

        return lambda tree: map_leaves(one, tree, torch.Tensor)

    for site, module in network.named_modules():
        if isinstance(module, nn.ModuleList):
            continue
        calls[site] = []

        def before(module, args, kwargs, site=site):
            places = []
            calls[site].append([places, None])
            return added(site, "grad_input", places)((args, kwargs))

        def after(module, args, kwargs, output, site=site):
            call = next(call for call in reversed(calls[site]) if call[1] is None)
            call[1] = []
            return added(site, "grad_output", call[1])(output)

        removed.append(module.register_forward_pre_hook(before, with_kwargs=True))
        removed.append(module.register_forward_hook(after, with_kwargs=True))
    loss = loss_of(network(x))
    for handle in removed:
        handle.remove()
    if isinstance(loss, torch.Tensor):
        loss.backward()
    grads = {
        site: [
            tuple([None if zeros is None else zeros.grad for zeros in places] for places in call) for call in told
        ]
        for site, told in calls.items()
    }
    return grads, [x.grad, *(weight.grad for weight in network.parameters())]


class Changed(torch.autograd.Function):
    """Its value as it is; the gradient as `new` wants it."""

    @staticmethod
    def forward(ctx, value, new):
        ctx.new = new
        return value.clone()

    @staticmethod
    def backward(ctx, grad):
        return ctx.new(grad), None
