"""Settings that have to be made before anything is imported."""

from __future__ import annotations

import os

# scikit-learn skips its array-API check of an estimator without it
os.environ.setdefault("SCIPY_ARRAY_API", "1")
