"""Algorithms with a trusted coordinator, one module per problem family."""

from dpdist.central.aggregate import SampleAndAggregate
from dpdist.central.linear import LinearRegression, LinearSVC, LogisticRegression
from dpdist.central.mean import Mean
from dpdist.central.minimizer import Minimizer

__all__ = ["LinearRegression", "LinearSVC", "LogisticRegression", "Mean", "Minimizer", "SampleAndAggregate"]
