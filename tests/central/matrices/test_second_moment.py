"""One release of a second moment: its noise, its bounds, and everything that is made of it at no further cost."""

from __future__ import annotations

import math

import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone

from dpdist import PCA, Budget, Dataset, GraphicalLasso, Ledger, SecondMoment, SparseCovariance, SparsePCA
from dpdist.central import OutputPerturbation
from dpdist.data import Units
from dpdist.errors import BudgetError
from dpdist.kernels.moments import unpack_symmetric
from dpdist.privacy.accounting.closed_forms import gdp_epsilon, gdp_mu

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4000, 5)) * [1.0, 0.5, 0.2, 0.1, 0.1] / 2
GAUSSIAN = {"epsilon": 1.0, "delta": 1e-6, "row_norm": 1.0, "cluster": "threads"}
PURE = {"epsilon": 1.0, "row_norm": 1.0, "cluster": "threads"}
MECHANISMS = {
    "goe": GAUSSIAN, "upper-triangle": GAUSSIAN, "approx-wishart": GAUSSIAN, "sulq": GAUSSIAN,
    "wishart": PURE, "knorm": PURE, "laplace": PURE,
}  # fmt: skip


def clipped(X, r=1.0):
    return X * np.minimum(1, r / np.linalg.norm(X, axis=1))[:, None]


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_releases_the_clipped_second_moment_with_the_noise_that_it_declares(name):
    exact = clipped(X).T @ clipped(X) / len(X)
    upper, errors, model = np.triu_indices(5), [], None
    for seed in range(8):
        model = SecondMoment(name, **MECHANISMS[name], random_state=seed).fit(X)
        assert np.array_equal(model.second_moment_, model.second_moment_.T) and model.n_samples_ == len(X)
        errors.append((model.second_moment_ - exact)[upper])
    errors = np.array(errors)
    stds = np.where(upper[0] == upper[1], model.diagonal_std_, model.off_diagonal_std_)
    assert 0.75 < (errors / stds).std() < 1.3  # 120 entries; at least 6 standard errors for the heaviest tails
    assert model.guarantee_.epsilon <= 1.0 and model.guarantee_.simulation
    assert model.outlook(*X.shape).predicted_error == pytest.approx(
        math.sqrt(5 * model.diagonal_std_**2 + 20 * model.off_diagonal_std_**2)
    )


def test_the_standard_deviations_are_those_of_the_specification():
    n, d = 1000, 12
    found = {}
    for name, keys in MECHANISMS.items():
        model = SecondMoment(name, **keys)
        plan, method = model.plan(n, d), model.decided(n, d)
        found[name] = method.noise(plan)
    mu = gdp_mu(1.0, 1e-6)
    sigma = math.sqrt(2) / (n * mu)
    assert found["goe"].diagonal_std == pytest.approx(sigma)
    assert found["goe"].off_diagonal_std == pytest.approx(sigma / math.sqrt(2))
    assert found["upper-triangle"].off_diagonal_std == pytest.approx(sigma)
    assert found["wishart"].off_diagonal_std == pytest.approx(math.sqrt(2 * (d + 1)) / n)
    assert found["wishart"].diagonal_std == pytest.approx(2 * math.sqrt(d + 1) / n)
    D = d * (d + 1) / 2
    assert found["knorm"].off_diagonal_std == pytest.approx(math.sqrt(D + 1) / n)
    assert found["laplace"].off_diagonal_std == pytest.approx(math.sqrt(2) * (d / math.sqrt(2) + 1) / n)
    assert found["approx-wishart"].off_diagonal_std == pytest.approx(math.sqrt(d + 58) / n)
    level = math.sqrt(2 * math.log((d * d + d) / (2 * math.sqrt(2 * math.pi) * 1e-6)))
    assert found["sulq"].off_diagonal_std == pytest.approx(((d + 1) * level + 1) / n)
    # what the published noise costs is charged, which is less than was asked
    spent = SecondMoment("sulq", **GAUSSIAN).plan(n, d).spent
    assert spent.epsilon == pytest.approx(
        gdp_epsilon(math.sqrt(2) / n / found["sulq"].off_diagonal_std, 1e-6), rel=1e-6
    )


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_auto_is_the_mechanism_with_the_least_noise_of_all_that_the_budget_pays_for(epsilon, delta):
    for d in (2, 3, 4, 5, 7, 8, 10, 11, 14, 60):
        noises = {}
        for name, keys in MECHANISMS.items():
            model = SecondMoment(name, row_norm=1.0, epsilon=epsilon, delta=delta if keys is GAUSSIAN else None)
            noises[name] = model.decided(500, d).noise(model.plan(500, d)).frobenius
        pure = {name: noise for name, noise in noises.items() if MECHANISMS[name] is PURE}
        for given, payable in ((delta, noises), (None, pure)):
            chosen = SecondMoment(row_norm=1.0, epsilon=epsilon, delta=given).decided(500, d)
            assert noises[chosen.name] == min(payable.values()), (d, given, payable)
            assert all(f"{name} {noises[name]:.3g}" in chosen.reason for name in {"wishart", "knorm"} & payable.keys())
            assert ("goe" in chosen.reason) == (given is not None)


