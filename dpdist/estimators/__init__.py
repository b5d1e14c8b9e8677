"""What every estimator shares, written once on top of `dpdist.method`."""

from dpdist.estimators import lean_imports  # noqa: F401 - before scikit-learn
