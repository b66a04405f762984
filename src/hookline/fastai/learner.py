"""Learner: what has to be known of fastai's own, where one is in use."""

from __future__ import annotations

from hookline.optional import need


def signals() -> tuple[type[BaseException], ...]:
    """The exceptions by which fastai's callbacks steer a training; they mean no error."""
    core = need("fastai.callback.core", "fastai")
    return tuple(
        getattr(core, f"Cancel{what}Exception")
        for what in ("Batch", "Backward", "Epoch", "Fit", "Step", "Train", "Valid")
    )
