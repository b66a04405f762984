"""Recurrent networks: the order of gates, which bias, which direction, whose state."""

from __future__ import annotations

import torch
from torch import nn

from bench.diff.case import Case, broken
from bench.diff.networks import recurrent
from bench.diff.networks.weights import copied, exchange, exchange_all, lived_in, ported


def ids() -> torch.Tensor:
    return torch.randint(0, 40, (3, 8))


@broken("LSTM")
def gates_in_another_order() -> Case:
    """The rows of an LSTM's kernels are in the order input, cell, forget, output."""
    a = lived_in(recurrent.Tagger())
    b = copied(a)
    for value in b.rnn1.parameters():
        _, forget, cell, _ = value.data.chunk(4)
        exchange(forget, cell)
    return Case(a, b, ids(), {"rnn1"}, {"weights"})


@broken("LSTM")
def layers_swapped() -> Case:
    """The two LSTMs have each other's weights."""
    a = lived_in(recurrent.Tagger())
    b = copied(a)
    exchange_all(b.rnn1, b.rnn2)
    return Case(a, b, ids(), {"rnn1"}, {"exchanged weights"})


@broken("LSTM")
def one_of_two_biases() -> Case:
    """Only one of an LSTM's two biases was carried over; the other is zero."""
    a = lived_in(recurrent.Tagger())
    b = copied(a)
    nn.init.zeros_(b.rnn2.bias_hh_l0)
    return Case(a, b, ids(), {"rnn2"}, {"weights"})


@broken("LSTM")
def not_turned_back() -> Case:
    """What the LSTM from the end gives is not turned back before it is joined with the other."""

    class BothWays(recurrent.BothWays):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.embed(ids)
            one, _ = self.ahead(x)
            two, _ = self.back(x.flip(1))
            return self.fc(torch.cat([one, two], dim=-1))

    a = lived_in(recurrent.BothWays())
    return Case(a, ported(a, BothWays()), ids(), {""}, {"code"})


@broken("RNN")
def reset_before_product() -> Case:
    """A GRU's reset gate comes before the product with the state: no difference in the first step."""

    class Cell(recurrent.Cell):
        def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
            reset, update, new = self.input(x).chunk(3, dim=-1)
            reset_h, update_h, _ = self.hidden(state).chunk(3, dim=-1)
            reset, update = (reset + reset_h).sigmoid(), (update + update_h).sigmoid()
            kernel = self.hidden.weight.chunk(3)[2]
            new = (new + nn.functional.linear(reset * state, kernel)).tanh()
            return update * state + (1 - update) * new

    a = lived_in(recurrent.Listener())
    b = ported(a, recurrent.Listener(Cell))
    return Case(a, b, torch.randn(3, 6, 5), {"cell"}, {"code"})


@broken("RNN")
def gates_exchanged() -> Case:
    """A GRU by hand takes its update gate for its reset gate."""

    class Cell(recurrent.Cell):
        def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
            update, reset, new = self.input(x).chunk(3, dim=-1)
            update_h, reset_h, new_h = self.hidden(state).chunk(3, dim=-1)
            reset, update = (reset + reset_h).sigmoid(), (update + update_h).sigmoid()
            new = (new + reset * new_h).tanh()
            return update * state + (1 - update) * new

    a = lived_in(recurrent.Listener())
    b = ported(a, recurrent.Listener(Cell))
    return Case(a, b, torch.randn(3, 6, 5), {"cell"}, {"code"})


@broken("RNN")
def state_lost() -> Case:
    """The state is not handed on from one chunk to the next."""

    class Chunked(recurrent.Chunked):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = []
            for chunk in x.split(5, dim=1):
                out, _ = self.rnn(chunk)
                found.append(self.fc(out))
            return torch.cat(found, dim=1)

    a = lived_in(recurrent.Chunked())
    return Case(a, ported(a, Chunked()), torch.randn(2, 15, 3), {""}, {"code"})
