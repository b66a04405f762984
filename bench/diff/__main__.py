"""python -m bench.diff: every pair through `hookline.diff`, and how right it is about where they part."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch

import hookline
from bench.diff.case import SETS, Case, Recipe, read_recipes
from bench.diff.page import section_of, with_section
from bench.diff.proof import run
from bench.diff.report import line_of, summary_of
from bench.diff.score import Score, scored

PAGE = Path("docs/diff.md")
ROUNDS = 3


def main() -> int:
    options = _options()
    recipes = read_recipes([options.set] if options.set else list(SETS), options.only)
    if not recipes:
        print(f"no pair fits {', '.join(options.only)}", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    scores = []
    for recipe in recipes:
        score = judged(recipe)
        if options.details or recipe.set != "unseen":
            print(line_of(score), flush=True)
        scores.append(score)
    print(f"\n{summary_of(scores)}")
    if options.write:
        PAGE.write_text(with_section(PAGE.read_text(), section_of(scores)))
    return int(any(one.trouble for one in scores))


def judged(recipe: Recipe) -> Score:
    """The score of a pair. An error of the diff is no reason to stop: it is told in its line."""
    case = recipe.case()
    alone = (_seconds(case, 0) + _seconds(case, 1)) / 2
    a, b = case.pairs
    begin = time.perf_counter()
    try:
        diff = hookline.diff(a, b, loss=case.loss, map=case.renamed)
    except Exception as error:
        return Score(recipe, trouble=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    seconds = time.perf_counter() - begin
    score = scored(recipe, case, diff)
    score.seconds, score.alone = seconds, alone
    return score


def _seconds(case: Case, side: int) -> float:
    """The seconds of one forward, and its backward where there is a loss; the best of a few, after a first one."""
    found = []
    for _ in range(ROUNDS + 1):
        model, inputs = case.pairs[side]
        begin = time.perf_counter()
        _ran(model, inputs, case)
        found.append(time.perf_counter() - begin)
        model.zero_grad(set_to_none=True)
    return min(found[1:])


def _ran(model: Any, inputs: Any, case: Case) -> None:
    if case.loss is None:
        with torch.no_grad():
            run(model, inputs)
    elif (loss := case.loss(run(model, inputs))).requires_grad:
        loss.backward()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench.diff", description=__doc__)
    parser.add_argument("--set", choices=list(SETS), help="pairs of one set; all if not given")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="a name or glob; may be repeated"
    )
    parser.add_argument("--details", action="store_true", help="tell the pairs of the second set one by one too")
    parser.add_argument("--write", action="store_true", help=f"write the section of {PAGE}")
    options = parser.parse_args()
    if options.write and (options.set or options.only):
        parser.error("--write is for all pairs")
    return options


if __name__ == "__main__":
    sys.exit(main())