def test_auto_with_few_columns_spends_no_delta_and_has_less_noise_than_the_gaussian():
    for d, name, ratio in ((2, "knorm", 2.1), (4, "wishart", 1.33)):
        rows = np.random.default_rng(d).normal(size=(500, d)) / d
        errors: dict[str, list[float]] = {"auto": [], "goe": []}
        for seed in range(100):
            for mechanism, found in errors.items():
                model = SecondMoment(mechanism, **GAUSSIAN, random_state=seed).fit(rows)
                found.append(float(((model.second_moment_ - clipped(rows).T @ clipped(rows) / 500) ** 2).sum()))
                if mechanism == "auto":
                    assert (model.mechanism_, model.guarantee_.delta) == (name, 0.0)
                    assert "no delta" in model.mechanism_reason_
        measured = math.sqrt(np.mean(errors["goe"]) / np.mean(errors["auto"]))
        assert measured == pytest.approx(ratio, rel=0.25), d


def test_an_account_of_gaussian_charges_says_what_to_choose_for_few_columns(tmp_path):
    ledger = Ledger(tmp_path / "ledger.sqlite", account="few")
    ledger.set_limit("few", Budget(3.0, 1e-5), composition="gaussian")
    with pytest.raises(BudgetError, match='mechanism="goe"'):
        PCA(1, **{**GAUSSIAN, "ledger": ledger}).fit(X)
    assert PCA(1, **{**GAUSSIAN, "ledger": ledger}, mechanism="goe").fit(X).mechanism_ == "goe"
    ledger.close()


def test_the_bounds_are_enforced_for_any_row():
    bad = X.copy()
    bad[0], bad[1], bad[2], bad[3] = np.nan, np.inf, 1e300, 5e-324
    good = bad.copy()
    good[:2], good[3] = 0.0, 0.0
    good[2] = np.ones(5)
    one, other = (SecondMoment(**GAUSSIAN, random_state=1).fit(rows) for rows in (bad, good))
    assert abs(one.second_moment_ - other.second_moment_).max() < 1e-6 / len(X)
    units = SecondMoment(unit_rows=True, **GAUSSIAN, random_state=1).fit(X)
    directions = X / np.linalg.norm(X, axis=1, keepdims=True)
    error = units.second_moment_ - directions.T @ directions / len(X)
    assert abs(error).max() < 6 * units.diagonal_std_


def test_pairs_have_the_covariance_and_no_mean():
    shifted = X + 0.3
    model = SecondMoment(centre="pairs", **{**GAUSSIAN, "row_norm": 2.0, "epsilon": 5.0}, random_state=0).fit(shifted)
    assert model.n_samples_ == len(X) / 2
    assert abs(model.second_moment_ - np.cov(X.T)).max() < 6 * model.diagonal_std_ + 0.02
    plain = SecondMoment(**{**GAUSSIAN, "row_norm": 2.0, "epsilon": 5.0}, random_state=0).fit(shifted)
    assert abs(plain.second_moment_ - np.cov(X.T)).max() > 0.08


