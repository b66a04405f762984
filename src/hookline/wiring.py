"""Wiring: how the parts of a training hang together: parameters, modules, optimizers, losses, and what changed.

Statistics tell how large things are; most silent mistakes are none of size. A watch notes this besides its rows, a
run keeps it as JSON, and rules read it from either.
"""

from __future__ import annotations

import types
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from hookline.errors import RunError

MOST_CHANGES = 10_000
"""So many changes are noted; `Wiring.left_out` counts those after."""


@dataclass
class Place:
    """An operator that ran: its name, the module it ran in, the line of code ("train.py:12"), what about it."""

    op: str
    module: str = ""
    line: str = ""
    what: str = ""


@dataclass
class Parameter:
    """What became of one parameter; counts are of the steps that were looked at."""

    module: str
    """The module that has it: its own, not one above."""
    shape: list[int] = field(default_factory=list)
    dtype: str = ""
    trainable: bool = True
    """requires_grad, when it was first seen; later ones are changes."""
    fresh: bool | None = None
    """Of a frozen one: whether it is as its layer drew it, and nobody has trained or loaded it; None of others."""
    groups: list[str] = field(default_factory=list)
    """Where optimizers hold it: "0/1" is group 1 of optimizer 0. Empty: none does."""
    steps: int = 0
    """At how many steps of an optimizer it was looked at."""
    grads: int = 0
    """At how many of them it had a gradient."""
    zero_grads: int = 0
    """At how many of them the gradient was zero all over."""
    first_grad: int | None = None
    last_grad: int | None = None
    shares_with: list[str] = field(default_factory=list)
    """Other names of the same tensor, or of tensors that look at the same memory."""
    in_loss: bool | None = None
    """Whether the loss depends on it, by the graph; None where nobody looked."""
    cut: str = ""
    """Where the graph is cut between it and the loss, in words; empty where it is not, or that is not known."""
    cut_line: str = ""


@dataclass
class Module:
    """What became of one module."""

    type: str
    calls: int = 0
    counted: bool = True
    """Whether its calls are counted: `where` chose it. Where they are not, `calls` says nothing."""
    first_call: int | None = None
    """The step of its first call."""
    last_call: int | None = None
    training: bool = True
    """Its mode at its first call; later ones are changes."""
    outside: str = ""
    """Where it is, if it ran and is no part of the model's tree: "layers[0]", in a list say."""
    in_loss: bool | None = None
    """Whether the loss depends on its output, by the graph."""
    is_own: bool = True
    """Whether its class is the user's, and not that of an installed library."""
    settings: dict[str, float] = field(default_factory=dict)
    """Numbers that it was made with and that matter: momentum, p, eps."""
    spreads: list[list[float]] = field(default_factory=list)
    """At a few steps: [step, how far its outputs for the samples of a batch are apart, how large they are]."""


@dataclass
class Optimizer:
    """An optimizer that steps, as it was at its first step."""

    type: str
    groups: list[dict[str, float]] = field(default_factory=list)
    """Of each group its numbers: lr, weight_decay, momentum, eps, and how many `params` it has."""
    strangers: list[str] = field(default_factory=list)
    """What it holds that no module of the model has, in words: "Parameter (10, 4), was 'head.weight'"."""
    others: list[str] = field(default_factory=list)
    """What it holds besides that is somebody's all the same: of another model, or the loss depends on it."""
    steps: int = 0
    """At how many steps it was looked at; the first and the last of them:"""
    first_step: int | None = None
    last_step: int | None = None


@dataclass
class Loss:
    """A place at which backward is called."""

    line: str
    shape: list[int] = field(default_factory=list)
    first_step: int = 0
    calls: int = 0


@dataclass
class Look:
    """What one look at the graph and the operators of a training step showed."""

    step: int
    on_params: bool | None = None
    """Whether the loss depends on any parameter."""
    on_input: bool | None = None
    """Whether the loss depends on what came into the model; None where it can't be told."""
    in_vain: list[str] = field(default_factory=list)
    """Modules whose outputs the loss does not depend on, the outermost only."""
    broadcast: list[Place] = field(default_factory=list)
    """Operators between the model's output and the loss that stretched one tensor to another's shape."""
    double_softmax: list[Place] = field(default_factory=list)
    """A softmax, log-softmax or cross entropy of what is a softmax already."""
    risky: list[Place] = field(default_factory=list)
    """Operators outside of the model that are infinite somewhere, or whose slope is: log, sqrt, a division."""
    activations: list[Place] = field(default_factory=list)
    """Activations that are functions: `module` is whose output goes into one, `what` the module it runs in."""
    padding: list[Place] = field(default_factory=list)
    """Embeddings whose padding index is not what pads."""
    divided: bool | None = None
    """Whether the loss was divided by a number last of all, as it is for gradient accumulation."""
    operators: list[str] = field(default_factory=list)
    """The last operators of the loss, its own first."""
    is_overlap: bool = False
    """Whether the loss is a score that is large where output and target agree: Dice, IoU."""


