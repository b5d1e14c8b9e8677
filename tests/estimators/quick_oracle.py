"""Fits without an engine: the queries and mechanisms of a plan on arrays in memory, for thousands of fits.

What is left out of a fit is the ledger, the journal, the cluster and the partitions. Sums are the same integers, noise
is drawn by the same samplers, and what is made of it is the method itself; `tests/estimators/test_inference.py`
compares a fit of each kind.
"""

from __future__ import annotations

import numpy as np

from dpdist.estimators.estimator import planned
from dpdist.method import Oracle
from dpdist.privacy.randomness.bits import StreamBits


class QuickOracle(Oracle):
    """Answers with the releases that a plan describes, of the arrays of one process."""

    def __init__(self, method, arrays, rng):
        lines = method.lines()
        self.plan, self.history, self._shared = planned(method), [], {}
        self._lines = {line.name: line for line in lines}
        self._public, self._arrays, self._bits, self._std = method.public, arrays, StreamBits(rng), 0.0

    def ask(self, name, state=None, query=None):
        item, query = self.plan[name], query or self._lines[name].query
        sensitivity = query.unit_sensitivity(self._public.neighbours, item.mechanism.norm, self._public.units)
        total = query.explore(self._answer(query), state, item.mechanism, self._bits)
        statistic, grid = query.statistic(total)
        self._std = item.mechanism.noise_std(sensitivity)
        private = item.mechanism.release(statistic, sensitivity / grid, self._bits)
        return np.asarray(private).astype(np.float64) * (grid if item.mechanism.in_units else 1.0)

    def _answer(self, query):
        return lambda state: query.summarise_at(0, self._arrays, state, None)

    @property
    def noise_std(self):
        return self._std

    @property
    def n_rows(self):
        return len(next(iter(self._arrays.values())))

    def size(self, name):
        return self.n_rows


def quick_fit(model, X, y=None, rng=None, **beside):
    """The model, fitted as by ``fit(X, y)``; the same object is fitted again and again.

    What the method takes beside rows (``public_X``) is taken anew each time.
    """
    dataset = model._dataset(X, y)
    given = {"X": X} if y is None else {"X": X, "y": y}
    arrays = {name: prepare(given[name]) for name, prepare in model._prepare(dataset.arrays).items()}
    known = None if beside else model.__dict__.get("_quick")
    method = known or model._method(dataset.n_rows, model.n_features_in_, dataset.schema.units, **beside)
    model._quick = method
    oracle = QuickOracle(method, arrays, rng)
    model.plan_ = oracle.plan
    model._finish(method, method.solve(oracle))
    return model
