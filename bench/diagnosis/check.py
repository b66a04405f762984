"""python -m bench.diagnosis.check [program ...]: whether broken programs are broken and healthy ones learn.

A healthy program is well when its metric gets better by a third. A broken one is proved by its repair: the same
program without the fault must reach a metric that is better by a fifth (or by what its label says), or, where the
fault shows in no metric, save other weights.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.diagnosis.labels import SETS, Label, read_labels
from bench.diagnosis.launch import Ran, run_plain

LEARNT = 2 / 3
"""The last metric of a healthy program is at most so much of its first."""
SECONDS = 120


def metrics(label: Label, text: str) -> list[float]:
    """The numbers behind the metric's word, one for each line that has it."""
    number = re.compile(rf"\b{re.escape(label.metric)}\b[^\d\n-]*?(-?(?:\d+\.?\d*(?:e[+-]?\d+)?|nan|inf))")
    return [float(found[1]) for line in text.splitlines() if (found := number.search(line))]


def better(label: Label, now: float, before: float, share: float) -> bool:
    """Whether `now` is so much better than `before`; anything is better than NaN."""
    if not math.isfinite(before):
        return math.isfinite(now)
    return now * share >= before if label.higher else now <= before * share


def problem(label: Label) -> str:
    """What is wrong with a program as an example, "" if nothing."""
    ran = _run(label, label.path.read_text())
    if ran.code:
        return f"exit code {ran.code}: {ran.stderr.strip().splitlines()[-1:]}"
    told = metrics(label, ran.stdout)
    if not told or not ran.weights:
        return f"it tells no {label.metric!r} or saves no weights"
    if label.healthy:
        if len(told) < 2 or not better(label, told[-1], told[0], LEARNT):
            return f"{label.metric} went from {told[0]} to {told[-1]}"
        return ""
    repaired = _run(label, label.fixed())
    if repaired.code:
        return f"repaired: {repaired.stderr.strip().splitlines()[-1:]}"
    well = metrics(label, repaired.stdout)
    if label.proof == "weights":
        return "" if repaired.weights != ran.weights else "the repair changes no weight"
    if not better(label, well[-1], told[-1], label.share):
        return f"{label.metric} ends at {told[-1]}, repaired at {well[-1]}"
    return ""


def _run(label: Label, text: str) -> Ran:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / f"{label.name}.py"
        program.write_text(text)
        return run_plain(program, SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser("python -m bench.diagnosis.check", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="program", help="names or globs; all if none is given")
    parser.add_argument("--set", choices=SETS, help="programs of one set")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    labels = read_labels([options.set] if options.set else SETS, options.only)
    failed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for label, wrong in zip(labels, pool.map(_safe_problem, labels), strict=True):
            print(f"{label.name:22} {wrong or 'ok'}", flush=True)
            failed += bool(wrong)
    print(f"{len(labels)} programs, {failed} are not as their labels say")
    return int(bool(failed))


def _safe_problem(label: Label) -> str:
    try:
        return problem(label)
    except (ValueError, OSError) as error:
        return str(error)


if __name__ == "__main__":
    sys.exit(main())
