"""Plots: from rows to figures with matplotlib. They never see a model, and never show anything.

Each takes rows (`Watch.rows()`), draws into `ax` or a new figure, and returns the Axes.
"""

from hookline.plots.colorful import colorful_dimension as colorful_dimension
from hookline.plots.curves import curves as curves
from hookline.plots.curves import update_ratio as update_ratio
from hookline.plots.distributions import distributions as distributions
from hookline.plots.flow import gradient_flow as gradient_flow
from hookline.plots.overview import overview as overview
