"""The main job: a private logistic model fitted to a generated Zarr dataset of a million rows.

Runs on the threads of this process, with no cluster and no server, and prints what was released under which guarantee.
The rows are generated here, so the rule that made their labels is known and may be compared with; of the rows that are
fitted, nothing is printed but their number and what was released with noise.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dpdist import Budget, Ledger, LogisticRegression
from dpdist.problems import linear_problems as synthetic


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-8)
    args = parser.parse_args(arguments)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("dpdist").setLevel(logging.INFO)  # a line for each release, on standard error
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        dataset, truth = synthetic.logit(args.rows, args.features, store=Path(folder) / "rows.zarr")
        say(f"generated {dataset.n_rows:,} rows in {len(dataset.partitions)} partitions of a Zarr store")
        say(f"({dataset.nbytes / 1e6:,.0f} MB, {time.perf_counter() - started:.1f} s)\n")

        ledger = Ledger(Path(folder) / "ledger.sqlite")
        ledger.set_limit(dataset.id, Budget(2 * args.epsilon, 2 * args.delta))
        model = LogisticRegression(
            classes=[0, 1],
            epsilon=args.epsilon,
            delta=args.delta,
            row_norm=1.0,
            ledger=ledger,
        )
        say("to be released, decided before any row is read:")
        say(f"{model.plan(dataset.n_rows, args.features)}\n")
        started = time.perf_counter()
        model.fit(dataset)
        say(f"fitted in {time.perf_counter() - started:.1f} s\n")

        coefficients, intercept = model.coef_[0], np.ravel(model.intercept_)[0]
        rule = truth * np.sqrt(args.features) / 2
        fresh = synthetic.logit(100_000, args.features, random_state=1)[0].read(0, 100_000)["X"]
        agreement = model.score(fresh, (fresh @ truth > 0).astype(int))
        say(f"released      {len(model.releases_)} noisy values, as planned; the model is computed from them alone")
        say(f"coefficients  {shown(coefficients)} and intercept {intercept:.2f}")
        say(f"true rule     {shown(rule)} and intercept 0 (of the generator; noise shrinks the model's)")
        say(f"agreement     {agreement:.1%} of the true rule's predictions on 100,000 fresh generated rows")
        say(f"guarantee     {model.guarantee_}")
        left = ledger.remaining(dataset.id)
        assert left is not None, "a limit was set above"
        say(f"budget left   epsilon {left.epsilon:g}, delta {left.delta:g} for this dataset, by its ledger")
        ledger.close()


def say(line: str) -> None:
    """Print at once, so that the lines stay in order with the progress on standard error."""
    print(line, flush=True)


def shown(numbers: np.ndarray) -> str:
    """The first numbers of a vector."""
    return " ".join(f"{number:.2f}" for number in numbers[:6]) + (" ..." if len(numbers) > 6 else "")


if __name__ == "__main__":
    main()
