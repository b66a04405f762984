"""Numbers and shapes as people read them."""

from __future__ import annotations

from typing import Any

from hookline.backends.facts import TensorFact
from hookline.backends.nouns import Tree


def scaled(number: int, units: str = " kMGTP", step: int = 1000) -> str:
    """Four digits and a unit.

    >>> [scaled(n) for n in (0, 999, 4_089_184_256, 14_630_806_093_824)]
    ['0', '999', '4.089 G', '14.63 T']
    """
    if number < step:
        return str(number)
    value, unit = float(number), 0
    while value >= step * 0.99995 and unit < len(units) - 1:
        value, unit = value / step, unit + 1
    return f"{value:.4g} {units[unit]}"


def in_units(number: int, unit: str) -> str:
    """A number of something, decimal.

    >>> in_units(4_089_184_256, "MACs"), in_units(24, "MACs")
    ('4.089 GMACs', '24 MACs')
    """
    text = scaled(number)
    return f"{text}{unit}" if text[-1].isalpha() else f"{text} {unit}"


def in_bytes(number: int) -> str:
    """
    >>> in_bytes(0), in_bytes(102_228_128)
    ('0 B', '102.2 MB')
    """
    return in_units(number, "B")


def percent(part: int, whole: int) -> str:
    """
    >>> percent(1, 3), percent(1, 100_000), percent(0, 5)
    ('33.3 %', '<0.1 %', '')
    """
    if not part or not whole:
        return ""
    share = 100 * part / whole
    return f"{share:.1f} %" if share >= 0.05 else "<0.1 %"


def shapes(tree: Tree) -> str:
    """The shapes in a structure.

    >>> fact = TensorFact((1, 10), "float32", "cpu", 40)
    >>> shapes(fact), shapes({"logits": fact, "cache": None}), shapes((fact, [fact, 3]))
    ('1x10', '{logits: 1x10, cache: None}', '(1x10, [1x10, 3])')
    """
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key}: {shapes(part)}" for key, part in tree.items()) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(map(shapes, tree)) + "]"
    if isinstance(tree, tuple):
        return "(" + ", ".join(map(shapes, tree)) + ")"
    return str(tree)


def arguments(args: Tree, kwargs: Any) -> str:
    """The shapes of a call's arguments.

    >>> fact = TensorFact((1, 10), "float32", "cpu", 40)
    >>> arguments((fact,), {}), arguments((fact, fact), {"mask": None})
    ('1x10', '1x10, 1x10, mask=None')
    """
    return ", ".join(
        [*map(shapes, args or ()), *(f"{name}={shapes(value)}" for name, value in (kwargs or {}).items())]
    )


def plain(tree: Tree) -> Any:
    """A structure of facts as JSON has it: a shape is a list of numbers.

    >>> plain({"a": (TensorFact((1, 2), "float32", "cpu", 8), None)})
    {'a': [[1, 2], None]}
    """
    if isinstance(tree, TensorFact):
        return list(tree.shape)
    if isinstance(tree, dict):
        return {key: plain(part) for key, part in tree.items()}
    return [plain(part) for part in tree] if isinstance(tree, (list, tuple)) else tree
