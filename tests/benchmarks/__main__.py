"""Run benchmarks and print a table, one JSON object per line, or a page; ``answers`` has a command of its own."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks import (  # noqa: F401  (they register their benchmarks)
    engine,
    fits,
    kernels,
    latent,
    limits,
    local,
    matrices,
    pairs,
    real_data,
    scale,
    utility,
    waits,
)
from tests.benchmarks.answers.command import main as answers
from tests.benchmarks.measure import BENCHMARKS, Result, run


def main() -> int:
    if sys.argv[1:2] == ["answers"]:
        return answers(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones (default all): {', '.join(BENCHMARKS)}")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="write a page of the documentation (default: limits and waits)"
    )
    args = parser.parse_args()
    unknown = sorted(set(args.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    if not args.json:
        print(f"{'benchmark':24} {'ratio':>8}  {'goal':16} {'holds':6} detail")
    results: list[Result] = []
    for name in args.names or ([*limits.LIMITS, *waits.WAITS] if args.page else BENCHMARKS):
        result = run(name)
        results.append(result)
        if args.json:
            fields = ("name", "ratio", "goal", "holds", "detail")
            print(json.dumps({field: getattr(result, field) for field in fields}), flush=True)
        else:
            holds = "yes" if result.holds else "NO"
            print(f"{name:24} {result.ratio:8.3f}  {result.goal:16} {holds:6} {result.detail}", flush=True)
    if args.page:
        args.page.write_text(page(results))
    return 0 if all(result.holds for result in results) else 1


def page(results: Sequence[Result]) -> str:
    """A page with a table of results, the day and the processor."""
    rows = "\n".join(
        f"| `{r.name}` | {r.ratio:.3g} | {r.goal} | {'yes' if r.holds else 'no'} | {r.detail} |" for r in results
    )
    return f"""# How fast it is

Measured on {datetime.date.today():%d %B %Y} with {limits.processor()}; processor time of one core where nothing else
is said, the best of many turns side by side. Other work on the machine takes its share of memory and caches, so the
numbers of an idle one are better. Written by `python -m tests.benchmarks --page deploy/site/guide/speed.md`; all
other rows: `python -m tests.benchmarks` (`--json` for programs).

| row | measured | goal | reached | what |
|---|---|---|---|---|
{rows}
"""


if __name__ == "__main__":
    sys.exit(main())
