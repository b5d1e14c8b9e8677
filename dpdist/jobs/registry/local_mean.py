"""Means of numbers and of vectors, with nobody to trust."""

from __future__ import annotations

from functools import partial

from dpdist.jobs.registry.registered import RegisteredMethod

_row = partial(RegisteredMethod, estimators=("local.Mean",), guarantee="epsilon", outputs=("mean_",), trust="local")

METHODS = (
    _row("duchi-1d", "Mean of a number in a range: one random sign per user",
         {"domain": "interval", "method": "one-bit"}, spec="00, section 6",
         source="Duchi, Jordan and Wainwright 2018; seed 000, section 5.1"),
    _row("piecewise", "Mean of a number in a range: a report near it, or anywhere",
         {"domain": "interval", "method": "piecewise"}, spec="00, section 6", source="Wang et al. 2019"),
    _row("hybrid", "Mean of a number in a range: a sign or a piecewise report, whatever has less noise",
         {"domain": "interval", "method": "hybrid"}, spec="00, section 6", source="Wang et al. 2019"),
    _row("ldp-avg-1d", "Mean of a number in a range, by the best of these reports",
         {"domain": "interval"}, spec="04, section 1", source="seed 000, section 5.2", aliases=("scalar-ldp",)),
    _row("coord-sampling", "Means of columns in a range: users report about a few of them",
         {"domain": "box", "method": "sample-coordinates"}, spec="00, section 6",
         source="Duchi, Jordan and Wainwright 2018; seed 000, section 5.1; Wang et al. 2019",
         aliases=("coord-sample", "ldp-avg-vec")),
    _row("duchi-l2", "Mean of vectors in a ball: a random point of a half-sphere",
         {"domain": "l2", "method": "hemisphere"}, spec="00, section 6",
         source="Duchi, Jordan and Wainwright 2018; seed 000, section 5.1",
         aliases=("l2-hemisphere", "ldp-vec-duchi")),
    _row("privunit", "Mean of vectors in a ball: a random point of a cap or of the rest of the sphere",
         {"domain": "l2", "method": "privunit"}, spec="00, section 6",
         source="Bhowmick, Duchi, Freudiger, Kapoor and Rogers 2018; Asi, Feldman and Talwar 2022",
         aliases=("ldp-vec-privunit",)),
    _row("privunitg", "Mean of long vectors in a ball: the same with normal vectors",
         {"domain": "l2", "method": "privunitg"}, spec="00, section 6", source="Asi, Feldman and Talwar 2022"),
    _row("ldp-gauss", "Mean of vectors in a ball: normal noise on each",
         {"domain": "l2", "method": "gaussian"}, spec="00, section 6", source="seed 001, Algorithm 1",
         guarantee="(epsilon, delta)", aliases=("ldp-vec-gauss",)),
    _row("mean-ldp-pure", "Means of heavy-tailed columns, softly truncated by the users",
         {"domain": "heavy-tailed", "method": "hybrid"}, spec="07, section 4.4", source="seed 000, section 7.2"),
    _row("mean-ldp-gauss", "The same with normal noise",
         {"domain": "heavy-tailed", "method": "gaussian"}, spec="07, section 4.5", source="seed 000, section 7.2",
         guarantee="(epsilon, delta)"),
    _row("mom-select", "Mean of vectors, as the middle of the means of groups of users",
         {"domain": "l2", "method": "auto"}, spec="08, section 3", source="seed 001, section 3",
         needs=("n_groups",)),
    _row("l1-mean-direct", "Mean of vectors that is known to have a small l1 norm",
         {"domain": "l1", "method": "direct"}, spec="08, section 4",
         source="seed 001, section 4, with reports of whole vectors"),
    _row("l1-mean-proj", "The same from reports of a public random projection",
         {"domain": "l1", "method": "projected"}, spec="08, section 3", source="seed 001, Algorithm 2, as corrected",
         aliases=("l1-recover",)),
)  # fmt: skip
