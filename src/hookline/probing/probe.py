"""probe: looks for properties that a model lacks, by running it a few times more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hookline.backends import resolve
from hookline.backends.nouns import Model
from hookline.errors import InvalidArgument, Unsupported
from hookline.probing.probed import Probed
from hookline.probing.registry import chosen


def probe(
    model: Model,
    inputs: Any,
    *,
    loss: Callable[[Any], Any] | None = None,
    only: str | Iterable[str] | None = None,
    causal: bool | None = None,
    batch_dim: int | None = None,
    fresh: Callable[[], Model] | None = None,
) -> Probed:
    """The findings of all probes, or of those in `only`, as a list that also says what could not be looked at.

    `inputs` are as the model is called: a tensor, a tuple of arguments, a dict of keywords, a batch whose last
    entries are targets, or shapes. `loss(output)` gives the number that is trained on; without it every output
    counts. `causal` says whether outputs must not depend on later inputs; else it is judged by the model.
    `batch_dim` is where samples are, if not in the first dimension. `fresh()` makes the same model anew, as a
    program does that loads it. The model runs eagerly, in eval mode for the most part, and is left as it was.

    >>> import torch
    >>> class Mixer(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.softmax(x, dim=0)
    >>> found = probe(Mixer(), torch.randn(4, 3, 8, 8))
    >>> [(one.rule, one.severity) for one in found]
    [('batch_mixing', 'error')]
    """
    names = chosen(only)
    backend = resolve(model)
    if backend.name != "torch":
        raise Unsupported(
            backend=backend.name,
            feature="probe",
            why="the probes are written for torch",
            instead="compare the outputs of two inputs yourself, with hookline.record",
        )
    if causal not in (None, True, False):
        raise InvalidArgument(f"causal={causal!r}: expected True, False, or None to have it judged by the model.")
    if batch_dim is not None and (type(batch_dim) is not int or batch_dim < 0):
        raise InvalidArgument(f"batch_dim={batch_dim!r} is no dimension: expected 0, 1, ...")
    for name, function in {"loss": loss, "fresh": fresh}.items():
        if function is not None and not callable(function):
            raise InvalidArgument(f"{name}={function!r} can't be called: expected a function.")
    from hookline.probing.making import make

    return make(backend, model, inputs, names, loss=loss, causal=causal, batch_dim=batch_dim, fresh=fresh)
