"""Graphs, mixtures of experts, VAE, plain MLPs."""

from __future__ import annotations

import torch
from torch import nn

from bench.diff.case import Case, broken
from bench.diff.networks import experts, graph, vae
from bench.diff.networks.weights import copied, exchange_all, lived_in, ported


@broken("GNN")
def edges_reversed() -> Case:
    """Messages go against the direction of their edges."""

    class Convolution(graph.Convolution):
        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            loops = torch.arange(len(x))
            target, source = torch.cat([edges, torch.stack([loops, loops])], dim=1)
            degree = torch.zeros(len(x)).index_add(0, target, torch.ones(len(target)))
            share = (degree[source] * degree[target]).rsqrt()
            out = self.linear(x)
            return torch.zeros_like(out).index_add(0, target, out[source] * share[:, None]) + self.bias

    a = lived_in(graph.GraphNet())
    return Case(a, ported(a, graph.GraphNet(Convolution)), graph.graph(), {"conv1"}, {"code"})


@broken("GNN")
def mean_for_roots() -> Case:
    """Messages are divided by the degree of where they arrive, not by the roots of both degrees."""

    class Convolution(graph.Convolution):
        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            loops = torch.arange(len(x))
            source, target = torch.cat([edges, torch.stack([loops, loops])], dim=1)
            degree = torch.zeros(len(x)).index_add(0, target, torch.ones(len(target)))
            share = degree[target].reciprocal()
            out = self.linear(x)
            return torch.zeros_like(out).index_add(0, target, out[source] * share[:, None]) + self.bias

    a = lived_in(graph.GraphNet())
    return Case(a, ported(a, graph.GraphNet(Convolution)), graph.graph(), {"conv1"}, {"code"})


@broken("MoE")
def shares_not_rescaled() -> Case:
    """The shares of the two chosen experts do not add up to one."""

    class Mixture(experts.Mixture):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            shares = self.gate(x).softmax(-1)
            best, chosen = shares.topk(2, dim=-1)
            return self.mixed(x, best, chosen), self.unevenness(shares, chosen)

    a = lived_in(experts.Sparse())
    return Case(a, ported(a, experts.Sparse(Mixture)), experts.tokens(), {"moe1"}, {"code"})


@broken("MoE")
def experts_exchanged() -> Case:
    """Two experts of the second mixture have each other's weights."""
    a = lived_in(experts.Sparse())
    b = copied(a)
    exchange_all(b.moe2.experts[1], b.moe2.experts[3])
    return Case(a, b, experts.tokens(), {"moe2.experts.1.fc1"}, {"exchanged weights"})


@broken("MoE")
def weight_of_a_loss() -> Case:
    """The loss that keeps experts evenly used has a weight of 0.01 for 0.1; the logits are the same."""
    a = lived_in(experts.Sparse())
    b = ported(a, experts.Sparse(evenness=0.01))
    return Case(a, b, experts.tokens(), {""}, {"setting"}, loss=lambda out: out["loss"])


@broken("VAE")
def variance_for_deviation() -> Case:
    """The noise is multiplied by the variance, not by its root."""

    class Vae(vae.Vae):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            h = self.enter(x)
            mean, logvar = self.mean(h), self.logvar(h)
            z = mean + torch.randn_like(mean) * logvar.exp()
            return self.decode(torch.cat([z, self.label(y)], dim=-1)).sigmoid(), mean, logvar

    a = lived_in(vae.Vae())
    return Case(a, ported(a, Vae()), vae.digits(), {""}, {"code"})


@broken("VAE")
def label_off_by_one() -> Case:
    """The class is looked up one row too early."""

    class Vae(vae.Vae):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            h = self.enter(x)
            mean, logvar = self.mean(h), self.logvar(h)
            z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
            return self.decode(torch.cat([z, self.label(y - 1)], dim=-1)).sigmoid(), mean, logvar

    a = lived_in(vae.Vae())
    return Case(a, ported(a, Vae()), vae.digits(), {""}, {"code"})


@broken("VAE")
def noise_drawn_before() -> Case:
    """Random numbers are drawn that nobody uses, so that the noise is another."""

    class Vae(vae.Vae):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            torch.rand(len(x))
            return super().forward(x, y)

    a = lived_in(vae.Vae())
    return Case(a, ported(a, Vae()), vae.digits(), {""}, {"random numbers", "code"})


def mlp(last: int = 3) -> nn.Sequential:
    layers = [nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, last)]
    return nn.Sequential(*layers)


@broken("MLP")
def bias_forgotten() -> Case:
    """One layer was built without a bias."""
    a = lived_in(mlp())
    b = copied(a)
    b[2] = nn.Linear(24, 24, bias=False)
    b.load_state_dict({name: value for name, value in a.state_dict().items() if name != "2.bias"})
    return Case(a, b.eval(), torch.randn(4, 6), {"2"}, {"weights", "setting"})


@broken("MLP")
def logarithm_of_zero() -> Case:
    """The logarithm is taken without a lower bound; one of the inputs is zero."""

    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x.clamp_min(1e-6).log())

    class Unbounded(Counts):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x.log())

    a, x = lived_in(Counts()), torch.rand(4, 6) + 0.1
    x[2, 3] = 0
    return Case(a, ported(a, Unbounded()), x, {""}, {"not finite", "code"})


@broken("MLP")
def axis_not_squeezed() -> Case:
    """A prediction keeps its last axis of length one, so that what is subtracted from it makes a matrix."""

    class Residuals(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp(1)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.body(x).squeeze(-1) - y

    class Broadcast(Residuals):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.body(x) - y

    a = lived_in(Residuals())
    return Case(a, ported(a, Broadcast()), (torch.randn(4, 6), torch.randn(4)), {""}, {"shape", "code"})
