"""Mistakes of the first ten minutes: every one is answered by one error of one kind, which says what to do."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from dpdist import Budget, Coordinator, Dataset, Ledger, LinearRegression, Mean, TwoComponentMixture
from dpdist.central import GradientDescent
from dpdist.errors import BudgetError, LedgerError
from dpdist.privacy.accounting.filter import Amount

X, Y = np.zeros((100, 3)), np.zeros(100)
KNOWN = {"loss": "huber", "row_norm": 1.0, "delta": 1e-6}


def test_a_choice_that_is_no_text_is_the_same_error():
    with pytest.raises(BudgetError, match=r"certify=True is not known; choose one of 'local-minimum'"):
        GradientDescent(certify=True)


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (LinearRegression(**{**KNOWN, "loss": "hubre"}), r"loss='hubre' is not known; did you mean 'huber'\? choose"),
        (LinearRegression(**KNOWN, solver="gradeint"), r"solver='gradeint' is not known; did you mean 'gradient'\?"),
        (LinearRegression(**KNOWN, gradient="nrom"), r"gradient='nrom' is not known; did you mean 'norm'\? choose"),
        (
            LinearRegression(**{**KNOWN, "neighbours": ["replace-one"]}),
            r"neighbours=\['replace-one'\] is not known; choose",
        ),
        (Mean(method="truncat", second_moment=1.0, delta=1e-6), r"method='truncat' is not known; did you mean"),
    ],
    ids=["loss", "solver", "gradient", "neighbours", "method"],
)
def test_a_typo_is_the_same_error_whatever_it_is_in(model, match):
    with pytest.raises(BudgetError, match=match):
        model.fit(X, Y)


def test_what_is_no_ledger_and_no_limit_is_named():
    with pytest.raises(BudgetError, match="ledger must be the path"):
        TwoComponentMixture(ledger=3, delta=1e-6, noise_std=1.0, radius=1.0).fit(X)
    with pytest.raises(LedgerError, match=r"ledger takes a Ledger object.*got 3"):
        Coordinator(Dataset.from_arrays(X=X), Budget(1.0), arrays={"X": np.asarray}, ledger=3)
    with pytest.raises(LedgerError, match=r"a ledger is a file.*got 3"):
        Ledger(3)
    with pytest.raises(BudgetError, match=r"a limit is a Budget.*got 3"):
        Ledger(":memory:").set_limit("id", 3)


def test_amounts_are_shown_in_digits_that_mean_something():
    assert str(Amount(0.9999999999989253, 1e-7, 0.2137362718742679)) == "epsilon 1, delta 1e-07, mu 0.213736"
    assert str(Amount(0.0, 0.0)) == "epsilon 0, delta 0"


def test_a_refusal_says_once_that_nothing_was_charged(tmp_path):
    from dpdist.cli.run import command

    rng = np.random.default_rng(0)
    dataset = Dataset.from_arrays(tmp_path / "x.zarr", X=rng.normal(size=(3000, 2)), y=rng.integers(0, 2, 3000))
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.set_limit(dataset.account, Budget(0.5, 1e-5))
    ledger.close()
    (tmp_path / "job.yaml").write_text(
        f"method: dp-gd\ndata: {{path: {tmp_path}/x.zarr}}\nparams: {{row_norm: 1.0, classes: [0, 1]}}\n"
        f"budget: {{epsilon: 1.0, delta: 1.0e-7}}\nledger: {tmp_path}/ledger.sqlite\noutput: {tmp_path}/run\n"
    )
    refused = CliRunner().invoke(command, [str(tmp_path / "job.yaml")]).exception
    said = "\n".join([str(refused), *getattr(refused, "__notes__", ())])
    assert said.count("Nothing was charged") == 1, said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("words", "match"), [(["audit", "nomethod"], "'dpdist methods' lists all"),
                                              (["figures", "fig-99"], "There are: ")])  # fmt: skip
def test_a_name_that_is_not_there_says_what_is(words, match):
    from dpdist.cli import main

    result = CliRunner().invoke(main, words)
    assert result.exit_code and match in result.output
