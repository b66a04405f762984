"""python -m bench [row ...]: measures the rows named, or all of them, and prints a table for each."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bench.load import Meter
from bench.report import Result, as_markdown, as_text
from bench.rows import QUICK, ROWS, measured_row

PAGE, PLOT = Path("docs/peers.md"), Path("docs/peers.png")


def main() -> int:
    options = _options()
    if options.profile:
        from bench.profiling import profiled_row

        profiled_row(options.profile, options.case)
        return 0
    if options.peers:
        from bench.peers import compared_peers
        from bench.peers_page import write

        write(compared_peers(options.quick), PAGE, PLOT)
        return 0
    meter = Meter()
    results: list[Result] = []
    failed = False
    for name in options.rows or ROWS:
        try:
            measured = _in_own_process(name, options.rounds, options.quick)
        except Exception as error:  # the other rows still tell something
            failed = True
            print(f"row {name!r} broke down: {type(error).__name__}: {error}\n", file=sys.stderr)
            continue
        results += measured
        print(*map(as_text, measured), sep="\n", flush=True)
    if options.write is not None:
        options.write.write_text(as_markdown(results, meter.told()))
    return int(failed)


def _in_own_process(name: str, rounds: int | None, quick: bool) -> list[Result]:
    # Some peers patch torch when they are imported, and hookline keeps buffers for later recordings:
    # no row may be helped or slowed down by an earlier one.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as process:
        return process.submit(measured_row, name, rounds, quick).result()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench", description="Times hookline beside torch and other tools.")
    parser.add_argument("rows", nargs="*", metavar="row", help=f"one of {', '.join(ROWS)}; all if none is named")
    parser.add_argument("--rounds", type=int, help="rounds of every table, in place of its own number")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} rounds: shows that it works, not how fast")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also write all tables as Markdown")
    parser.add_argument("--peers", action="store_true", help=f"measure other tools, and write {PAGE} and {PLOT}")
    parser.add_argument("--profile", choices=ROWS, metavar="ROW", help="where the time of hookline's cases goes")
    parser.add_argument(
        "--case", default="", metavar="TEXT", help="with --profile: the cases with this text instead"
    )
    options = parser.parse_args()
    if unknown := [row for row in options.rows if row not in ROWS]:
        parser.error(f"no row {unknown[0]!r}; the rows are {', '.join(ROWS)}")
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds must be 1 or more")
    return options


if __name__ == "__main__":
    sys.exit(main())
