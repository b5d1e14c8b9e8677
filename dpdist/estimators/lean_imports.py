"""scikit-learn without two packages that it imports and seldom uses: `scipy.stats` and pandas.

They take a third of the time from ``import dpdist`` to a first estimator. While scikit-learn is imported, stand-ins
take their places; afterwards they are imported by whoever asks for them first, scikit-learn included. Nothing is put
off where scikit-learn, or one of the two, has been imported before.

This is done when the module is imported, so it comes before all that imports scikit-learn.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

SELDOM_USED = ("pandas", "scipy.stats")


class PutOff(ModuleType):
    """Stands in for a module, which is imported when it is asked for something."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def import_scikit_learn() -> None:
    """Import what estimators need of it."""
    stand_ins = {}
    if "sklearn" not in sys.modules:
        absent = [name for name in SELDOM_USED if name not in sys.modules and importlib.util.find_spec(name)]
        stand_ins = {name: PutOff(name) for name in absent}
    sys.modules.update(stand_ins)
    try:
        importlib.import_module("sklearn.base")
    finally:
        for name, stand_in in stand_ins.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]


import_scikit_learn()
