"""How networks are run: how many, by whom drawn, and what of a run is compared."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

from hypothesis import HealthCheck, Phase, assume, given, note, seed, settings
from hypothesis.strategies import SearchStrategy

import hookline
from hookline.backends.torch.grads.ports import AGAIN, ELSEWHERE, WRITTEN
from tests.contract.law.asking import Run
from tests.contract.law.networks import Program, Write

LONG = int(os.environ.get("HOOKLINE_LAW", "0"))
"""How many networks each law is tried on in a long run; 0 for the usual number, always the same ones."""
SEED = os.environ.get("HOOKLINE_LAW_SEED")

Law = Callable[..., None]


def law(
    programs: SearchStrategy[Program], *, examples: int, share: int = 1, **others: SearchStrategy[Any]
) -> Callable[[Law], Law]:
    """Has a test run over networks, and the smallest one that breaks it printed as a program.

    In a long run it gets 1 / `share` of the networks that are asked for.
    """

    def told(test: Law) -> Law:
        @wraps(test)
        def tried(program: Program, **more: Any) -> None:
            note(program.source)
            test(program=program, **more)

        return _settled(given(program=programs, **others)(tried), examples, share)

    return told


def judge(wrong: str, program: Program) -> None:
    """Fails if anything is wrong, but for what the audit says: where a tensor came in or left at several places
    and is written to at one of them, its gradient may be told at another."""
    if not wrong:
        return
    run = Run(program)
    with hookline.record(run.model, inputs=True, grads=True) as rec:
        run.both()
    writes = any(isinstance(step, Write) for module in program.modules for step in module.body)
    told = (AGAIN, ELSEWHERE, WRITTEN)
    assume(not (writes and any(one in (entry.why or "") for entry in rec.audit() for one in told)))
    raise AssertionError(wrong)


def _settled(test: Any, examples: int, share: int) -> Law:
    varied = LONG > 0 or SEED is not None
    configured = settings(
        max_examples=max(LONG // share, 1) if LONG else examples,
        deadline=None,  # the first network loads the compiler, others take a millisecond
        derandomize=not varied,
        database=None,
        # Drawing a network means to run it, which takes longer than hypothesis expects; and networks
        # whose loss depends on nothing are left out.
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        print_blob=False,
    )(test)
    return seed(int(SEED))(configured) if SEED is not None else configured
