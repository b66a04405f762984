"""LSTMs above each other, one in each direction, one that goes on from chunk to chunk; and a GRU by hand."""

from __future__ import annotations

import torch
from torch import nn


class Tagger(nn.Module):
    """Two LSTMs, one above the other."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, width)
        self.rnn1 = nn.LSTM(width, width, batch_first=True)
        self.rnn2 = nn.LSTM(width, width, batch_first=True)
        self.fc = nn.Linear(width, 6)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x, _ = self.rnn1(self.embed(ids))
        x, _ = self.rnn2(x)
        return self.fc(x)


class BothWays(nn.Module):
    """One LSTM ahead, one back."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, width)
        self.ahead = nn.LSTM(width, width, batch_first=True)
        self.back = nn.LSTM(width, width, batch_first=True)
        self.fc = nn.Linear(2 * width, 6)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        one, _ = self.ahead(x)
        two, _ = self.back(x.flip(1))
        return self.fc(torch.cat([one, two.flip(1)], dim=-1))


class Chunked(nn.Module):
    """A long series in chunks of 5; the state goes from one to the next."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.rnn = nn.GRU(3, width, batch_first=True)
        self.fc = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = None
        found = []
        for chunk in x.split(5, dim=1):
            out, state = self.rnn(chunk, state)
            found.append(self.fc(out))
        return torch.cat(found, dim=1)


class Cell(nn.Module):
    """A GRU's step, as cuDNN has it: the reset gate comes after the product with the state."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.input = nn.Linear(size, 3 * width)
        self.hidden = nn.Linear(width, 3 * width, bias=False)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        reset, update, new = self.input(x).chunk(3, dim=-1)
        reset_h, update_h, new_h = self.hidden(state).chunk(3, dim=-1)
        reset, update = (reset + reset_h).sigmoid(), (update + update_h).sigmoid()
        new = (new + reset * new_h).tanh()
        return update * state + (1 - update) * new


class Listener(nn.Module):
    """Runs a cell over a series; what it has at the end is the answer."""

    def __init__(self, cell: type[nn.Module] = Cell, width: int = 16) -> None:
        super().__init__()
        self.width = width
        self.cell = cell(5, width)
        self.fc = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x.new_zeros(len(x), self.width)
        for moment in x.unbind(1):
            state = self.cell(moment, state)
        return self.fc(state)
