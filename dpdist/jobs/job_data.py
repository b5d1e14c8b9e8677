"""The data of a job: a stored dataset, or one that is generated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpdist.data import ROWS, Dataset, Units
from dpdist.data.dataset_schema import ATTRIBUTE, Schema
from dpdist.data.stored import Stored
from dpdist.data.stores import open_to_read, shown
from dpdist.engine.memory import noted_head
from dpdist.errors import DataError
from dpdist.jobs.job import Job
from dpdist.privacy.ledger.heads import Head
from dpdist.problems.catalog import PROBLEMS
from dpdist.problems.problem import Generated

_LABEL_BYTES = 8
_PARTITION_BYTES = 2**24  # about, of data that is yet to be written


def to_be_written(n_rows: int, n_features: int) -> Size:
    """The size of float64 data that does not exist yet."""
    nbytes = 8 * n_rows * (n_features + 1)
    return Size(n_rows, n_features, nbytes, min(nbytes, _PARTITION_BYTES), in_memory=False)


@dataclass(frozen=True)
class Size:
    """What a plan needs to know about the data; public, and known without reading or generating a row.

    Attributes
    ----------
    n_rows, n_features : int
    nbytes, partition_bytes : int
        Of all arrays, decoded; of the largest partition.
    in_memory : bool
        Whether the rows are this process's own.
    dataset_id : str or None
        None for a dataset that gets its id when it is written.
    schema : Schema or None
        None for data that does not exist yet.
    remote : bool
        Whether the store answers late.
    ledger : Head or None
        Where the ledger stood that limits the dataset, as far as the dataset remembers one.
    unit : str
        Of data that does not exist yet.
    """

    n_rows: int
    n_features: int
    nbytes: int
    partition_bytes: int
    in_memory: bool
    dataset_id: str | None = None
    schema: Schema | None = None
    remote: bool = False
    ledger: Head | None = None
    unit: str = ROWS.name

    @property
    def account(self) -> str | None:
        """Who pays; None for a dataset that gets its id, and with it an account of its own, when it is written."""
        named = None if self.schema is None else self.schema.account
        return self.dataset_id if named is None else named

    @property
    def units(self) -> Units:
        """Whose data one neighbour differs in."""
        return Units(self.unit) if self.schema is None else self.schema.units


def is_there(job: Job) -> bool:
    """Whether the stored dataset of a job can be opened: then its unit counts, whatever size is asked about."""
    if "path" not in job.data:
        return False
    try:
        size(job)
    except DataError:
        return False
    return True


def source(job: Job) -> str:
    """Where the data comes from, in words."""
    return f"generated: {job.data['generate']}" if "generate" in job.data else shown(job.data["path"])


def open_stored(job: Job, store: Any = None, dataset_id: str | None = None) -> Dataset:
    """The stored dataset of a job, by its path or as the ``store`` given; reads its description, no row.

    A store that has no id yet gets one, which is written to it, unless ``store`` is read-only and an id is given.
    """
    names = dict(job.data.get("arrays") or {})
    dataset = Dataset.open(
        job.data["path"] if store is None else store,
        arrays=sorted(set(names.values())) or None,
        dataset_id=job.data.get("id", dataset_id),
        account=job.data.get("account"),
        storage_options=job.data.get("storage_options"),
    )
    return dataset.select(**names) if names else dataset


def _open_read_only(job: Job) -> tuple[Dataset, bool]:
    """The same, writing nothing to the store; and whether it has an id of its own."""
    try:
        group = open_to_read(job.data["path"], job.data.get("storage_options"))
    except DataError:
        raise
    except Exception:
        return open_stored(job), True  # which says what is wrong with the place
    known = ATTRIBUTE in group.attrs
    return open_stored(job, group, None if known else "not given yet"), known or "id" in job.data


def load(job: Job) -> tuple[Dataset, Generated | None]:
    """The dataset, and the truth beside it if it is generated."""
    if "generate" not in job.data:
        return open_stored(job), None
    generated = PROBLEMS[job.data["generate"]].generate(job.data)
    return generated.dataset, generated


def beside(job: Job, generated: Generated | None) -> dict[str, Any]:
    """Arguments of ``fit`` beside the dataset: rows of other people that are public, if the job has any."""
    if generated is not None:
        return {} if generated.public is None else {"public_X": generated.public}
    place = job.data.get("public")
    if place is None:
        return {}
    group = Stored(place, job.data.get("storage_options")).read()
    rows = Dataset.open(group, arrays=["X"], dataset_id=None if ATTRIBUTE in group.attrs else "public")
    if is_there(job):
        own = size(job)
        check_public(rows, place, own.dataset_id, own.account)
    return {"public_X": rows.read(0, rows.n_rows)["X"]}


def check_public(rows: Dataset, place: str, dataset_id: str | None, account: str | None) -> None:
    """Refuse the protected rows themselves as public ones: what is made of these is told without noise."""
    if rows.id == dataset_id or rows.account == account:
        raise DataError(
            f"{shown(place)} is not public: it is the protected dataset, or pays from the same account ({account}). "
            "Public rows are those of other people, which anybody may see"
        )


def size(job: Job) -> Size:
    """The size of the data, without reading or generating a row."""
    if "generate" in job.data:
        problem = PROBLEMS[job.data["generate"]]
        values = problem.resolve(job.data)
        n, d = values["n"], values["d"]
        row = d * np.dtype(values["dtype"]).itemsize + _LABEL_BYTES
        in_memory, name = values["store"] is None, problem.dataset_id(job.data)
        unit = values.get("unit", "row")
        return Size(n, d, n * row, min(n * row, _PARTITION_BYTES), in_memory, name, unit=unit)
    dataset, named = _open_read_only(job)
    if "X" not in dataset.arrays:
        raise DataError(
            f"{source(job)} has the arrays {sorted(dataset.arrays)} but no 'X': name them under data.arrays, for "
            "example {X: features, y: label}"
        )
    n_features = math.prod(dataset.arrays["X"].shape[1:])
    known = noted_head(dataset)
    return Size(
        dataset.n_rows,
        n_features,
        dataset.nbytes,
        dataset.partition_bytes,
        dataset.in_memory,
        dataset.id if named else None,
        dataset.schema,
        dataset.remote,
        known[0] if known is not None else None,
    )
