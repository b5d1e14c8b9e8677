"""Run benchmarks and print a table, or one JSON object per line; ``answers`` has a command of its own."""

from __future__ import annotations

import argparse
import json
import sys

from tests.benchmarks import engine, fits, kernels, latent, local, matrices, real_data, scale, utility  # noqa: F401  (they register their benchmarks)
from tests.benchmarks.answers.command import main as answers
from tests.benchmarks.measure import BENCHMARKS, run


def main() -> int:
    if sys.argv[1:2] == ["answers"]:
        return answers(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones (default all): {', '.join(BENCHMARKS)}")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    args = parser.parse_args()
    unknown = sorted(set(args.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    if not args.json:
        print(f"{'benchmark':24} {'ratio':>8}  {'goal':16} {'holds':6} detail")
    missed = 0
    for name in args.names or BENCHMARKS:
        result = run(name)
        missed += not result.holds
        if args.json:
            fields = ("name", "ratio", "goal", "holds", "detail")
            print(json.dumps({field: getattr(result, field) for field in fields}), flush=True)
        else:
            holds = "yes" if result.holds else "NO"
            print(f"{name:24} {result.ratio:8.3f}  {result.goal:16} {holds:6} {result.detail}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
