"""The run that is hurt: dependent releases of a sum whose exact value is known, slow enough to be hit in the middle."""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist import Budget, Coordinator, Dataset, Ledger
from dpdist.engine.progress import Released, watching
from dpdist.engine.query import Query
from dpdist.kernels.clip import clip_l2
from dpdist.kernels.grid import grid_for, to_units
from dpdist.privacy.accounting.plan import Item
from dpdist.privacy.mechanisms.additive import Gaussian
from tests.faults.scan import Secrets, secrets_of

N_ROWS, N_FEATURES, PARTITION = 2000, 4, 200
N_ROUNDS = 6


@dataclass(frozen=True)
class SlowSum(Query):
    """Sum of the rows, clipped; takes ``seconds`` for a partition, and ``swell`` bytes of memory meanwhile."""

    tag: ClassVar[str] = "SlowSum"

    row_norm: float = 1.0
    seconds: float = field(default=0.0, metadata={"named": False})  # a run may be resumed with other speed
    swell: int = field(default=0, metadata={"named": False})

    @property
    def bound(self) -> float:
        return self.row_norm

    @property
    def grid(self) -> float:
        return grid_for(self.row_norm)

    def summarise(self, block: Any, state: Any, rows: Any) -> NDArray[np.int64]:
        heap = np.ones(self.swell, dtype=np.uint8)  # ones: it has to be there, not only promised
        time.sleep(self.seconds)
        del heap
        X = block["X"] if rows is None else block["X"][rows]
        return to_units(clip_l2(X, self.row_norm), self.grid, self.row_norm).sum(axis=0)


def data() -> NDArray[np.float64]:
    return np.random.default_rng(11).normal(0.2, 0.3, size=(N_ROWS, N_FEATURES))


def write(path: Path) -> Path:
    """The dataset."""
    Dataset.from_arrays(path, X=data(), partition_rows=PARTITION)
    return path


def secrets(shards: int = 2) -> Secrets:
    """Every number that a partition, a shard or the coordinator computes before there is noise."""
    query, X = SlowSum(), data()
    parts = [query.summarise({"X": X[i : i + PARTITION]}, None, None) for i in range(0, N_ROWS, PARTITION)]
    sums = {f"sum of partition {i}": part for i, part in enumerate(parts)}
    for m in range(2, shards + 1):
        sums |= {f"sum of shard {i} of {m}": np.sum(parts[i::m], axis=0) for i in range(m)}
    sums["sum of all rows"] = np.sum(parts, axis=0)
    return secrets_of(sums, query.grid, X[:: N_ROWS // 50], N_ROWS)


def slowly(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rows of a partition, which take a while to load."""
    time.sleep(0.3)
    return np.asarray(X)


def run(
    store: Path, ledger: Ledger, run_id: str, cluster: Any = "threads", *, seconds: float = 0.0, swell: int = 0,
    random_state: int | None = 7, n_rounds: int = N_ROUNDS, prepare: Any = np.asarray,
) -> NDArray[np.float64]:  # fmt: skip
    """All releases, each asked at a state that the one before decided."""
    with Coordinator(
        Dataset.open(str(store)), Budget(1.0, 1e-6), arrays={"X": prepare}, ledger=ledger, cluster=cluster,
        run_id=run_id, random_state=random_state,
    ) as coordinator:  # fmt: skip
        item = coordinator.plan([Item("sum", Gaussian(), count=n_rounds)])["sum"]
        state, values = np.zeros(N_FEATURES), []
        for _ in range(n_rounds):
            state = coordinator.release(SlowSum(1.0, seconds, swell), item, state)
            values.append(state)
    return np.array(values)


@contextlib.contextmanager
def at_release(number: int, strike: Any) -> Iterator[list[bool]]:
    """Do something after a release, in the middle of a run; collects which releases were replayed."""
    replayed: list[bool] = []

    def watch(event: object) -> None:
        if isinstance(event, Released):
            replayed.append(event.replayed)
            if event.done == number and not event.replayed:
                strike()

    with watching(watch):
        yield replayed


def on_file(path: Path) -> dict[str, bytes]:
    """Every value in the journal of an SQLite ledger."""
    with contextlib.closing(sqlite3.connect(path, timeout=30)) as connection:
        return dict(connection.execute("SELECT release_id, bytes FROM dpdist_values"))


def main() -> None:
    """``python -m tests.faults.jobs STORE LEDGER RUN_ID CLUSTER SECONDS``: prints each release as it is seen."""
    store, ledger, run_id, cluster, seconds = sys.argv[1:6]
    journal = sys.argv[6] if len(sys.argv) > 6 else None

    def tell(event: object) -> None:
        print(f"{type(event).__name__} {getattr(event, 'done', '')}", flush=True)

    book = Ledger(ledger, journal=journal)
    with watching(tell):
        values = run(Path(store), book, run_id, cluster, seconds=float(seconds), random_state=None)
    for value in values:
        print("value", value.tobytes().hex(), flush=True)
    book.close()


if __name__ == "__main__":
    main()
