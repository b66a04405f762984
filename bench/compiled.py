"""Row compiled: statistics of every layer in the training step of a compiled transformer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import hookline
from bench.harness import Case, Goal, Table

WIDTH, HEADS, LAYERS, BATCH, TOKENS = 256, 4, 2, 8, 128


class Block(nn.Module):
    """A block of GPT-2's design, with each of its parts a module."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.act, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(self.act(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x))


def tables() -> Iterator[Table]:
    torch.manual_seed(0)
    x = torch.randn(BATCH, TOKENS, WIDTH)
    torch.compile(torch.sin)(x)  # starting the compiler is nobody's cost
    plain, seconds = _first_step(x, None)
    cases = [Case("plain", partial(_step, *plain))]
    told = [f"plain {seconds:.1f} s"]
    for name, how, goal in (
        ("hookline.watch, histogram", partial(hookline.watch, params=False), Goal(1.10)),
        ("hookline.watch", partial(hookline.watch, params=False, histogram=False), Goal(1.06)),
        ("hookline.watch, a step that is not recorded", partial(hookline.watch, params=False, every=_never), None),
        ("hookline.record(grads=True)", partial(hookline.record, grads=True), Goal(1.15)),
    ):
        made, seconds = _first_step(x, how)
        step, around = partial(_step, *made), partial(how, made[0])
        is_watch = how.func is hookline.watch
        cases.append(Case(name, step, around=partial(_under_way, around, step) if is_watch else around, goal=goal))
        if is_watch and goal is not None:
            cases.append(Case(f"{name}, the first step of a watch", step, around=around))
        told.append(f"{name} {seconds:.1f} s")
    by_hand, seconds = _first_step(x, None, prepare=_in_graph)
    cases.append(Case("by hand: seven statistics, made by inductor", partial(_step, *by_hand)))
    told.append(f"by hand {seconds:.1f} s")
    yield Table(
        "Activations and gradients of all layers, compiled transformer, training step",
        cases,
        rounds=15,
        note=f"{LAYERS} blocks of width {WIDTH}, batch {BATCH} of {TOKENS} tokens, inductor, fullgraph, no break "
        f"of the graph. First step, compiling it: {', '.join(told)}. Attaching is not in the time; a watch has "
        "seen one step before the clock runs, but for the rows of a first step, in which the graph is looked at.",
    )


@contextmanager
def _under_way(around: Callable[[], Any], step: Callable[[], None]) -> Iterator[None]:
    with around():
        step()
        yield


Made = tuple[Any, Any, torch.Tensor]


def _first_step(
    x: torch.Tensor, how: Callable[[Any], Any] | None, prepare: Callable[[nn.Module], None] | None = None
) -> tuple[Made, float]:
    """A compiled model with its optimizer, and the seconds of CPU that its first step took."""
    torch.manual_seed(0)
    model = Transformer()
    if prepare is not None:
        model = type(
            "Prepared", (Transformer,), {}
        )()  # a class of its own: torch would take the graph without hooks
        prepare(model)
    made = torch.compile(model, fullgraph=True), torch.optim.SGD(model.parameters(), lr=1e-4), x
    start = time.process_time()
    with torch._inductor.config.patch(force_disable_caches=True):
        if how is None:
            _step(*made)
        else:
            with how(made[0]):
                _step(*made)
    return made, time.process_time() - start


def _step(model: Any, optimizer: Any, x: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def _never(step: int) -> bool:
    return False


def _in_graph(model: nn.Module) -> None:
    """Hooks that torch.compile makes part of the graph: statistics into buffers, no Python when it runs."""
    for module in model.modules():
        module.register_forward_hook(partial(_reduce_into, torch.zeros(2, 7)))


def _reduce_into(buffer: torch.Tensor, module: nn.Module, args: Any, output: torch.Tensor) -> None:
    buffer[0].copy_(_seven(output.detach()))
    output.register_hook(lambda grad: _note(buffer, grad))


def _note(buffer: torch.Tensor, grad: torch.Tensor) -> None:
    buffer[1].copy_(_seven(grad))


def _seven(t: torch.Tensor) -> torch.Tensor:
    zeros, bad = (t == 0).sum().float(), (~t.isfinite()).sum().float()
    return torch.stack([t.sum(), t.square().sum(), t.abs().amax(), t.amin(), t.amax(), zeros, bad])
