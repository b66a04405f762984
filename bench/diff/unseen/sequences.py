"""Sound, state space, low-rank and language."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from transformers import MistralConfig, MistralModel

from bench.diff.case import Case, broken
from bench.diff.networks.weights import copied, exchange, lived_in, ported


class Causal(nn.Module):
    """A convolution over time that sees the past only, for each channel on its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(width, width, 5, groups=width)
        self.pointwise = nn.Conv1d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pointwise(functional.silu(self.depthwise(functional.pad(x, (4, 0)))))


class Sound(nn.Module):
    def __init__(self, convolution: type[nn.Module] = Causal) -> None:
        super().__init__()
        self.enter = nn.Conv1d(4, 12, 1)
        self.body = nn.ModuleList(convolution(12) for _ in range(2))
        self.norm = nn.LayerNorm(12)
        self.out = nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter(x)
        for one in self.body:
            x = x + one(x)
        return self.out(self.norm(x.transpose(1, 2)))


@broken("sound")
def padded_on_both_sides() -> Case:
    """A causal convolution is padded on both sides, so that it sees the future."""

    class Centred(Causal):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.pointwise(functional.silu(self.depthwise(functional.pad(x, (2, 2)))))

    a = lived_in(Sound())
    return Case(a, ported(a, Sound(Centred)), torch.randn(2, 4, 20), {"body.0"}, {"code"})


class Scan(nn.Module):
    """A diagonal state space: each channel decays at a rate that depends on the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.rate = nn.Linear(width, width)
        self.enter = nn.Linear(width, width)
        self.decay = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        step, given = functional.softplus(self.rate(x)), self.enter(x)
        keep = torch.exp(-step * self.decay)
        state, states = torch.zeros_like(x[:, 0]), []
        for at in range(x.shape[1]):
            state = keep[:, at] * state + step[:, at] * given[:, at]
            states.append(state)
        return torch.stack(states, dim=1)


def spaces(scan: type[nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 10), scan(10), nn.LayerNorm(10), scan(10), nn.Linear(10, 2))


@broken("state space")
def decay_by_euler() -> Case:
    """The decay of a step is its first-order approximation."""

    class Euler(Scan):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            step, given = functional.softplus(self.rate(x)), self.enter(x)
            keep = 1 - step * self.decay
            state, states = torch.zeros_like(x[:, 0]), []
            for at in range(x.shape[1]):
                state = keep[:, at] * state + step[:, at] * given[:, at]
                states.append(state)
            return torch.stack(states, dim=1)

    a = lived_in(spaces(Scan))
    return Case(a, ported(a, spaces(Euler)), torch.randn(2, 9, 6), {"1"}, {"code"})


@broken("LSTM")
def stacked_in_another_order() -> Case:
    """Inside one LSTM of two layers the layers have each other's weights."""

    class Series(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter = nn.Linear(3, 12)
            self.lstm = nn.LSTM(12, 12, num_layers=2, batch_first=True)
            self.fc = nn.Linear(12, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(self.lstm(self.enter(x))[0])

    a = lived_in(Series())
    b = copied(a)
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        exchange(getattr(b.lstm, f"{name}_l0"), getattr(b.lstm, f"{name}_l1"))
    return Case(a, b, torch.randn(2, 8, 3), {"lstm"}, {"exchanged weights", "weights"})


@broken("MLP")
def row_of_padding() -> Case:
    """The row of an embedding that stands for padding is not zero."""

    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(30, 8, padding_idx=0)
            self.fc = nn.Linear(8, 3)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.fc(self.embed(ids).sum(1))

    a = lived_in(Bag())
    b = copied(a)
    b.embed.weight.data[0].normal_()
    ids = torch.randint(1, 30, (3, 7))
    ids[:, 5:] = 0
    return Case(a, b, ids, {"embed"}, {"weights"})


@broken("Mistral")
def window_of_attention() -> Case:
    """A word sees the last 4, not all before it."""

    def build(window: int | None) -> MistralModel:
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 80}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
        return MistralModel(MistralConfig(**sizes, **heads, sliding_window=window)).eval()

    a = lived_in(build(None))
    b = ported(a, build(4))
    return Case(
        a, b, {"input_ids": torch.randint(0, 80, (2, 12))}, {"", "layers.0.self_attn"}, {"setting", "code"}
    )


@broken("encoder")
def more_dropout() -> Case:
    """Both are in training mode; one dropout has a share of 0.2 for 0.1."""
    body = [nn.Linear(6, 40), nn.ReLU(), nn.Dropout(0.1), nn.Linear(40, 40), nn.Dropout(0.1), nn.Linear(40, 2)]
    a = lived_in(nn.Sequential(*body)).train()
    b = copied(a)
    b[4].p = 0.2
    return Case(a, b, torch.randn(8, 6), {"4"}, {"setting"}, loss=lambda out: out.square().mean())
