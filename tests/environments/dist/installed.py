"""Whether a hookline that was installed works: `python installed.py native`, or `python` where no compiler was.

Needs no framework, and nothing of this repository: cibuildwheel runs it beside each wheel.
"""

import sys
from types import FunctionType

import numpy as np

import hookline
from hookline.backends.undoing import Undoing, again
from hookline.lines import collect, kernel_in_use, reduce, why_not_native


def main(expected: str) -> None:
    found = "python" if why_not_native() else "native"
    assert found == expected, f"expected the {expected} kernel, got {kernel_in_use()} ({why_not_native()})"
    assert isinstance(again, FunctionType) == (expected == "python"), again
    undone: list[str] = []
    with Undoing() as undoing:
        undoing.noted(undone.append, "done")
    assert undone == ["done", "done"], undone
    values = np.random.default_rng(0).normal(size=(64, 33)).astype(np.float32)
    row = collect([reduce(values)])[0].row()
    assert row["count"] == values.size and row["nan"] == 0, row
    assert abs(row["mean"] - values.mean(dtype=np.float64)) < 1e-9, row
    assert abs(row["std"] - values.std(dtype=np.float64, ddof=1)) < 1e-9, row
    print(f"hookline {hookline.__version__}: {kernel_in_use()}, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main(sys.argv[1])
