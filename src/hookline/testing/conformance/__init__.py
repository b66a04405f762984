"""Conformance: the suite that every backend passes, written against hookline's verbs.

The author of a backend writes an Adapter, a small class that builds and runs a dozen models of the framework,
and runs every check with it; each checks a "yes" of the backend's declaration, or that a "no" raises:

    from hookline.testing import conformance

    @pytest.mark.parametrize("check", conformance.CHECKS, ids=str)
    def test_conforms(check):
        check(MyAdapter())
"""

from hookline.testing.conformance import (
    backwards,
    blocks,
    descriptions,
    forwards,
    interrupts,
    operators,
    places,
    recordings,
    reference,
)
from hookline.testing.conformance.adapter import Adapter, ramp
from hookline.testing.conformance.checking import CHECKS, Check

__all__ = ["CHECKS", "Adapter", "Check", "ramp", "reference"]

_FILES = (
    forwards,
    backwards,
    blocks,
    interrupts,
    places,
    recordings,
    operators,
    descriptions,
)  # imported for the checks that they add
