"""Rows of an embedding that are never trained, and that are words like others."""

from __future__ import annotations

from collections.abc import Iterator

from hookline.diagnosis.finding import Finding
from hookline.diagnosis.registry import found, rule
from hookline.diagnosis.training import Training


@rule(
    "input_padding",
    advice="Give padding_idx the index that rows are filled up with; the row of padding_idx gets no gradient.",
    wiring=True,
)
def input_padding(training: Training) -> Iterator[Finding]:
    """The padding index of an embedding is not what pads: a word that matters keeps the vector it was made with.

    When: at the step that was looked at, the index stands between other words in most places, and rows end with
    another one that stands nowhere else. Why it can be wrong: a word is left untrained on purpose.
    """
    for look in training.wiring.looks:
        for place in look.padding:
            why = f"its padding_idx is not what pads: {place.what}"
            yield found(place.module, look.step, why, line=place.line, confidence=0.8)
