"""Frequencies of categories and of codes, with nobody to trust."""

from __future__ import annotations

from functools import partial

from dpdist.jobs.registry.registered import RegisteredMethod

_row = partial(
    RegisteredMethod,
    estimators=("local.Histogram",),
    spec="00, section 5",
    guarantee="epsilon",
    outputs=("frequencies_", "unbiased_frequencies_"),
    trust="local",
)

METHODS = (
    _row("krr", "Frequencies of categories: users send theirs, or any other",
         {"method": "krr"}, source="Wang, Blocki, Li and Jha 2017; seed 000, section 5.1"),
    _row("sue", "Frequencies of categories: one noisy bit for each, symmetric (basic RAPPOR)",
         {"method": "sue"}, source="Wang, Blocki, Li and Jha 2017"),
    _row("oue", "Frequencies of categories: one noisy bit for each, asymmetric",
         {"method": "oue"}, source="Wang, Blocki, Li and Jha 2017"),
    _row("ue", "Frequencies of categories: one noisy bit for each, of two public probabilities",
         {"method": "ue"}, source="Wang, Blocki, Li and Jha 2017"),
    _row("olh", "Frequencies of categories: randomised response about a hash value",
         {"method": "olh"}, source="Wang, Blocki, Li and Jha 2017"),
    _row("hadamard-response", "Frequencies of categories: a row of a Hadamard matrix and a bit",
         {"method": "hadamard-response"}, source="Acharya, Sun and Zhang 2019"),
    _row("subset-selection", "Frequencies of categories: a random subset of them",
         {"method": "subset-selection"}, source="Ye and Barg 2018"),
    _row("heavy-hitters", "Frequent codes among billions: prefixes that grow with every group of users",
         {}, estimators=("local.HeavyHitters",), source="Bassily, Nissim, Stemmer and Thakurta 2017",
         outputs=("found_", "frequencies_")),
)  # fmt: skip
