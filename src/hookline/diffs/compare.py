"""diff: where two models, recordings or runs part.

Upstream: a model with its inputs, a Recording, a Run, or the file or folder of one. Downstream: a Diff.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hookline.diffs.aligning import align
from hookline.diffs.live import Live, Loss, as_live
from hookline.diffs.mapping import Map, as_map
from hookline.diffs.models import Study
from hookline.diffs.pairs import Pair, compare
from hookline.diffs.reading import Side
from hookline.diffs.result import Diff
from hookline.diffs.runs import diff_runs
from hookline.diffs.stating import first_place, with_estimates, with_sources, with_unmatched
from hookline.diffs.tolerance import Given, Tolerance, checked_tolerance
from hookline.errors import InvalidArgument
from hookline.hooks.placing import callers_line
from hookline.recording.loading import load_recording
from hookline.recording.recording import Recording
from hookline.runs.run import Run, open_run

MISSING = object()


def diff(
    a: Any,
    b: Any,
    inputs: Any = MISSING,
    *,
    loss: Loss | None = None,
    map: Any = None,
    where: Any = "**",
    rtol: Given = None,
    atol: Given = None,
    limit: int | str | None = None,
) -> Diff:
    """Where two computations part: a Diff, which is true where they differ.

    Each side is a model with its inputs, a pair (model, inputs); a Recording or its file; or a Run or its folder.
    Two models may share `inputs`. These are a tensor, a tuple of positional arguments, or a dict of keywords.
    Models are run several times, each time from the same state and random numbers, and stay what they were;
    `loss`, a function of the output, has their backward compared as well. `map` says which site of A is which of
    B where names differ: a dict, a function, or a file. How far two places may be apart is measured, unless `rtol`
    (of the tensor's largest number) or `atol` says so, for all or by a dict of {glob: number}. `where` chooses
    sites. Beyond `limit` bytes a model's values are kept in files.

    >>> import torch
    >>> a = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4, eps=1e-5), torch.nn.Linear(4, 2))
    >>> b = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4, eps=1e-3), torch.nn.Linear(4, 2))
    >>> _ = b.load_state_dict(a.state_dict())
    >>> d = diff(a, b, torch.randn(3, 4))
    >>> bool(d), d.first.site, d.first.born
    (True, '1', True)
    >>> print(d.causes[0].sentence)
    Eps is 1e-05 in A and 0.001 in B.
    """
    chosen = as_map(map)
    rtol, atol = checked_tolerance("rtol", rtol), checked_tolerance("atol", atol)
    if inputs is not MISSING:
        a, b = (a, inputs), (b, inputs)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return _diff_models(_pair(a, "first"), _pair(b, "second"), loss, where, limit, chosen, rtol, atol)
    one, two = _opened(a, "first"), _opened(b, "second")
    if isinstance(one, Recording) and isinstance(two, Recording):
        return diff_recordings(one, two, _name(a), _name(b), chosen, rtol, atol)
    if isinstance(one, Run) and isinstance(two, Run):
        every = None if isinstance(where, str) and where == "**" else where
        return diff_runs(
            one if one is a else one.path,
            two if two is b else two.path,
            map=chosen,
            where=every,
            rtol=rtol,
            atol=atol,
        )
    raise InvalidArgument(
        f"diff: expected two of a kind, got {_kind(one)} and {_kind(two)}. Compare two models with inputs, two "
        "recordings, or two runs."
    )


def _diff_models(
    a: tuple[Any, Any],
    b: tuple[Any, Any],
    loss: Loss | None,
    where: Any,
    limit: int | str | None,
    map: Map | None,
    rtol: Given,
    atol: Given,
) -> Diff:
    more: dict[str, Any] = {"loss": loss, "where": where, "limit": limit}
    if limit is None:
        return Study(as_live(*a, more), as_live(*b, more), map, rtol, atol, callers_line()).diff()
    more["spill"] = folder = tempfile.mkdtemp(prefix="hookline-diff-")
    try:
        result = Study(as_live(*a, more), as_live(*b, more), map, rtol, atol, callers_line()).diff()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(result, shutil.rmtree, folder, ignore_errors=True)  # its values are read from there
    return result


def diff_recordings(
    one: Recording,
    two: Recording,
    a: str,
    b: str,
    map: Map | None = None,
    rtol: Given = None,
    atol: Given = None,
    tell: Callable[[float], None] = lambda share: None,
) -> Diff:
    """Where two recordings part; `a` and `b` are what they are called. `tell` is told the share that is done, and
    what it raises ends the work."""
    first, second = Side(one), Side(two)
    pair = Pair(first, second, align(first.entries(), second.entries(), map), map)
    if not pair.alignment.pairs:
        raise InvalidArgument(
            f"diff: the two recordings have no site in common: A has {first.sites[:5]}, B has {second.sites[:5]}. "
            "Say by map={...} which site of A is which of B."
        )
    result = Diff(a, b, values=pair.arrays)
    result.notes.append(
        "recordings are compared as they are: nothing was run, so the tolerance is that of the dtype"
    )
    result.sites = with_sources(with_estimates(compare(pair, Tolerance(rtol=rtol, atol=atol), tell=tell)), pair)
    with_unmatched(result, pair)
    result.first = first_place(result.sites, pair) or result.first
    return result


def _pair(given: tuple[Any, ...], which: str) -> tuple[Any, Any]:
    if len(given) != 2:
        raise InvalidArgument(
            f"diff: the {which} side is a tuple of {len(given)}: expected (model, inputs); several inputs are a "
            "tuple themselves, as in (model, (x, mask)), and keyword arguments a dict."
        )
    return given[0], given[1]


def _opened(side: Any, which: str) -> Any:
    """A Recording or a Run, of one or of its path."""
    if isinstance(side, (Recording, Run)):
        return side
    if isinstance(getattr(side, "recording", None), Recording):
        return side.recording
    if isinstance(side, (str, Path)):
        path = Path(side)
        if path.is_file():
            return load_recording(path)
        with open_run(path) as run:  # whether it is one; who compares opens it for itself
            return run
    if hasattr(side, "named_modules") or callable(side):
        raise InvalidArgument(
            f"diff: the {which} side is a {type(side).__name__} without inputs: expected (model, inputs), or give "
            "both the same as diff(a, b, inputs)."
        )
    raise InvalidArgument(
        f"diff: the {which} side is a {type(side).__name__}: expected (model, inputs), a Recording, a Run, or the "
        "path of one."
    )


def _kind(side: Any) -> str:
    return {Recording: "a recording", Run: "a run", Live: "a model"}.get(type(side), f"a {type(side).__name__}")


def _name(side: Any) -> str:
    return str(side) if isinstance(side, (str, Path)) else repr(side)
