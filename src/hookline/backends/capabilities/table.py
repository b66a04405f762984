"""Table: the declarations of all frameworks as text for the docs."""

from __future__ import annotations

from collections.abc import Iterable

from hookline.backends.capabilities.declaring import FEATURES, Framework


def markdown(frameworks: Iterable[Framework]) -> str:
    """A table of features and frameworks, and below it the reason for every "no"."""
    shown = [framework for framework in frameworks if framework.models]
    lines = [
        "| | " + " | ".join(framework.name for framework in shown) + " |",
        "|---|" + "---|" * len(shown),
        "| versions tested | " + " | ".join(_versions(framework) for framework in shown) + " |",
        "| a model is | " + " | ".join(framework.models for framework in shown) + " |",
    ]
    for feature, what in FEATURES.items():
        cells = [_answer(framework, feature) for framework in shown]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    for framework in shown:
        noes = {feature: answer for feature, answer in framework.answers.items() if answer is not None}
        if noes:
            lines += ["", f"Where {framework.name} has no:", ""]
            lines += [f"- {FEATURES[feature]}: {no.why}. Instead: {no.instead}." for feature, no in noes.items()]
    return "\n".join(lines) + "\n"


def _answer(framework: Framework, feature: str) -> str:
    if feature in framework.since:
        return f"from {framework.package} {framework.since[feature]}"
    return "yes" if framework.can(feature) else "no"


def _versions(framework: Framework) -> str:
    return f"{framework.package} from {framework.tested[0]}, below {framework.tested[1]}"
