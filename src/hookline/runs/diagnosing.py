"""Diagnosing: what is wrong with the training that a run, a watch or a folder has the rows of."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from hookline.diagnosis.diagnose import by_module, findings_in
from hookline.diagnosis.finding import Finding
from hookline.diagnosis.training import Training
from hookline.errors import InvalidArgument, RunError
from hookline.reporting import warn
from hookline.rows import HasRows
from hookline.runs.growing import OpenRun
from hookline.wiring import Wiring


@runtime_checkable
class Diagnosable(Protocol):
    """What gives all that rules may know of a training: a Run or a Watch."""

    def training(self) -> Training:
        """The training as rules see it; to be closed."""


Source = Diagnosable | Training | str | Path


def diagnose(
    source: Source,
    *,
    baseline: Source | None = None,
    rules: Iterable[str] | str | None = None,
    ignore: Iterable[str] | str = (),
) -> list[Finding]:
    """What is wrong, the worst first, causes with their consequences: an empty list where nothing is.

    Of a Run, a Watch, or a run's folder. `baseline` is a good run to compare with. `rules` are names of those that
    are asked, all where it is None; `ignore` leaves out what a rule says ("still"), or says of some sites
    ("still:head.*").

    >>> import hookline, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    >>> _ = model[0].bias.data.fill_(-100.0)
    >>> with hookline.watch(model) as w, torch.no_grad():
    ...     for _ in range(3):
    ...         _ = model(torch.rand(3, 2))
    >>> finding = diagnose(w)[0]
    >>> finding.rule, finding.site, finding.why
    ('dead_units', '1', 'all of its outputs are zero, for every batch')
    >>> diagnose(w, ignore=["dead_units:1"])
    []
    """
    with ExitStack() as opened:
        training = opened.enter_context(_training(source, "diagnose"))
        good = None if baseline is None else opened.enter_context(_training(baseline, "diagnose(baseline=...)"))
        return findings_in(training, baseline=good, rules=rules, ignore=ignore)


def health(run: Any) -> dict[str, list[Finding]]:
    """What is wrong with each module of a run, the worst first: {name: findings}; an empty list is a healthy
    module. What `diagnose` finds, by module; consequences are among them, notes are not."""
    path = Path(run) if isinstance(run, (str, Path)) else getattr(run, "path", None)
    if path is None:
        raise InvalidArgument("health: expected a run's folder, or a Run or Watch that has one.")
    with training_of(path) as training:
        return by_module(findings_in(training), training)


def training_of(folder: Path) -> Training:
    """The training whose run is in a folder, as rules see it; its numbers are read when they are asked for."""
    opened = OpenRun(folder, folder.name)
    try:
        opened.catch_up()
        return as_training(opened, opened.columns)
    except BaseException:
        opened.close()
        raise


def as_training(opened: OpenRun, columns: Any) -> Training:
    """A run that is open as a training; `columns` gives the numbers of a series."""
    meta = opened.meta
    return Training(list(opened.series), columns, opened.modules(), wiring_of(meta), meta, opened.close)


def wiring_of(meta: dict[str, Any]) -> Wiring | None:
    """The wiring that a run has noted; where it can't be read, a warning and None: the rows are there."""
    noted = meta.get("wiring")
    try:
        return None if noted is None else Wiring.from_json(noted)
    except RunError as error:
        warn(f"{error}; rules go by the rows alone", stacklevel=2)
        return None


def _training(source: Source, who: str) -> Training:
    if isinstance(source, (str, Path)):
        return training_of(Path(source))
    if isinstance(source, Training):
        return source
    if not isinstance(source, HasRows) or not isinstance(source, Diagnosable):
        raise InvalidArgument(f"{who}: expected a Run, a Watch or a folder, got {type(source).__name__}.")
    return source.training()
