"""Proof: that the two models of a case part where its label says, by plain torch hooks, without hookline.

Each module of B is run alone on what A's module was handed. Those that then give something else make an error; the
innermost of them is where it is born, since a container gives something else as soon as one of its parts does.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from bench.diff.case import BACKWARD, Case

DIFFERENT = 1e-9
"""Relative. A module that does the same on the same numbers gives the same bits."""


@dataclass(frozen=True)
class Call:
    """What one call of a module was handed, what it gave, and the state of the random numbers before it."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    random: torch.Tensor
    output: Any


def run(model: Callable[..., Any], inputs: Any) -> Any:
    """What a model gives for a tensor, a tuple of positional or a dict of keyword arguments."""
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of a structure, in order."""
    return [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]


def distance(one: Any, other: Any) -> float:
    """The largest difference of two structures, each tensor's relative to its largest number in `one`."""
    ours, theirs = tensors(one), tensors(other)
    if [a.shape for a in ours] != [b.shape for b in theirs]:
        return math.inf
    return max((_apart(a.double(), b.double()) for a, b in zip(ours, theirs, strict=True)), default=0.0)


def _apart(a: torch.Tensor, b: torch.Tensor) -> float:
    odd = ~(a.isfinite() & b.isfinite())
    if not torch.equal(a[odd].nan_to_num(nan=0.5), b[odd].nan_to_num(nan=0.5)):
        return math.inf
    a, b = a[~odd], b[~odd]
    return float((a - b).abs().max() / a.abs().max().clamp_min(1e-30)) if len(a) else 0.0


def outputs(case: Case) -> tuple[Any, Any]:
    """What the two models give, from the same random numbers."""
    (a, given_a), (b, given_b) = case.pairs
    with torch.no_grad():
        return _seeded(lambda: run(a, given_a)), _seeded(lambda: run(b, given_b))


def gradients(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of A's weights by the loss of the case, and those of B's weights, each as one long tensor.

    As one, since of some weights the gradient is nothing but rounding: of the bias of keys, say.
    """
    assert case.loss is not None
    names, found = [name for name, _ in case.a.named_parameters()], []
    for model, given in case.pairs:
        loss = _seeded(lambda model=model, given=given: case.loss(run(model, given)))  # type: ignore[misc]
        known = dict(model.named_parameters(remove_duplicate=False))
        # A port with other names has its weights in the same order.
        weights = [known[name] for name in names] if set(names) <= set(known) else list(model.parameters())
        found.append(torch.cat([one.flatten() for one in _gradients(loss, weights)]))
    return found[0], found[1]


def born(case: Case) -> list[str]:
    """A's names of the modules at which an error is born, in the order in which A's calls end."""
    judge = _gives_other_gradients if set(case.kinds) <= BACKWARD else _gives_something_else
    parts, others = dict(case.a.named_modules()), dict(case.b.named_modules())
    found: list[str] = []
    for call in calls(*case.pairs[0]):
        same, other = parts[call.name], others.get(call.name)
        assert not judge(call, same, same), f"{call.name}: A's own module, alone, is not what it was"
        if other is not None and judge(call, same, other) and call.name not in found:
            found.append(call.name)
    return [name for name in found if not any(_is_inside(one, name) for one in found)]


def calls(model: nn.Module, inputs: Any) -> list[Call]:
    """Every call of every module, in the order in which they end."""
    found: list[Call] = []
    begun: list[tuple[Any, ...]] = []

    def begin(module: nn.Module, args: Any, kwargs: Any) -> None:
        begun.append((copy.deepcopy(args), copy.deepcopy(kwargs), torch.get_rng_state()))

    def end(name: str) -> Callable[..., None]:
        return lambda module, args, output: found.append(Call(name, *begun.pop(), copy.deepcopy(output)))

    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(begin, with_kwargs=True))
        handles.append(module.register_forward_hook(end(name)))
    try:
        with torch.no_grad():
            _seeded(lambda: run(model, inputs))
    finally:
        for handle in handles:
            handle.remove()
    return found


def _gives_something_else(call: Call, same: nn.Module, other: nn.Module) -> bool:
    try:
        with torch.no_grad():
            return distance(call.output, _again(call, other)[0]) > DIFFERENT
    except RuntimeError as error:
        if "dtype" in str(error):
            return True  # its weights have another dtype than what A hands to it
        raise


def _gives_other_gradients(call: Call, same: nn.Module, other: nn.Module) -> bool:
    names = [name for name, _ in same.named_parameters()]
    return distance(_own_gradients(call, same, names), _own_gradients(call, other, names)) > DIFFERENT


def _own_gradients(call: Call, module: nn.Module, names: Sequence[str]) -> list[torch.Tensor]:
    """The gradients of what a module is handed and of its weights, each output weighed by random numbers."""
    output, given = _again(call, module, grads=True)
    drawn = torch.Generator().manual_seed(7)
    weighed = [
        (one * torch.randn(one.shape, generator=drawn)).sum() for one in tensors(output) if one.is_floating_point()
    ]
    weights = dict(module.named_parameters(remove_duplicate=False))
    return _gradients(torch.stack(weighed).sum(), [*given, *(weights[name] for name in names)])


def _again(call: Call, module: nn.Module, grads: bool = False) -> tuple[Any, list[torch.Tensor]]:
    """What a copy of a module gives for what the call was handed, and the tensors that it was handed."""
    args, kwargs = copy.deepcopy((call.args, call.kwargs))
    given = [one for one in tensors((args, kwargs)) if one.is_floating_point()]
    for one in given:
        one.requires_grad_(grads)
    # The weights stay those of the module: gradients are asked of them.
    kept = {name: value.clone() for name, value in module.named_buffers()}
    with torch.random.fork_rng():
        torch.set_rng_state(call.random)
        output = module(*args, **kwargs)
    for name, value in module.named_buffers():
        value.copy_(kept[name])
    return output, given


def _gradients(value: torch.Tensor, of: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The gradients, zeros where there are none."""
    if not value.requires_grad:
        return [torch.zeros_like(one) for one in of]
    found = torch.autograd.grad(value, of, allow_unused=True)
    return [torch.zeros_like(one) if grad is None else grad for one, grad in zip(of, found, strict=True)]


def _seeded(does: Callable[[], Any]) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return does()


def _is_inside(name: str, container: str) -> bool:
    return name != container and (not container or name.startswith(f"{container}."))
