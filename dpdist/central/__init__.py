"""Algorithms with a trusted coordinator, one module per problem family."""

from dpdist.central.linear import LinearRegression, LinearSVC, LogisticRegression
from dpdist.central.minimizer import Minimizer

__all__ = ["LinearRegression", "LinearSVC", "LogisticRegression", "Minimizer"]