def test_an_owner_of_several_rows_has_the_noise_times_their_number_or_is_refused():
    units = Units("user", 3, grouped=True)
    for name, keys in MECHANISMS.items():
        model = SecondMoment(name, **keys)
        if name == "approx-wishart":
            with pytest.raises(Exception, match="differ in one row"):
                model.plan(3000, 5, units)
            continue
        one, three = model.decided(3000, 5), model.decided(3000, 5, units)
        ratio = three.noise(model.plan(3000, 5, units)).frobenius / one.noise(model.plan(3000, 5)).frobenius
        assert ratio == pytest.approx(1.0 if name == "sulq" else 3.0)  # SuLQ's is as published: it costs more
    costs = [SecondMoment("sulq", **GAUSSIAN).plan(3000, 5, *given).spent.epsilon for given in ((), (units,))]
    assert costs[1] > 2.5 * costs[0]


def test_under_add_or_remove_one_the_noise_is_that_of_one_row():
    keys = {**GAUSSIAN, "neighbours": "add-or-remove-one", "n_public": 4000}
    one, other = SecondMoment("goe", **GAUSSIAN), SecondMoment("goe", **keys)
    ratio = one.sensitivities(4000, 5)["second moment"] / other.sensitivities(4000, 5)["second moment"]
    assert ratio == pytest.approx(math.sqrt(2))
    pure = [SecondMoment(**{**k, "delta": None}).sensitivities(4000, 5)["second moment"] for k in (GAUSSIAN, keys)]
    assert pure == [2.0, 1.0]
    assert abs(other.set_params(random_state=0).fit(X).second_moment_ - X.T @ X / 4000).max() < 0.1


@pytest.mark.parametrize(
    "model",
    [*(SecondMoment(name, **keys) for name, keys in MECHANISMS.items()), SecondMoment(unit_rows=True, **GAUSSIAN),
     SecondMoment(centre="pairs", **GAUSSIAN), PCA(1, **PURE), SparsePCA(1, **GAUSSIAN), SparseCovariance(**GAUSSIAN),
     GraphicalLasso(**GAUSSIAN), GraphicalLasso(OutputPerturbation(cap=2.0), **GAUSSIAN)],
    ids=lambda model: f"{type(model).__name__}-{model.mechanism}",
)  # fmt: skip
def test_neighbours_for_audits_are_as_far_apart_as_can_be(model):
    """Opposite rows have the same products, and an audit with them sees nothing whatever is released."""
    (line,) = model.decided(40, 4).lines()
    for pair in model.worst_neighbours(40, 4).values():
        one, other = (unpack_symmetric(line.query.summarise(rows, None, None).astype(float)) for rows in pair)
        assert np.linalg.norm(one - other) > 1.41 * np.trace(one) > 0


def test_one_release_is_charged_once_and_used_by_all():
    ledger = Ledger(":memory:")
    data = Dataset.from_arrays(X=X, account="once")
    moment = SecondMoment(**GAUSSIAN, ledger=ledger).fit(data)
    before = ledger.spent(data.account)
    models = [
        PCA(2).fit(moment), SparsePCA(1).fit(moment), SparseCovariance().fit(moment), GraphicalLasso().fit(moment),
        PCA(1).fit(PCA(3).fit(moment)),
    ]  # fmt: skip
    assert ledger.spent(data.account) == before
    for model in models:
        assert model.guarantee_ is moment.guarantee_ and model.releases_ is moment.releases_
        assert model.second_moment_ is moment.second_moment_ and model.n_features_in_ == 5
    assert len(moment.releases_) == 1
    direct = PCA(2, **GAUSSIAN, random_state=3).fit(X)
    indirect = PCA(2).fit(SecondMoment(**GAUSSIAN, random_state=3).fit(X))
    assert np.array_equal(direct.components_, indirect.components_)


def test_results_do_not_depend_on_chunks_and_workers():
    made = [SecondMoment(**GAUSSIAN, random_state=2).fit(rows) for rows in (X, da.from_array(X, chunks=(701, 5)))]
    made.append(SecondMoment(**{**GAUSSIAN, "cluster": None}, random_state=2).fit(X))
    assert all(np.array_equal(made[0].second_moment_, other.second_moment_) for other in made[1:])


def test_estimators_are_clonable_and_keep_their_parameters():
    for model in (SecondMoment("goe", **GAUSSIAN), PCA(3, gap=0.1, **GAUSSIAN), SparsePCA(1, refit=False, **GAUSSIAN),
                  SparseCovariance("noisy", **GAUSSIAN), GraphicalLasso(**GAUSSIAN)):  # fmt: skip
        assert repr(clone(model).get_params()) == repr(model.get_params())
