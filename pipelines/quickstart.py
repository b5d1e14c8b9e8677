"""The main job: a private logistic model fitted to a generated Zarr dataset of a million rows.

Runs on the threads of this process, with no cluster and no server, and prints what was released under which guarantee.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from dpdist import Budget, Dataset, Ledger, LogisticRegression
from dpdist.data import synthetic


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-8)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        store = Path(folder) / "rows.zarr"
        _, truth = synthetic.logit(args.rows, args.features, store=store)
        dataset = Dataset.open(store)
        print(f"generated {dataset.n_rows:,} rows in {len(dataset.partitions)} partitions", end=" ")
        print(f"({dataset.nbytes / 1e6:,.0f} MB, {time.perf_counter() - started:.1f} s)")

        ledger = Ledger(Path(folder) / "ledger.sqlite")
        ledger.set_limit(dataset.id, Budget(2 * args.epsilon, 2 * args.delta))
        model = LogisticRegression(
            classes=[0, 1],
            epsilon=args.epsilon,
            delta=args.delta,
            row_norm=1.0,
            ledger=ledger,
            verbose=1,
        )
        print(model.plan(dataset.n_rows, args.features))
        started = time.perf_counter()
        model.fit(dataset)
        print(f"fitted in {time.perf_counter() - started:.1f} s\n")

        test, _ = synthetic.logit(100_000, args.features, random_state=1)
        rows = test.read(0, test.n_rows)["X"]
        labels = np.where(rows @ truth > 0, 1, 0)
        print("released       coefficients and intercept of a logistic model, as the last of", model.n_iter_, "iterates")
        print("coefficients  ", np.array2string(model.coef_[0][:6], precision=2), "...")
        print("truth / 2     ", np.array2string(truth[:6] * np.sqrt(args.features) / 2, precision=2), "...")
        print(f"agreement      {model.score(rows, labels):.3f} with the best linear rule on fresh rows")
        print("guarantee     ", model.guarantee_.text)
        left = ledger.remaining(dataset.id)
        print(f"budget left    epsilon {left.epsilon:g}, delta {left.delta:g} of this dataset")


if __name__ == "__main__":
    main()
