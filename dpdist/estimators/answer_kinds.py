"""`Answer`: the kinds of answer that a fitted estimator gives, and where it has them.

An estimator declares its kinds (`dpdist.estimators.estimator.Estimator.answers`), a metric of a generated problem the
one that it judges (`dpdist.problems.metrics`): who meets whom is known before a row is made.
"""

from __future__ import annotations

from enum import Enum


class Answer(Enum):
    """A kind of answer: in words, and the fitted attribute or the method that gives it.

    Examples
    --------
    >>> Answer.MEANS.words, Answer.MEANS.attribute
    ('means of columns', 'mean_')
    """

    MEANS = "means of columns", "mean_"
    FREQUENCIES = "frequencies of categories", "frequencies_"
    CODES = "frequent codes", "found_"
    TABLES = "tables of several columns", "marginal"
    LABELS = "labels of tasks", "labels_"
    SHARES = "shares of answers", "shares_"
    ABILITIES = "abilities of users", "abilities_"
    SUBSPACE = "a subspace", "components_"
    SECOND_MOMENTS = "second moments", "second_moment_"
    COVARIANCE = "a covariance matrix", "covariance_"
    PRECISION = "a precision matrix", "precision_"
    DENSITIES = "densities of numbers", "density"
    MINIMISER = "the minimiser of a loss", "coef_"
    COEFFICIENTS = "coefficients of a regression", "coef_"
    CENTRES = "centres of components", "means_"
    UP_TO_SIGN = "coefficients up to their sign", "coef_"
    NUMBERS = "predicted numbers", "predict"
    CLASSES = "predicted classes", "predict"
    PROBABILITIES = "probabilities of classes", "predict_log_proba"
    METRIC = "a metric", "metric_"
    RANKING = "scores that rank rows", "decision_function"
    LOG_ODDS = "log-odds of the labels -1 and +1", "decision_function"

    def __init__(self, words: str, attribute: str) -> None:
        self.words = words
        self.attribute = attribute
