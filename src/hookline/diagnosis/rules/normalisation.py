"""Batch norm that does not learn its statistics, and dropout: active in eval mode, or of everything."""

from __future__ import annotations

from collections.abc import Iterator

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Training

NORMS = ("BatchNorm", "SyncBatchNorm")
EVAL = ("eval", "False")
ENOUGH = 3
ALL = 0.95
"""The share that a dropout drops."""


@rule(
    "norm_not_updating",
    advice="Set momentum back to 0.1 (None averages over all), and leave the module in train mode; "
    "freeze its weight "
    "and bias as well if it is to stay as it is.",
    wiring=True,
)
def norm_not_updating(training: Training) -> Iterator[Finding]:
    """A batch norm runs while the model is trained, and its running statistics stand still.

    When: its momentum is 0, or it is in eval mode while the model is in train mode and its own weights are
    trained. Why it can be wrong: it was put to eval on purpose, and its weights are meant to be trained. A
    frozen one (no gradient wanted for its weights) is no finding.
    """
    wiring = training.wiring
    root = wiring.modules.get("")
    if not wiring.optimizers or root is None or len(training.steps) < ENOUGH:
        return
    for name, one in wiring.modules.items():
        own = [param for param in wiring.params.values() if param.module == name]
        if not one.type.startswith(NORMS) or not one.calls or (own and not any(param.trainable for param in own)):
            continue
        if one.settings.get("momentum") == 0:
            why = "its momentum is 0: the running mean and variance stay as at the start, and eval mode uses them"
            yield found(name, one.first_call or 0, why, severity="error" if own else "warning", confidence=0.95)
        elif not one.training and root.training and not _changes(training, name):
            why = "it is in eval mode while the model is trained: it does not learn the statistics of the data"
            yield found(name, one.first_call or 0, why, confidence=0.8)


def _changes(training: Training, name: str) -> bool:
    return any(one.what == "mode" and one.site == name for one in training.wiring.changes)


@rule(
    "dropout_in_eval",
    advice="Give F.dropout(..., training=self.training), or use nn.Dropout, which knows the mode.",
    wiring=True,
)
def dropout_in_eval(training: Training) -> Iterator[Finding]:
    """Values are dropped at random while the whole model is in eval mode.

    When: an operator that drops ran so. Why it can be wrong: uncertainty is sampled on purpose (MC dropout).
    """
    for one in training.wiring.dropout_in_eval:
        why = f"{one.op} drops values though the model is in eval mode: its outputs differ from call to call"
        yield found(one.module, _first_eval(training), why, line=one.line, confidence=0.9, op=one.op)


def _first_eval(training: Training) -> int:
    changes = training.wiring.changes
    return min((one.step for one in changes if one.what == "mode" and one.to in EVAL), default=0)


@rule(
    "drops_all",
    severity="error",
    advice="Give the share to drop, 0.1 say; it is not the share to keep.",
    wiring=True,
)
def drops_all(training: Training) -> Iterator[Finding]:
    """A dropout drops everything: nothing comes through it while the model is trained.

    When: its share is 0.95 or more, and it runs in train mode. Why it can be wrong: a branch is switched off so.
    """
    for name, one in training.wiring.modules.items():
        share = one.settings.get("p", 0.0)
        if "Dropout" in one.type and one.calls and one.training and share >= ALL:
            why = f"it drops {share:.0%} of the values that come to it"
            yield found(name, one.first_call or 0, why, confidence=0.95 if share == 1 else 0.8, share=share)
