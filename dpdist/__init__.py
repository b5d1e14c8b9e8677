"""dpdist: statistical and machine-learning models on Dask and Zarr under differential privacy."""

from dpdist.central import LinearRegression, LinearSVC, LogisticRegression, Minimizer
from dpdist.data import Dataset
from dpdist.engine.coordinator import Coordinator
from dpdist.privacy.budget import Budget, Neighbours
from dpdist.privacy.guarantee import Guarantee
from dpdist.privacy.ledger import Ledger

__all__ = [
    "Budget",
    "Coordinator",
    "Dataset",
    "Guarantee",
    "Ledger",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "Minimizer",
    "Neighbours",
]
