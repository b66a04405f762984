"""Diagnosing: what is wrong with the training that a run, a watch or a folder has the rows of."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from hookline.diagnosis.diagnose import findings_of, in_order, owners
from hookline.diagnosis.finding import Finding
from hookline.errors import InvalidArgument
from hookline.rows import HasRows
from hookline.runs.growing import OpenRun


def diagnose(source: HasRows | str | Path) -> list[Finding]:
    """What is wrong, the most severe first: an empty list where nothing is. Of a Run, a Watch, or a run's folder.

    >>> import hookline, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    >>> _ = model[0].bias.data.fill_(-100.0)
    >>> with hookline.watch(model) as w:
    ...     _ = model(torch.rand(3, 2))
    >>> finding = diagnose(w)[0]
    >>> finding.rule, finding.site, finding.why
    ('dead', '1', 'all of its outputs are zero')
    """
    if isinstance(source, (str, Path)):
        return in_order(found_in(Path(source)))
    if not isinstance(source, HasRows):
        raise InvalidArgument(f"diagnose: expected a Run, a Watch or a folder, got {type(source).__name__}.")
    found: list[Finding] = source.diagnose()
    return found


def health(run: HasRows | str | Path) -> dict[str, list[Finding]]:
    """What is wrong with each module of a run, the worst first: {name: findings}; an empty list is a healthy
    module."""
    path = Path(run) if isinstance(run, (str, Path)) else getattr(run, "path", None)
    if path is None:
        raise InvalidArgument("health: expected a run's folder, or a Run or Watch that has one.")
    return found_in(path)


def found_in(folder: Path) -> dict[str, list[Finding]]:
    """The findings of each module of the run in a folder; it is read piece by piece."""
    with closing(OpenRun(folder, folder.name)) as opened:
        opened.catch_up()
        names = [name for name, _ in opened.modules()]
        return findings_of(opened.series, opened.columns, owners(names, [one.site for one in opened.series]))
