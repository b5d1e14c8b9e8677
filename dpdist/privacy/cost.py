"""What one draw of a mechanism costs, in the currencies the accountants know."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Cost:
    """The price of one release, tied to the law of its noise.

    ``kind`` and ``parameter``:

    ============== ================================================= =====================
    kind           law                                               parameter
    ============== ================================================= =====================
    gaussian       (rounded) Gaussian, noise_std = sensitivity / mu  mu
    laplace        (rounded) Laplace, scale = sensitivity / epsilon  epsilon
    zcdp           anything proved rho-zCDP (discrete Gaussian)      rho
    pure           anything proved epsilon-DP (permute-and-flip)     epsilon
    bounded-range  exponential mechanism at epsilon0                 epsilon0
    ============== ================================================= =====================
    """

    kind: Literal["gaussian", "laplace", "zcdp", "pure", "bounded-range"]
    parameter: float

    @property
    def epsilon(self) -> float:
        """Pure epsilon, infinite where there is none."""
        return math.inf if self.kind in ("gaussian", "zcdp") else self.parameter

    @property
    def rho(self) -> float:
        """zCDP: mu^2/2, epsilon^2/2, and epsilon0^2/8 for a bounded-range selection (spec 00, section 3.1)."""
        if self.kind == "zcdp":
            return self.parameter
        return self.parameter**2 / (8 if self.kind == "bounded-range" else 2)
