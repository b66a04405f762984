"""Gradients compared place by place, and what is said where they differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tests.contract.law.trees import places, said


def difference(got: Any, wanted: Any, *, strict: bool = False, rtol: float = 1e-9) -> str:
    """Where two structures of gradients differ; empty if nowhere.

    None and zeros are alike unless `strict`: then a gradient has to be there where there is one.
    """
    found, expected = dict(places(got)), dict(places(wanted))
    if found.keys() != expected.keys():
        return f"another structure: places {_all(found)}, wanted {_all(expected)}"
    for path, grad in expected.items():
        if reason := _unlike(found[path], grad, strict, rtol):
            return f"at {said(path) or 'its only place'}: {reason}"
    return ""


def _unlike(got: Any, wanted: Any, strict: bool, rtol: float) -> str:
    if got is None or wanted is None:
        other = wanted if got is None else got
        if other is None or (not strict and not other.any()) or (wanted is None and not other.any()):
            return ""
        return f"{_short(got)}, wanted {_short(wanted)}"
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{tuple(got.shape)} {got.dtype}, wanted {tuple(wanted.shape)} {wanted.dtype}"
    scale = float(wanted.abs().max()) if wanted.numel() else 0.0
    if not torch.allclose(got, wanted, rtol=rtol, atol=rtol * max(scale, 1e-3)):
        return f"{_short(got)}, wanted {_short(wanted)}"
    return ""


def zeros_or_none(grads: Any) -> bool:
    """Whether a structure of gradients says nothing."""
    return not any(grad is not None and bool(grad.any()) for _, grad in places(grads))


def unmatched(got: Sequence[Any], wanted: Sequence[Any], differ: Callable[[Any, Any], str]) -> tuple[list, list]:
    """What is left of both when each of `got` is taken together with one of `wanted` that it equals."""
    left, over = list(wanted), []
    for one in got:
        for number, other in enumerate(left):
            if not differ(one, other):
                del left[number]
                break
        else:
            over.append(one)
    return over, left


def shown(grads: Any) -> str:
    """A structure of gradients in a line."""
    return ", ".join(f"{said(path) or 'whole'}: {_short(grad)}" for path, grad in places(grads)) or "nothing"


def _short(grad: Any) -> str:
    return "None" if grad is None else str([round(number, 6) for number in grad.flatten().tolist()])


def _all(found: dict[Any, Any]) -> str:
    return str([said(path) for path in found])
