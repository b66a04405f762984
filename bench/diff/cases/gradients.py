"""The forward is equal, gradients are not: these can be seen with a loss only."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from bench.diff.case import BACKWARD, Case, broken
from bench.diff.networks.weights import copied, lived_in, ported


def squared(out: torch.Tensor) -> torch.Tensor:
    return out.square().mean()


class Fork(nn.Module):
    """Two branches over one trunk, added up."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.trunk = nn.Linear(width, width)
        self.left = nn.Linear(width, width)
        self.right = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.trunk(x).tanh()
        return self.left(h) + self.right(h)


@broken("MLP")
def branch_detached() -> Case:
    """What goes into one of two branches is detached."""

    class Ported(Fork):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.trunk(x).tanh()
            return self.left(h) + self.right(h.detach())

    a = lived_in(nn.Sequential(nn.Linear(6, 16), Fork(16), nn.ReLU(), nn.Linear(16, 3)))
    b = ported(a, nn.Sequential(nn.Linear(6, 16), Ported(16), nn.ReLU(), nn.Linear(16, 3)))
    sites = {"1", "1.right", "1.trunk"}
    return Case(a, b, torch.randn(5, 6), sites, {"code"}, kinds=BACKWARD, loss=squared)


class Turn(torch.autograd.Function):
    """The same forward; in the backward the gradient with the other sign, times a strength."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, strength: float) -> torch.Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return -ctx.strength * grad, None


class TurnWithoutStrength(Turn):
    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return -grad, None


@broken("MLP")
def gradient_not_scaled() -> Case:
    """A layer that turns the gradient round forgets the strength."""

    class Reverse(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Turn.apply(x, 0.3)

    class Ported(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return TurnWithoutStrength.apply(x, 0.3)

    def build(reverse: nn.Module) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), reverse, nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))

    a = lived_in(build(Reverse()))
    b = ported(a, build(Ported()))
    return Case(a, b, torch.randn(5, 6), {"2"}, {"code"}, kinds=BACKWARD, loss=squared)


class Words(nn.Module):
    """Predicts a word from the mean of others."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 12)
        self.mix = nn.Linear(12, 12)
        self.head = nn.Linear(12, 30, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.mix(self.embed(ids).mean(1)).tanh())


@broken("MLP")
def weights_not_tied() -> Case:
    """The head has a copy of the embedding's weights, not the same ones."""
    a = Words().eval()
    a.head.weight = a.embed.weight
    b = copied(a)
    b.head.weight = nn.Parameter(b.embed.weight.detach().clone())
    sites = {"", "embed", "head"}
    return Case(a, b, torch.randint(0, 30, (4, 5)), sites, {"weights", "code"}, kinds=BACKWARD, loss=squared)


@broken("VAE")
def straight_through_forgotten() -> Case:
    """What is rounded lets no gradient through."""

    class Quantize(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rounded = (4 * x).round() / 4
            return x + (rounded - x).detach()

    class Ported(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (4 * x).round() / 4

    def build(quantize: nn.Module) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), quantize, nn.Linear(16, 6))

    a = lived_in(build(Quantize()))
    b = ported(a, build(Ported()))
    return Case(a, b, torch.randn(5, 6), {"2"}, {"code"}, kinds=BACKWARD, loss=squared)


@broken("CNN")
def backbone_without_gradient() -> Case:
    """The backbone still runs under no_grad, as it did while only the head was trained."""

    class Tuned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU())
            self.head = nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.backbone(x).mean((2, 3)))

    class Ported(Tuned):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                h = self.backbone(x)
            return self.head(h.mean((2, 3)))

    a = lived_in(Tuned())
    sites = {"", "head", "backbone", "backbone.3"}
    b = ported(a, Ported())
    return Case(a, b, torch.randn(2, 3, 8, 8), sites, {"code"}, kinds=BACKWARD, loss=squared)
