"""Diagnosis: what is wrong with each layer of a run, from its statistics."""
