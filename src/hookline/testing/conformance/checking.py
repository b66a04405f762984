"""Checking: what a check of the suite is, and what it compares with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hookline.backends.capabilities import capabilities
from hookline.backends.nouns import Tree
from hookline.errors import Unsupported
from hookline.testing.conformance.adapter import Adapter, Array
from hookline.trees import leaves

Body = Callable[[Adapter], None]


class Check:
    """One check; it runs where the framework has all that it `needs`, and where not, it must raise Unsupported.

    The error has to carry the reason that the framework's declaration gives: a "no" is checked as a "yes" is.
    """

    def __init__(self, body: Body, needs: tuple[str, ...]) -> None:
        self.body, self.needs = body, needs
        self.name = body.__name__

    def __call__(self, adapter: Adapter) -> None:
        framework = capabilities()[adapter.name]
        lacking = [feature for feature in self.needs if not framework.can(feature)]
        if not lacking:
            self.body(adapter)
            return
        error = raised(Unsupported, lambda: self.body(adapter), f"{framework.name} declares no {lacking}: ")
        reasons = [framework.answers[feature] for feature in lacking]
        assert (error.why, error.instead) in reasons, f"another reason than the declared one: {error}"

    def __repr__(self) -> str:
        return self.name


CHECKS: list[Check] = []
"""Every check, in the order of the suite's files."""


def check(*needs: str) -> Callable[[Body], Body]:
    """Adds a function of an Adapter to the suite; `needs` are the features that it uses."""

    def add(body: Body) -> Body:
        CHECKS.append(Check(body, needs))
        return body

    return add


def equal(found: Any, wanted: Any, adapter: Adapter) -> None:
    """AssertionError unless the tensor `found` has exactly the values `wanted`."""
    np.testing.assert_array_equal(_array(found, adapter), wanted)


def close(found: Any, wanted: Any, adapter: Adapter) -> None:
    """AssertionError unless the tensor `found` has the values `wanted` up to what float32 rounds."""
    np.testing.assert_allclose(_array(found, adapter), wanted, rtol=1e-5, atol=1e-6)


def _array(found: Any, adapter: Adapter) -> Array:
    return found if isinstance(found, (np.ndarray, np.generic)) else adapter.array(found)  # type: ignore[return-value]


def count(tree: Tree, kind: type) -> int:
    """How many tensors a structure has."""
    return len(list(leaves(tree, kind)))


def raised(kind: type[Exception], work: Callable[[], Any], before: str = "") -> Any:
    """The exception of that kind that `work` raises, itself or as the cause of another."""
    try:
        work()
    except Exception as error:
        found: BaseException | None = error
        while found is not None and not isinstance(found, kind):
            found = found.__cause__ or found.__context__
        if found is None:
            raise AssertionError(f"{before}expected {kind.__name__}, got {type(error).__name__}") from error
        return found
    raise AssertionError(f"{before}{kind.__name__} was wanted, nothing was raised")
