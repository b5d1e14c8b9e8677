"""Judge what is recorded of the answers, after running what is missing if that is asked for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.answers import page
from tests.benchmarks.answers.cells import DIFFPRIVLIB, RECORDED, append, cells, missing, quick, read, run
from tests.benchmarks.answers.verdicts import failures, judged


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks answers", description=__doc__)
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--quick", action="store_true", help="the fixed part of at most ten minutes")
    asked.add_argument("--whole", action="store_true", help="all cells: hours, and it goes on where it was interrupted")
    parser.add_argument(
        "--results", type=Path, default=RECORDED, metavar="FILE", help="cells that are there are not run again"
    )
    args = parser.parse_args(argv)
    wanted = quick() if args.quick else cells()
    if args.quick or args.whole:
        for cell in missing(wanted, args.results):
            append(args.results, run(cell))
            print(cell.name, flush=True)
    found = judged(wanted, read(args.results), read(DIFFPRIVLIB))
    print("\n".join([*page.table(found), "", *page.summary(found)]))
    if args.results == RECORDED and not args.quick:
        page.write(found)
    return 1 if failures(found) else 0
