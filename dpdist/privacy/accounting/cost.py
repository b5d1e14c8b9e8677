"""What one draw of a mechanism costs, in the currencies the accountants know."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal


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
    approximate    anything proved (epsilon, delta)-DP, no more      epsilon (and delta)
    ============== ================================================= =====================

    ``delta`` is 0 for all kinds but the last, which is the only one that comes with a delta of its own.
    """

    tag: ClassVar[str] = "Cost"

    kind: Literal["gaussian", "laplace", "zcdp", "pure", "bounded-range", "approximate"]
    parameter: float
    delta: float = 0.0

    def __repr__(self) -> str:
        delta = f", delta={self.delta!r}" if self.delta else ""
        return f"Cost(kind={self.kind!r}, parameter={self.parameter!r}{delta})"

    @property
    def epsilon(self) -> float:
        """Pure epsilon, infinite where there is none."""
        return math.inf if self.kind in ("gaussian", "zcdp", "approximate") else self.parameter

    @property
    def rho(self) -> float:
        """zCDP: mu^2/2, epsilon^2/2, and epsilon0^2/8 for a bounded-range selection (spec 00, section 3.1)."""
        if self.kind == "approximate":
            return math.inf
        if self.kind == "zcdp":
            return self.parameter
        return self.parameter**2 / (8 if self.kind == "bounded-range" else 2)
