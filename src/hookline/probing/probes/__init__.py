"""Probes: one file for each property of a model; each is in the registry under its name."""
