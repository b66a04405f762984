"""python -m bench.diagnosis: runs every program under `hookline run`, and scores what the verdict says."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from bench.diagnosis.labels import SETS, Label, read_labels
from bench.diagnosis.launch import run_plain, run_watched
from bench.diagnosis.report import line_of, summary_of
from bench.diagnosis.score import Score, scored

PAGE = Path("docs/diagnosis.md")
SECONDS = 300


def main() -> int:
    options = _options()
    sets = [options.set] if options.set else list(SETS)
    labels = read_labels(sets, options.only)
    if not labels:
        print(f"no program fits {', '.join(options.only)}", file=sys.stderr)
        return 2
    scores = []
    for score in judged(labels, options.jobs):
        print(line_of(score), flush=True)
        scores.append(score)
    repaired = []
    if options.repaired:
        broken = [label for label in labels if not label.healthy]
        print("\nThe broken programs, repaired:")
        for score in judged(broken, options.jobs, repaired=True):
            print(line_of(score), flush=True)
            repaired.append(score)
    print(f"\n{summary_of(scores, repaired)}")
    if options.write:
        from bench.diagnosis.page import page_of

        PAGE.write_text(page_of(scores, repaired))
    return int(any(one.trouble or not one.same for one in [*scores, *repaired]))


def judged(labels: Sequence[Label], jobs: int, repaired: bool = False) -> Iterator[Score]:
    """The scores of programs, in their order; those of the repaired ones, which are healthy, where asked for."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(_judged_repaired if repaired else _judged, labels)


def _judged(label: Label) -> Score:
    return _compared(label, label.path)


def _judged_repaired(label: Label) -> Score:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / f"{label.name}.py"
        program.write_text(label.fixed())
        return _compared(replace(label, fault=""), program)


def _compared(label: Label, program: Path) -> Score:
    plain, watched = run_plain(program, SECONDS), run_watched(program, SECONDS)
    if watched.findings is None:
        said = watched.stderr.strip().splitlines()
        return Score(label, same=False, trouble=said[-1] if said else f"exit code {watched.code}")
    score = scored(label, watched.findings)
    score.same = (plain.code, plain.stdout, plain.weights) == (watched.code, watched.stdout, watched.weights)
    return score


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench.diagnosis", description=__doc__)
    parser.add_argument("--set", choices=SETS, help="programs of one set; all if not given")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="a name or glob; may be repeated"
    )
    parser.add_argument("--jobs", type=int, default=2, help="programs at a time")
    parser.add_argument("--repaired", action="store_true", help="also the broken ones without their fault")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}")
    options = parser.parse_args()
    if options.write and (options.set or options.only):
        parser.error("--write is for all programs")
    return options


if __name__ == "__main__":
    sys.exit(main())
