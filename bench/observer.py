"""Row observer: what a hook that only looks costs on each call of a module that does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

import hookline
from bench.harness import Case, Goal, Table

CALLS = 5000
MODULE = nn.Identity()
INPUT = torch.ones(1)


def tables() -> Iterator[Table]:
    yield Table(
        "Observer hook, per call of nn.Identity",
        [
            Case("no hook", _calls),
            Case("torch register_forward_hook", _calls, _raw),
            Case("hookline.register_forward_hook", _calls, _ours, _like("torch register_forward_hook")),
            Case("torch register_forward_pre_hook", _calls, _raw_before),
            Case(
                "hookline.register_forward_pre_hook",
                _calls,
                _ours_before,
                _like("torch register_forward_pre_hook"),
            ),
            Case("torch hook, with_kwargs", _calls, _raw_kwargs),
            Case("hookline hook, with_kwargs", _calls, _ours_kwargs, _like("torch hook, with_kwargs")),
        ],
        unit="ns/call",
        scale=1e9,
        per=CALLS,
        rounds=100,  # the goal is 1.05x, and one round varies by 20 %
        note="The goal is on what the hook adds to the call, relative to what torch's own hook adds.",
    )


def _like(other: str) -> Goal:
    return Goal(1.05, "extra", other, text="<= 1.05x torch's extra")


def _calls() -> None:
    module, x = MODULE, INPUT
    for _ in range(CALLS):
        module(x)


def _look(module: Any, args: Any, output: Any) -> None:
    return None


def _look_before(module: Any, args: Any) -> None:
    return None


def _look_kwargs(module: Any, args: Any, kwargs: Any, output: Any) -> None:
    return None


@contextmanager
def _raw() -> Iterator[None]:
    with MODULE.register_forward_hook(_look):
        yield


@contextmanager
def _raw_before() -> Iterator[None]:
    with MODULE.register_forward_pre_hook(_look_before):
        yield


@contextmanager
def _raw_kwargs() -> Iterator[None]:
    with MODULE.register_forward_hook(_look_kwargs, with_kwargs=True):
        yield


def _ours() -> hookline.Handle:
    return hookline.register_forward_hook(MODULE, _look)


def _ours_before() -> hookline.Handle:
    return hookline.register_forward_pre_hook(MODULE, _look_before)


def _ours_kwargs() -> hookline.Handle:
    return hookline.register_forward_hook(MODULE, _look_kwargs, with_kwargs=True)
