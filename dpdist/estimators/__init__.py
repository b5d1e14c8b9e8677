"""What every estimator shares, written once on top of `dpdist.method`."""
