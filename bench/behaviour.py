"""Behaviour: whether a recorder leaves a model clean when it breaks off, and what it finds in a compiled one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bench.nothing import hooks_on
from bench.recorders import Values, clone, raw
from bench.tools import COMPILED, Recorder

Make = Callable[[nn.Module], Recorder]


class Fails(nn.Module):
    """Raises while it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.on = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.on:
            raise ArithmeticError("as it was told")
        return x


def after_an_exception(record: Make) -> str:
    """What is left on a model whose forward raised in the middle of a recording."""
    x = torch.ones(2, 4)
    fails = Fails()
    model = nn.Sequential(nn.Linear(4, 4), fails, nn.Tanh())
    made = record(model)
    with torch.no_grad():
        made.run(x)
        before, hooks, forwards = model(x), hooks_on(model), _replaced(model)
        fails.on = True
        try:
            made.run(x)
            return "does not raise"
        except ArithmeticError:
            pass
        except Exception as error:
            return f"raises {type(error).__name__} instead"
        fails.on = False
        after = model(x)
    left = hooks_on(model) - hooks
    told = [f"{left} hooks left"] if left else []
    told += ["forward replaced"] if _replaced(model) - forwards else []
    told += [] if torch.equal(before, after) else ["another result"]
    return ", ".join(told) or "clean"


def _replaced(model: nn.Module) -> int:
    """How many modules have a forward of their own, in place of their class's."""
    return sum("forward" in module.__dict__ for module in model.modules())


def of_a_compiled_model(record: Make) -> str:
    """How many values are right in a model that was compiled, and run, before it is recorded."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU()).eval()
    x = torch.randn(4, 8)
    with torch.no_grad():
        right = raw(model, x, clone)
        torch._dynamo.reset()
        compiled: Any = torch.compile(model, backend="aot_eager")
        compiled(x)
        made = record(compiled)
        kept = {name.removeprefix(COMPILED): calls for name, calls in made.read(made.run(x)).items()}
    return _counted(kept, right)


def _counted(kept: Values, right: Values) -> str:
    def is_right(name: str) -> bool:
        value = (kept.get(name) or [None])[-1]
        return isinstance(value, torch.Tensor) and torch.allclose(value, right[name][-1], atol=1e-6)

    found = sum(map(is_right, right))
    missing = sum(not isinstance((kept.get(name) or [None])[-1], torch.Tensor) for name in right)
    return f"{found} of {len(right)} right" + (f", {missing} missing" if missing else "")
