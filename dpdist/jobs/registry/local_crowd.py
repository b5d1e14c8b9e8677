"""Labels of tasks from the answers of a crowd, with nobody to trust."""

from __future__ import annotations

from functools import partial

from dpdist.jobs.registry.registered import RegisteredMethod

_row = partial(
    RegisteredMethod,
    estimators=("local.TruthInference",),
    spec="07, section 3",
    guarantee="epsilon",
    outputs=("labels_", "label_probabilities_", "shares_"),
    trust="local",
)

METHODS = (
    _row("ladp-rr", "Shares of answers to many tasks: a randomised response to each",
         {"method": "shares"}, source="seed 000, Definition 7.1.1 and eq. 7.9", outputs=("shares_", "standard_error_")),
    _row("mv-private", "Labels of tasks: the vote of randomised responses",
         {"method": "majority", "unit": "answer"}, source="seed 000, eq. 7.18"),
    _row("ds-private", "Labels of tasks and abilities of users in turns, 20 rounds",
         {"method": {"dawid-skene": {"n_rounds": 20}}}, source="seed 000, Algorithm 7.1.54",
         outputs=("labels_", "label_probabilities_", "abilities_")),
    _row("ds-init", "Labels of tasks from the direction in which reports vary together, then rounds",
         {"method": {"dawid-skene": {"init": "spectral"}}}, source="spec 07, section 3.6",
         outputs=("labels_", "label_probabilities_", "abilities_")),
    _row("ds-auto", "Labels of tasks and abilities of users in turns, one round where the signal is weak",
         {"method": {"dawid-skene": {"n_rounds": "auto"}}}, source="spec 07, section 3.7",
         outputs=("labels_", "label_probabilities_", "abilities_")),
    _row("ds-multiclass", "Labels of tasks of several classes, with the confusions of every user",
         {"method": "dawid-skene"}, source="Dawid and Skene 1979; spec 07, section 3.9",
         outputs=("labels_", "label_probabilities_", "confusion_"), needs=("n_classes",)),
    _row("ds-full-ldp", "Labels of tasks: users report on one task each, and all they answered is protected",
         {"method": "majority", "unit": "record"}, source="spec 07, section 3.8"),
)  # fmt: skip
