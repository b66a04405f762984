"""Declaring: what a backend says of itself, readable without its framework.

A Framework has an answer for each feature: YES, or No with the reason and what to do instead. All that
tells a user that something is not there comes from here: `Framework.need`, the docs' table, `hookline doctor`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hookline.errors import Unsupported

FEATURES = {
    "forward_pre": "`register_forward_pre_hook`, which may replace arguments",
    "forward": "`register_forward_hook`, which may replace the output",
    "always_call": "`register_forward_hook(always_call=True)`",
    "kwargs": "keyword arguments in hooks and recordings",
    "backward_pre": "`register_backward_pre_hook`, which may replace gradients",
    "backward": "`register_backward_hook`, which may replace gradients",
    "original": "`register_backward_hook(original=True)`",
    "accumulated": "`register_post_accumulate_grad_hook`",
    "hook_backward": "`HookBackward`",
    "record": "`record`: outputs, inputs, several calls, shared modules",
    "grads": "`record(grads=True)`: gradients of inputs and outputs",
    "param_grads": "`record(grads=True)`: gradients of parameters",
    "stop": "`record(stop=True)`",
    "save": "`Recording.save`, `load_recording`, `spill=`",
    "edit": "`edit` of outputs, inputs and keyword arguments",
    "edit_grads": "`edit` of gradients",
    "edit_weights": "`edit` of parameters",
    "skip": "`edit` with `skip`",
    "watch": "`watch`: statistics of activations",
    "watch_grads": "`watch(grads=True)`: statistics of their gradients",
    "watch_params": "`watch(params=True)`: parameters, their gradients and updates, step by step",
    "watch_moments": "`watch(moments=True)`: what an optimizer keeps for each parameter",
    "ops": "`register_op_hook`, `record(ops=True)`, `watch(ops=True)`",
    "summary": "`summary`: names, types, shapes, parameters",
    "costs": "`summary`: multiply-accumulates and memory",
    "trace": "`trace`",
    "source": "`source`",
    "state_hooks": "`register_state_dict_pre_hook` and its kin",
    "compiled": "hooks on compiled code",
    "export": "`exported.mark`, `exported.with_statistics`: values of programs that are exported",
}
"""What a user may ask for, and how the docs call it."""


class No(NamedTuple):
    """A feature that is not there."""

    why: str
    instead: str


YES = None
"""A feature that is there."""


@dataclass(frozen=True)
class Framework:
    """One framework's declaration.

    `roots` are the top-level packages that its models and tensors come from, `home` the module whose
    `BACKEND` enters it, `package` what pip installs, `tested` the versions (from, below) that the
    conformance suite runs on, `compiles` what its compiled code is called, `since` the versions from
    which on a feature is there, where that is not the first.

    >>> tiny = Framework("tiny", "tiny", ("tiny",), "x", "a tiny.Net", ("1", "2"), dict.fromkeys(FEATURES, YES))
    >>> tiny.can("record"), tiny.covers("1.9.1"), tiny.covers("2.0")
    (True, True, False)
    """

    name: str
    package: str
    roots: tuple[str, ...]
    home: str
    models: str
    tested: tuple[str, str]
    answers: Mapping[str, No | None]
    compiles: str = ""
    since: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if set(self.answers) != set(FEATURES):
            wrong = sorted(set(self.answers) ^ set(FEATURES))
            raise ValueError(f"{self.name} must answer for every feature and for no other: {wrong}")

    def can(self, feature: str) -> bool:
        """Whether the feature is there."""
        return self.answers[feature] is YES

    def need(self, feature: str, asked: str = "") -> None:
        """Unsupported where the feature is not there; `asked` says what was wanted in other words."""
        if self.answers[feature] is not YES:
            raise self.unsupported(feature, asked)

    def unsupported(self, feature: str, asked: str = "") -> Unsupported:
        """The error for a feature that is not there."""
        answer = self.answers[feature]
        assert answer is not None, f"{self.name} declares {feature!r} as there"
        what = asked or FEATURES[feature].replace("`", "")
        return Unsupported(backend=self.name, feature=what, why=answer.why, instead=answer.instead)

    def is_too_old(self, feature: str, version: str) -> bool:
        """Whether the feature is there in later versions of the framework only."""
        return _numbers(version) < _numbers(self.since.get(feature, "0"))

    def need_version(self, feature: str, version: str) -> None:
        """Unsupported where this version of the framework is too old for the feature."""
        if self.is_too_old(feature, version):
            first = f"{self.package} {self.since[feature]}"
            raise Unsupported(
                backend=self.name,
                feature=FEATURES[feature].replace("`", ""),
                why=f"it needs {first} or newer, and this is {version}",
                instead=f"install {first}, or do without",
            )

    def covers(self, version: str) -> bool:
        """Whether the suite runs on this version of the framework."""
        low, high = self.tested
        return _numbers(low) <= _numbers(version) < _numbers(high)


def _numbers(version: str) -> list[int]:
    parts = []
    for part in version.split("+")[0].split("."):
        digits = ""
        for letter in part:
            if not letter.isdigit():
                break
            digits += letter
        if not digits:
            break
        parts.append(int(digits))
    return parts


def answers(**noes: No) -> dict[str, No | None]:
    """Every feature with YES, but for those given."""
    unknown = sorted(set(noes) - set(FEATURES))
    if unknown:
        raise ValueError(f"no feature is called {unknown[0]!r}; there are {', '.join(FEATURES)}")
    return {feature: noes.get(feature, YES) for feature in FEATURES}
