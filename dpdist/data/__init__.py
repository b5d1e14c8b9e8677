"""Rooms for rows: datasets over Zarr, NumPy and Dask arrays, their public schema, folds, and ingestion."""

from dpdist.data.answer_lines import answers_from_csv, answers_from_lines, pack_answers
from dpdist.data.dataset import Dataset
from dpdist.data.dataset_schema import ArraySpec, Schema
from dpdist.data.folds import Fold
from dpdist.data.ingestion import Ingested, Progress, ingest
from dpdist.data.sources import Source, verify_rows
from dpdist.data.units import ROWS, Units

__all__ = [
    "ROWS", "ArraySpec", "Dataset", "Fold", "Ingested", "Progress", "Schema", "Source", "Units",
    "answers_from_csv", "answers_from_lines", "ingest", "pack_answers", "verify_rows",
]  # fmt: skip
