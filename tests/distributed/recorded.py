"""A randomiser that leaves a note of everything that any user ever drew, on whatever worker."""

from __future__ import annotations

import os
import secrets
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpdist.local.local_estimator import LocalEstimator
from dpdist.local.local_method import LocalMethod
from dpdist.local.randomisers.scalars import OneBit
from dpdist.local.statistics.bounded_values import Box
from dpdist.local.survey.protocol import LocalProtocol
from dpdist.method import Oracle, Public
from dpdist.privacy.randomness.draws import Draws


@dataclass(frozen=True)
class Recorded(OneBit):
    """One bit, with notes in ``folder``; takes ``seconds`` for a block, as a long round does."""

    tag: ClassVar[str] = "Recorded"

    folder: str = ""
    seconds: float = 0.0

    name: ClassVar[str] = "recorded"
    tag: ClassVar[str] = "Recorded"

    def randomise(self, values: NDArray[Any], draws: Draws) -> NDArray[Any]:
        state = draws.generator.bit_generator.state["state"]  # type: ignore[attr-defined]
        key, block = state["key"].tobytes().hex(), int(state["counter"][2])
        time.sleep(self.seconds)
        reports = super().randomise(values, draws)
        place = Path(self.folder) / f"{key}-{block}-{os.getpid()}-{secrets.token_hex(6)}"
        with open(place.with_suffix(".new"), "wb") as note:
            np.savez(note, values=values[:, 0], reports=reports)
        place.with_suffix(".new").rename(place.with_suffix(".npz"))  # whole, or not at all
        return reports


def notes(folder: Path) -> dict[tuple[str, int], list[tuple[bytes, bytes]]]:
    """By key and block: values and reports of every time that the block was drawn."""
    found = defaultdict(list)
    for path in sorted(folder.glob("*.npz")):
        key, block, *_ = path.stem.split("-")
        with np.load(path) as note:
            found[key, int(block)].append((note["values"].tobytes(), note["reports"].tobytes()))
    return dict(found)


def recorded(folder: Path, seconds: float = 0.0) -> LocalProtocol:
    """The question with notes."""
    return LocalProtocol(Box(1), Recorded(1, 1.0, str(folder), seconds))


@dataclass(frozen=True)
class InTurn(LocalMethod):
    """Asks its groups one after another, each about the answer of the one before."""

    tag: ClassVar[str] = "InTurn"
    name: ClassVar[str] = "in-turn"

    folder: str
    n_rounds: int
    ask_twice: bool

    def decide(self, public: Public, statement: None) -> InTurn:
        return self._with(public, statement)

    @property
    def protocols(self) -> Sequence[LocalProtocol]:
        return [recorded(Path(self.folder))] * self.n_rounds

    def solve(self, oracle: Oracle) -> dict[str, Any]:
        state = np.zeros(1)
        for t in range(self.n_rounds):
            state = self.estimate(oracle, 0 if self.ask_twice else t, state)
        return {"mean": state}


class Rounds(LocalEstimator):
    """One number per user, in rounds."""

    labelled = False

    def __init__(self, folder: str = "", n_rounds: int = 3, ask_twice: bool = False, random_state: int | None = None,
                 epsilon: float = 1.0, delta: float | None = None, fidelity: str = "report", ledger: Any = None,
                 cluster: Any = None, run_id: str | None = None) -> None:  # fmt: skip
        self.folder, self.n_rounds, self.ask_twice, self.random_state = folder, n_rounds, ask_twice, random_state
        self.epsilon, self.delta, self.fidelity, self.ledger = epsilon, delta, fidelity, ledger  # type: ignore[assignment]
        self.cluster, self.run_id = cluster, run_id

    def _chosen(self, public: Public, **beside: Any) -> InTurn:
        return InTurn(self.folder, self.n_rounds, self.ask_twice).decide(public, None)
