"""Making: the probes run one after the other on a torch model that is put back at the end."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from hookline.backends.protocol import Backend
from hookline.backends.torch.compat import uncompiled
from hookline.backends.torch.fakes.standins import has_lazy, is_on_meta
from hookline.backends.torch.guarding import guard
from hookline.backends.undoing import Undoing, tidied
from hookline.diagnosis.finding import Finding
from hookline.errors import ForwardError, InvalidArgument
from hookline.hooks.session import Session
from hookline.probing import probes
from hookline.probing.inputs import Inputs, candidates
from hookline.probing.probed import Probed
from hookline.probing.registry import PROBES, CantProbe
from hookline.probing.subject import Options, Subject
from hookline.probing.tracing import Trace

for _file in pkgutil.iter_modules(probes.__path__):
    importlib.import_module(f"{probes.__name__}.{_file.name}")


@tidied
def make(
    undoing: Undoing, /, backend: Backend, model: Any, inputs: Any, names: Sequence[str], **options: Any
) -> Probed:
    """The findings of the probes of these names."""
    model = uncompiled(model)
    if has_lazy(model):
        raise InvalidArgument(
            "the model has lazy parameters: call it once, so that it has its shapes, then probe it."
        )
    if is_on_meta(model):
        raise InvalidArgument("the model is on the meta device: it has no numbers that could be looked at.")
    Session().open_alone(undoing)  # a recording or watch that is open on this model has nothing to do with it
    guard(undoing, model, weights=True)
    subject = _ready(backend, model, inputs, Options(**options))
    findings: list[Finding] = []
    made, skipped = [], {}
    for name in names:
        try:
            findings += PROBES[name](subject)
        except CantProbe as error:
            skipped[name] = str(error)
        except Exception as error:  # of the model, with an input that it is not made for
            skipped[name] = f"the model raised {type(error).__name__}: {_short(error)}"
        else:
            made.append(name)
    return Probed(_joined(findings), made, skipped)


def _joined(findings: list[Finding]) -> list[Finding]:
    """Where no output depends on what comes in, gradients that are none or zero follow from that."""
    cause = next((one for one in findings if one.rule == "constant_output"), None)
    lost = [one for one in findings if one.rule == "no_gradient"]
    after = [one for one in lost if one.evidence["cause"] in ("in vain", "zero")]
    if cause is None or not after:
        return findings
    rest = [one for one in findings if one is not cause and one not in after]
    return [replace(cause, consequences=(*cause.consequences, *after)), *rest]


def _ready(backend: Backend, model: nn.Module, inputs: Any, options: Options) -> Subject:
    """The model with the first reading of `inputs` that it can be called with; ForwardError if there is none."""
    failed: ForwardError | None = None
    cause: Exception | None = None
    for read in candidates(backend, model, inputs):
        subject = Subject(model, read, options)
        trace = Trace()
        try:
            subject.used(lambda output: None, trace=trace)
        except Exception as error:
            if failed is None:
                failed, cause = _failure(model, trace, read, error), error
        else:
            return subject
    if failed is None:
        raise InvalidArgument(f"inputs={inputs!r} are none: expected a tensor, a tuple, a dict or shapes.")
    raise failed from cause


def _failure(model: nn.Module, trace: Trace, inputs: Inputs, error: Exception) -> ForwardError:
    site = trace.under_way[-1].name if trace.under_way else ""
    kind = type(dict(model.named_modules())[site]).__name__
    came = trace.under_way[-1].inputs if trace.under_way else inputs.tensors
    return ForwardError(site, kind, ", ".join("x".join(map(str, one.shape)) for one in came), error)


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:150] if lines else "without a message"
