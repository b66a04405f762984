"""Scalars: the numbers of a training in one file of its run, over the steps."""

from __future__ import annotations

import numpy as np

from hookline.diagnosis.training import Scalar
from hookline.rows import SCALAR
from hookline.runfiles.reader import Reader


def scalar_series(reader: Reader) -> set[int]:
    """The numbers of the series that are scalars."""
    return {number for number, one in reader.series().items() if one["kind"] == SCALAR}


def scalars_of(reader: Reader, numbers: set[int]) -> dict[str, Scalar]:
    """The steps and values of these series, by their names; of a step that was written twice, what came last."""
    found: dict[int, dict[int, float]] = {number: {} for number in sorted(numbers)}
    for frame, places in reader.parts(numbers):
        columns = (frame.columns[name][places].tolist() for name in ("series", "step", "mean"))
        for number, step, value in zip(*columns, strict=True):
            found[number][step] = value
    series = reader.series()
    return {series[number]["site"]: _scalar(values) for number, values in found.items() if values}


def _scalar(values: dict[int, float]) -> Scalar:
    steps = sorted(values)
    return Scalar(np.asarray(steps, np.int64), np.asarray([values[step] for step in steps], np.float64))
