"""The gradient sum once more, row by row in plain NumPy and Python, to test the compiled kernel against."""

from __future__ import annotations

import math

import numpy as np

from dpdist.kernels.clip import kappa


def glm_gradient_reference(X, y, w, loss, *, row_norm, clip_norm, grid, intercept=0.0, rows=None):
    X, y, w = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64), np.asarray(w, dtype=np.float64)
    d = X.shape[1]
    total = [0] * len(w)
    for i in range(len(X)) if rows is None else rows:
        x = X[i]
        good_label = math.isfinite(y[i]) if loss.labels == "real" else abs(y[i]) == 1
        if not (np.isfinite(x).all() and good_label):
            continue
        x = shrink(x, row_norm)
        with np.errstate(all="ignore"):
            e = math.frexp(np.abs(x).max())[1]  # scaled, so that only a margin beyond the floats overflows
            u = float(np.ldexp(np.ldexp(x, -e) @ w[:d], e)) + (intercept * w[d] if intercept > 0 else 0.0)
            c = float(loss.derivative(u, y[i]))
        if not math.isfinite(c):
            continue
        z = np.append(x, intercept) if intercept > 0 else x
        largest = np.abs(z).max()
        if largest == 0 or c == 0:
            continue
        e = math.frexp(largest)[1]
        z = np.ldexp(z, -e)
        direction = z / np.sqrt(np.sum(z**2))
        # |c| * norm(z) * 2**e against the clip norm, in logarithms because the product may overflow
        size = math.log2(abs(c)) + math.log2(float(np.sqrt(np.sum(z**2)))) + e
        limit = clip_norm * (1 - kappa(d + 1))
        v = math.copysign(1, c) * limit * direction if size > math.log2(limit) else np.ldexp(c * z, e)
        for j, unit in enumerate(np.trunc(v / grid)):
            total[j] += int(unit)
    return np.array(total, dtype=np.int64)


def shrink(x, bound):
    largest = np.abs(x).max()
    if largest == 0 or bound == np.inf:
        return x
    e = math.frexp(largest)[1]
    z = np.ldexp(x, -e)
    norm = float(np.sqrt(np.sum(z**2)))
    limit = bound * (1 - kappa(len(x) + 1))
    return x if math.log2(norm) + e <= math.log2(limit) else z * (limit / norm)
