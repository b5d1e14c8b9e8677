"""The truth behind the answers of a crowd to many tasks, with nobody to trust.

=============== ======================================================================= =======================
method          labels                                                                  id
=============== ======================================================================= =======================
``dawid-skene`` by users who count for how able they are ("auto" for ``unit="answer"``) ds-private, ds-auto
``majority``    by the vote ("auto" for ``unit="record"``)                              mv-private, ds-full-ldp
``shares``      none: the unbiased share of every answer to every task                  ladp-rr
=============== ======================================================================= =======================

Seed 000, section 7.1, as corrected in spec 07, sections 3 and 11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dpdist.data import ArraySpec, Dataset
from dpdist.engine.shards import Prepare
from dpdist.errors import BudgetError
from dpdist.estimators.answer_kinds import Answer
from dpdist.estimators.choices import Offered, chosen
from dpdist.estimators.inputs import as_dataset
from dpdist.estimators.parameters import check_between, check_count, choice
from dpdist.local.crowd.crowd_methods import METHODS, Crowd, CrowdMethod, DawidSkene, MajorityVote
from dpdist.local.local_estimator import LocalEstimator
from dpdist.local.statistics.task_answers import AnswerCodes, TaskAnswers, check_columns
from dpdist.local.survey.user_values import as_given
from dpdist.method import Method, Public
from dpdist.privacy.audit.worst_neighbours import Pair

UNITS = ("answer", "record")
UNANSWERED = ("coin", "symbol", "public")
LAYOUTS = ("cells", "packed")


@dataclass(eq=False, repr=False)
class TruthInference(LocalEstimator):
    """The labels of tasks that many users answered, and how able these are.

    A row is a user and a column a task. Every answer is randomised by itself, so epsilon is what the report about **one
    answer** may tell; for all m answers of a user it is m epsilon, which an account about rows is charged. With
    ``unit="record"`` a user reports on one task, drawn at random, and epsilon is for all they answered and for which.

    Parameters
    ----------
    method : str or CrowdMethod
        "auto", "dawid-skene", "majority" or "shares", see the table of this module. `DawidSkene` has parameters of its
        own: ``init`` and ``n_rounds``.
    unit : {"answer", "record"}
        What the guarantee protects.
    n_classes : int, default 2
        Answers are whole numbers from 0 to ``n_classes - 1``.
    layout : {"cells", "packed"}
        Whether a stored number is an answer, or a byte eight of them (`dpdist.local.statistics.task_answers`).
    n_tasks : int, optional
        For packed answers, which need it: how many bits of a row are answers. What follows says which were given.
    unanswered : {"coin", "symbol", "public"}
        What becomes of tasks that a user did not answer (NaN, or a number below 0): a report that says nothing, a
        symbol of its own, or no report, where it is public who answered what. With "public" the guarantee covers what
        was answered only, and accounts about rows do not pay for it.
    epsilon, fidelity
        As in `dpdist.local.local_estimator.LocalEstimator`; the guarantee is pure, delta is not used.
    ledger, cluster, run_id, random_state
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Attributes
    ----------
    labels_ : array of shape (n_tasks,)
    label_probabilities_ : array of shape (n_tasks, n_classes)
        Given that users err independently.
    abilities_ : array of shape (n,)
        Chances of each user to be right (two classes, "dawid-skene"). A user's own is as private as their report.
    confusion_ : array of shape (n, n_classes, n_classes)
        Of more classes: the chances of each user's answers, one row for every label.
    shares_ : array of shape (n_tasks, n_classes)
        Of the answers of all users, unbiased; with "coin" a task without an answer counts as all classes alike.
    standard_error_ : array of shape (n_tasks, n_classes)
        Of the shares ("majority" and "shares").
    n_rounds_, rounds_reason_, signal_strength_
        What "dawid-skene" did, and why.
    method_, method_reason_ : str
    guarantee_, plan_, releases_, n_features_in_, fidelity_
        As in `dpdist.central.linear.minimizer.Minimizer`.

    Notes
    -----
    An answer that is no class is a null answer: its report is any class, each as likely. Labels are those of the crowd:
    where most users err alike, so do the labels, as in every method that knows nothing but answers.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth, able = rng.integers(0, 2, 500), np.where(np.arange(100) < 20, 0.95, 0.55)
    >>> answers = np.where(rng.random((100, 500)) < able[:, None], truth, 1 - truth)
    >>> found = TruthInference(epsilon=2.0, random_state=0).fit(answers)
    >>> vote = TruthInference("majority", epsilon=2.0, random_state=0).fit(answers)
    >>> [round(float(np.mean(model.labels_ != truth)), 2) for model in (found, vote)]
    [0.0, 0.03]
    >>> bool(found.abilities_[:20].mean() > 0.9), found.guarantee_.parts
    (True, 500)
    """

    labelled = False
    offers: ClassVar[Mapping[str, Offered]] = {"method": METHODS}

    method: str | CrowdMethod = "auto"
    _: KW_ONLY
    unit: str = "answer"
    n_classes: int = 2
    layout: str = "cells"
    n_tasks: int | None = None
    unanswered: str = "coin"

    @property
    def answers(self) -> tuple[Answer, ...]:
        named = getattr(self.method, "name", self.method)
        if named == "shares":
            return (Answer.SHARES,)
        by_ability = named == "dawid-skene" or (named == "auto" and self.unit == "answer")
        return (Answer.LABELS, Answer.SHARES, *([Answer.ABILITIES] if by_ability and self.n_classes == 2 else []))

    def _dataset(self, X: Any, y: Any) -> Dataset:
        dataset = as_dataset(self, X, labels=False).select(X="X")
        check_columns(self._answers(self.n_features_in_), self.n_features_in_, dataset.arrays["X"].dtype)
        return dataset

    def _prepare(self, arrays: Mapping[str, ArraySpec]) -> Mapping[str, Prepare]:
        return {"X": as_given if self.layout == "packed" else AnswerCodes(int(self.n_classes))}

    def _chosen(self, public: Public, **beside: Any) -> CrowdMethod:
        statement = Crowd(self._answers(public.n_features), self.unit)
        method = chosen("method", self.method, METHODS)
        if method == "auto":
            method = (
                replace(DawidSkene(), reason="users count for how able their own reports show them to be")
                if self.unit == "answer"
                else replace(
                    MajorityVote(), reason="with one report of each user nothing is known of how able they are"
                )
            )
        found: CrowdMethod = method.decide(public, statement)
        return found

    def _answers(self, n_columns: int) -> TaskAnswers:
        """What a row of so many columns holds."""
        n_tasks = n_columns if self.n_tasks is None else int(self.n_tasks)
        return TaskAnswers(n_tasks, int(self.n_classes), self.unanswered, self.layout == "packed")

    def _measures(self, method: Method) -> str:
        assert isinstance(method, CrowdMethod)
        return super()._measures(method) + method.theory

    def _store(self, method: Method, fitted: Mapping[str, Any]) -> None:
        super()._store(method, fitted)
        self.method_, self.method_reason_ = method.name, method.reason

    def _check_parameters(self) -> None:
        super()._check_parameters()
        chosen("method", self.method, METHODS)
        choice("unit", self.unit, UNITS)
        choice("layout", self.layout, LAYOUTS)
        choice("unanswered", self.unanswered, UNANSWERED)
        check_count("n_classes", self.n_classes, low=2)
        if self.n_tasks is not None:
            check_count("n_tasks", self.n_tasks)
            if self.layout != "packed":
                raise BudgetError("n_tasks is for layout='packed': of other answers every column is a task")
        if self.layout == "packed" and self.n_classes != 2:
            raise BudgetError(
                f"packed answers are bits, of two classes; with n_classes={self.n_classes!r} store numbers"
            )
        if self.layout == "packed" and self.n_tasks is None:
            raise BudgetError(
                "layout='packed' needs n_tasks: a row of 10 bytes may be 80 answers, or 40 and which of them were given"
            )
        if self.unit == "record" and self.unanswered != "coin":
            why = (
                "protects which tasks were answered as well"
                if self.unanswered == "public"
                else "sends one bit about one task, which says nothing where there is no answer"
            )
            raise BudgetError(f"unit='record' {why}: leave unanswered={self.unanswered!r} out")
        check_between("epsilon", self.epsilon, 1e-6, 100)

    def worst_neighbours(self, n_rows: int, n_features: int) -> Mapping[str, Pair]:
        """Two records that differ in one answer, or in all of them and in which there are."""
        packed = self.layout == "packed"
        one = np.zeros((1, n_features), np.uint8 if packed else np.float64)
        other = one.copy()
        if self.unit == "answer":
            other[0, 0] = 1
            return {"one answer": ({"X": one}, {"X": other})}
        other[:] = 255 if packed else 1
        pairs: dict[str, Pair] = {"all answers": ({"X": one}, {"X": other})}
        if not packed:
            pairs["answered or not"] = ({"X": np.full_like(one, np.nan)}, {"X": other})
        return pairs
