"""Broken and healthy trainings, and how well hookline tells what is wrong with them: `make bench-diagnosis`."""
