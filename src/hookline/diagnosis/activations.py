"""Activations that are functions: what is known of them by the outputs of the layers in front of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hookline.diagnosis.measures import Array, Stats
from hookline.diagnosis.training import Seen, Training

MODULES = ("ReLU", "ReLU6", "Threshold", "Hardtanh", "Tanh", "Sigmoid", "Activation")
"""Parts of the names of modules that tell by their own outputs."""
POINTS = np.linspace(-4, 4, 81)
"""Of a normal distribution, in standard deviations."""


def before_functions(training: Training, activation: str) -> Iterator[Seen]:
    """The outputs of modules that go into an activation ("relu", "tanh", "sigmoid") that is no module."""
    places = [place for look in training.wiring.looks for place in look.activations if place.op == activation]
    sites = {one.module for one in places if not any(word in training.type_of(one.what) for word in MODULES)}
    for one in training.trained("output"):
        if one.site in sites:
            yield one


def mean_slope(activation: str, stats: Stats) -> Array:
    """The mean derivative of an activation of these outputs, over the steps, as if they were normal.

    >>> bool(mean_slope("tanh", {"mean": np.zeros(1), "std": np.full(1, 0.01)})[0] > 0.99)
    True
    """
    weights = np.exp(-(POINTS**2) / 2)
    values = np.clip(stats["mean"][:, None] + stats["std"][:, None] * POINTS, -30, 30)
    if activation == "tanh":
        slopes = 1 - np.tanh(values) ** 2
    else:
        slopes = np.exp(-np.abs(values)) / (1 + np.exp(-np.abs(values))) ** 2
    found: Array = slopes @ weights / weights.sum()
    return found