@dataclass
class Change:
    """Something that is no longer as it was, from a step on."""

    step: int
    what: str
    """"mode", "trainable", "replaced", "optimizer" (groups), "tied" (no longer shares memory)."""
    site: str
    to: str


@dataclass
class Wiring:
    """All of it. `params` and `modules` by name, in the order of the model."""

    params: dict[str, Parameter] = field(default_factory=dict)
    modules: dict[str, Module] = field(default_factory=dict)
    optimizers: list[Optimizer] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    left_out: int = 0
    looks: list[Look] = field(default_factory=list)
    dropout_in_eval: list[Place] = field(default_factory=list)
    """Operators that dropped values while the whole model was in eval mode."""
    nonfinite: list[Place] = field(default_factory=list)
    """The first operator with finite inputs and an output that is not finite, where a step was looked at so."""

    def change(self, step: int, what: str, site: str, to: object) -> None:
        """Notes a change; those beyond MOST_CHANGES are counted."""
        if len(self.changes) < MOST_CHANGES:
            self.changes.append(Change(step, what, site, str(to)))
        else:
            self.left_out += 1

    def to_json(self) -> dict[str, Any]:
        """Plain data, for JSON; of lists and dicts that go on to change, copies."""
        return {name: _plain(value) for name, value in vars(self).items()}

    @classmethod
    def from_json(cls, data: Any) -> Wiring:
        """What `to_json` gave; RunError where it is something else. Unknown names are left out: a newer version's.

        >>> Wiring.from_json(Wiring(optimizers=[Optimizer("SGD")]).to_json()).optimizers[0].type
        'SGD'
        >>> Wiring.from_json({"params": []})
        Traceback (most recent call last):
        hookline.errors.RunError: the wiring of the run can't be read: params: expected a dict, got list
        """
        try:
            return _made(cls, data, "wiring")
        except _WrongError as error:
            raise RunError(f"the wiring of the run can't be read: {error}") from None


def _plain(value: Any) -> Any:
    """As `dataclasses.asdict`, which takes ten times as long: a training waits for it."""
    if isinstance(value, list):
        return [_plain(one) for one in value] if value and not isinstance(value[0], (str, int)) else value[:]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if is_dataclass(value):
        return {name: _plain(one) for name, one in vars(value).items()}
    return value


class _WrongError(Exception):
    pass


_Made = TypeVar("_Made")


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _made(kind: type[_Made], data: Any, where: str) -> _Made:
    if not isinstance(data, dict):
        raise _WrongError(f"{where}: expected a dict, got {type(data).__name__}")
    hints = _hints(kind)  # type: ignore[arg-type]
    names = [one.name for one in fields(kind) if one.name in data]  # type: ignore[arg-type]
    try:
        return kind(**{name: _value(hints[name], data[name], name) for name in names})
    except TypeError as error:  # a field without a default is missing
        raise _WrongError(f"{where}: {error}") from None


def _value(hint: Any, data: Any, where: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return None if data is None else _value(get_args(hint)[0], data, where)
    if origin is list:
        _expect(list, data, where)
        return [_value(get_args(hint)[0], one, where) for one in data]
    if origin is dict:
        _expect(dict, data, where)
        return {str(name): _value(get_args(hint)[1], one, f"{where}.{name}") for name, one in data.items()}
    if hint is float:
        if isinstance(data, str):  # JSON has no NaN: a run's file has it as text
            try:
                return float(data)
            except ValueError:
                raise _WrongError(f"{where}: expected a number, got {data[:40]!r}") from None
        if isinstance(data, bool) or not isinstance(data, (int, float)):
            raise _WrongError(f"{where}: expected a number, got {type(data).__name__}")
        return float(data)
    if hint in (int, str, bool):
        _expect(hint, data, where)
        return data
    return _made(hint, data, where)


def _expect(kind: type, data: Any, where: str) -> None:
    if type(data) is not kind:
        raise _WrongError(f"{where}: expected a {kind.__name__}, got {type(data).__name__}")
