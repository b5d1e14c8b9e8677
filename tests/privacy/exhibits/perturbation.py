"""Printed calibrations of perturbed objectives that are not private."""

from __future__ import annotations

from dataclasses import dataclass

from dpdist.privacy.mechanisms.objective_perturbation import ObjectivePerturbation


@dataclass(frozen=True)
class QuotedPerturbation(ObjectivePerturbation):
    """Noise for a gradient that moves by G, whatever the relation, as the formula is often quoted.

    It holds for adding or removing a row. Replacing one moves the gradient by up to 2 G: true deltas are up to some
    hundred times the claimed one.
    """

    @property
    def shift(self) -> float:
        return self.lipschitz
