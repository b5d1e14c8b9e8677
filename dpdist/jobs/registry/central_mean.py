"""Means of columns, where a coordinator may see the rows."""

from __future__ import annotations

from functools import partial

from dpdist.jobs.registry.registered import RegisteredMethod

_row = partial(RegisteredMethod, estimators=("Mean",), outputs=("mean_",))

METHODS = (
    _row("catoni-mean", "Means of columns with softly truncated entries",
         {"method": "truncate"}, spec="01, section 3.5", source="seed 000, section 3.2.4", aliases=("mean-dp",)),
    _row("mean-dp-thesis", "Means of columns with softly truncated entries at the scale of the thesis, for comparison",
         {"method": {"truncate": {"scale": "thesis"}}}, spec="07, section 4.3", source="seed 000, Lemma 7.2.2"),
    _row("catoni-smoothed-mean", "Means of columns with smoothly truncated entries",
         {"method": "smooth-truncate"}, spec="09, section 1.2", source="seed 003, section 4"),
    _row("private-robust-mean", "Means of columns with softly truncated entries and Laplace noise (budget.delta: 0)",
         {"method": "truncate", "n_nonzero": None}, spec="09, section 1.3", source="seed 003, section 4",
         guarantee="epsilon"),
    _row("trim-mean-ss", "Trimmed means of columns with noise that follows the data, for symmetric columns",
         {"method": "trim"}, spec="01, section 3.3", source="seed 000, section 3.2.3"),
    _row("sparse-mean-ht", "The largest means of many heavy-tailed columns (n_nonzero of them)",
         {}, spec="09, section 5", source="seed 003, section 5.2", needs=("n_nonzero",)),
)  # fmt: skip
