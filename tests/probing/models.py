"""Small models with a property and twins that lack it: (model, inputs), the same at every call."""

import torch
from torch import nn
from torch.nn import functional as F


def ids(samples=3, length=12, words=20):
    return torch.randint(0, words, (samples, length), generator=torch.Generator().manual_seed(0))


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


class Attention(nn.Module):
    """Causal attention; `diagonal=2` sees one position ahead, `inverted` sees only later ones."""

    def __init__(self, width=16, heads=2, diagonal=1, inverted=False):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.diagonal, self.inverted = heads, diagonal, inverted

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(self.diagonal)
        mask = ~later if self.inverted else later
        scores = (q @ k.transpose(-1, -2)).masked_fill(mask, -1e9)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class TinyLM(nn.Module):
    def __init__(self, *blocks):
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 16), nn.Linear(16, 20)
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


class CausalConv(nn.Module):
    """A convolution over time, padded on the left; `both` pads as images are."""

    def __init__(self, both=False):
        super().__init__()
        self.conv = nn.Conv1d(16, 16, 3, padding=1 if both else 0)
        self.both = both

    def forward(self, x):
        x = x.transpose(1, 2)
        return self.conv(x if self.both else F.pad(x, (2, 0))).transpose(1, 2)


class CausalNet(TinyLM):
    """Says by its name that it is causal."""


class TimeNorm(nn.Module):
    """Normalises over time (broken) or over channels."""

    def __init__(self, over_time):
        super().__init__()
        self.dim = 1 if over_time else 2

    def forward(self, x):
        return (x - x.mean(self.dim, keepdim=True)) / (x.std(self.dim, keepdim=True) + 1e-5)


class Bidirectional(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 8), nn.Linear(16, 4)
        self.rnn = nn.LSTM(8, 8, bidirectional=True, batch_first=True)

    def forward(self, x):
        return self.head(self.rnn(self.embed(x))[0])


class Heads(nn.Module):
    """Splits channels into heads and back: with permute, or with a view that takes other numbers."""

    def __init__(self, wrong):
        super().__init__()
        self.inner, self.wrong = nn.Linear(4, 4), wrong

    def forward(self, x):
        samples, time, width = x.shape
        if self.wrong:
            return self.inner(x.transpose(0, 1).reshape(samples, time, width))
        return self.inner(x)


class Scores(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc, self.dim = nn.Linear(6, 5), dim

    def forward(self, x):
        return torch.softmax(self.fc(x), self.dim)


def normed(tracked):
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4, track_running_stats=tracked),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(144, 3),
    )


class Dropped(nn.Module):
    def __init__(self, always, path=False):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 2)
        self.always, self.path = always, path

    def forward(self, x):
        x = self.first(x)
        on = self.always or self.training
        if self.path:
            x = x.div(0.5) * (0.5 + torch.rand(len(x), 1)).floor_() if on else x
        else:
            x = F.dropout(x, 0.5, training=on)
        return self.last(x)


class Dead(nn.Module):
    """All its units are below zero where `shift` is large."""

    def __init__(self, shift):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)
        nn.init.constant_(self.first.bias, shift)

    def forward(self, x):
        return self.last(self.act(self.first(x)))


class Overwritten(nn.Module):
    """Goes on with a variable that has nothing to do with the input."""

    def __init__(self, wrong):
        super().__init__()
        self.first, self.last, self.wrong = nn.Linear(6, 8), nn.Linear(8, 2), wrong

    def forward(self, x):
        hidden = self.first(x)
        if self.wrong:
            hidden = torch.ones_like(hidden)
        return self.last(hidden)


class Cut(nn.Module):
    """`how` tells what stands between encoder and head."""

    def __init__(self, how=""):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
        self.head, self.how = nn.Linear(8, 2), how

    def forward(self, x):
        if self.how == "no_grad":
            with torch.no_grad():
                return self.head(self.encoder(x))
        hidden = self.encoder(x)
        if self.how == "detach":
            hidden = hidden.detach()
        if self.how == "tensor":
            hidden = torch.tensor(hidden.tolist())
        if self.how == "round":
            hidden = hidden.mul(10).round()
        if self.how == "in vain":
            return self.head(torch.tanh(x).repeat(1, 2)[:, :8])
        return self.head(hidden)


class Masked(nn.Module):
    """Attention with a padding mask; `how` tells what is done with it. Pooled is a mean over what is kept."""

    def __init__(self, how=""):
        super().__init__()
        self.embed, self.attend = nn.Embedding(20, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.head, self.how = nn.Linear(8, 4), how

    def forward(self, input_ids, attention_mask):
        x = self.embed(input_ids)
        dropped = attention_mask == 0
        if self.how in ("ignored", "only pooled"):
            dropped = None
        x = x + self.attend(x, x, x, key_padding_mask=dropped, need_weights=False)[0]
        if self.how == "mean of all":
            return self.head(x.mean(1))
        if self.how in ("pooled", "only pooled"):
            kept = attention_mask.unsqueeze(-1).float()
            return self.head((x * kept).sum(1) / kept.sum(1).clamp(min=1))
        return self.head(x)


class Remembers(nn.Module):
    """Keeps a running mean: as a buffer, as a plain tensor, as a buffer that is not saved, or as a number."""

    def __init__(self, how="buffer"):
        super().__init__()
        self.fc, self.how = nn.Linear(6, 2), how
        if how == "plain":
            self.mean = torch.zeros(6)
        elif how == "number":
            self.mean = 0.0
        else:
            self.register_buffer("mean", torch.zeros(6), persistent=how == "buffer")

    def forward(self, x):
        if self.training:
            new = x.detach().mean(0)
            self.mean = 0.9 * self.mean + (0.1 * float(new.abs().mean()) if self.how == "number" else 0.1 * new)
        return self.fc(x - self.mean)


class Listed(nn.Module):
    """Layers in a plain list are no part of the model."""

    def __init__(self, plain):
        super().__init__()
        layers = [nn.Linear(6, 6), nn.Linear(6, 6)]
        self.layers = layers if plain else nn.ModuleList(layers)
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).tanh()
        return self.head(x)


class Projected(nn.Module):
    """A random projection that is fixed: saved or not; or a table of sines, which need not be saved."""

    def __init__(self, how):
        super().__init__()
        self.fc = nn.Linear(8, 2)
        table = torch.sin(torch.arange(6.0)[:, None] / 10 ** torch.arange(0, 1, 0.125)[None])
        drawn = torch.randn(6, 8) if how != "sines" else table
        if how == "plain":
            self.table = drawn
        else:
            self.register_buffer("table", drawn, persistent=how == "saved")

    def forward(self, x):
        return self.fc(x @ self.table)
