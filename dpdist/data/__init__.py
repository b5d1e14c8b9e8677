"""Rooms for rows: datasets over Zarr, NumPy and Dask arrays, their public schema, folds, and ingestion."""

from dpdist.data.dataset import Dataset
from dpdist.data.dataset_schema import ArraySpec, Schema
from dpdist.data.folds import Fold
from dpdist.data.ingestion import Ingested, Progress, ingest
from dpdist.data.sources import Source, verify_rows
from dpdist.data.units import ROWS, Units

__all__ = [
    "ROWS", "ArraySpec", "Dataset", "Fold", "Ingested", "Progress", "Schema", "Source", "Units", "ingest",
    "verify_rows",
]  # fmt: skip
