"""Timings of hookline beside plain torch and other tools; `python -m bench --help` tells how to run them."""
