"""Pairs of models that part in one known place, and pairs that are equal within rounding: `make bench-diff`.

`cases/` are the pairs, one file for each family, `networks/` what their A sides are made of. `unseen/` is a second
set, which nobody looks at while `hookline.diff` is written. `case.py` says what a pair is, `proof.py` proves its
label with plain torch, `score.py` says how right a diff is about it.
"""
