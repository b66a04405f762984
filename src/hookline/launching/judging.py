"""Judging: the findings of the models that were followed, once they are left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hookline.diagnosis.diagnose import findings_in
from hookline.diagnosis.finding import Finding
from hookline.diagnosis.verdict import verdict
from hookline.launching.attaching import is_empty, remove_run
from hookline.launching.following import Following
from hookline.launching.models import Model
from hookline.launching.telling import Told
from hookline.runs.diagnosing import training_of


def judged(following: Following, crashes: Mapping[Model | None, Finding]) -> list[Told]:
    """What was found in each model; a run without a row is removed."""
    found = []
    for model in following.models:
        extra = [crashes[model]] if model in crashes else []
        try:
            found.append(_judged(model, extra))
        except Exception as error:  # what the script did is done
            following.problems.append(f"{model.name} could not be diagnosed: {error}")
    return found


def _judged(model: Model, extra: Sequence[Finding]) -> Told:
    path = model.path
    if path is not None and is_empty(path):
        remove_run(path)
        path = None
        if not extra:
            return Told(model.name, model.kind, None, None)
    with model.watch.training() if path is None else training_of(path) as training:
        if not extra and not len(training.steps):
            return Told(model.name, model.kind, None, None)
        return Told(model.name, model.kind, path, verdict([*extra, *findings_in(training)], training))
