"""diffs: where two models, recordings or runs part, and whether the error is born there.

`compare.py` is the verb. Two models (`models.py`) are run and become two recordings; two recordings (`pairs.py`)
are aligned place by place (`aligning.py`, `mapping.py`) and measured (`measures.py`); two runs (`runs.py`) are
compared by their rows. `found.py` has what comes out: a Diff.
"""
